// ExecuTorch programs (.pte): the instructions of the first execution plan, with the shapes that it plans memory for.
//
// What is delegated to XNNPACK is read from its own FlatBuffer; other delegates stay one unknown node each.
#pragma once

#include <memory_resource>

#include "flatbuffer/source.hpp"
#include "onnx/model.hpp"

namespace perfpass::executorch {

/// Texts point into `file` or `arena`, lists into `arena`; both must outlive the model.
onnx::Model read_model(const flatbuffer::Source& file, const OnnxLimits& limits, std::pmr::memory_resource& arena);

}  // namespace perfpass::executorch
