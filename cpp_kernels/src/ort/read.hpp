// ONNX Runtime's own format (.ort): the ONNX model as a session holds it, often optimized, in a FlatBuffer.
#pragma once

#include <memory_resource>

#include "flatbuffer/source.hpp"
#include "onnx/model.hpp"

namespace perfpass::ort {

/// Texts point into `file`, lists into `arena`; both must outlive the model.
onnx::Model read_model(const flatbuffer::Source& file, const OnnxLimits& limits, std::pmr::memory_resource& arena);

}  // namespace perfpass::ort
