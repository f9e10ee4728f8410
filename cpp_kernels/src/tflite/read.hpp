// TensorFlow Lite and LiteRT models (.tflite): a FlatBuffer of subgraphs, tensors and buffers.
//
// Activations keep the order that the file gives them, channels last, and nodes say so; weights of convolutions are
// shown as [outputs, inputs / groups, kernel]. A fused activation becomes a node of its own. What the interpreter does
// once, when a model is loaded, is no node: constants that are dequantized, subgraphs that are called once.
#pragma once

#include <memory_resource>

#include "flatbuffer/source.hpp"
#include "onnx/model.hpp"

namespace perfpass::tflite {

/// Texts point into `file` or `arena`, lists into `arena`; both must outlive the model.
onnx::Model read_model(const flatbuffer::Source& file, const OnnxLimits& limits, std::pmr::memory_resource& arena);

}  // namespace perfpass::tflite
