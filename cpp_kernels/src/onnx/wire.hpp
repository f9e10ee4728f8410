// The protobuf wire format of ONNX, read without a protobuf library and without touching tensor data.
#pragma once

#include <memory_resource>

#include "onnx/excerpt.hpp"
#include "onnx/model.hpp"

namespace perfpass::onnx {

/// The structure of a serialized ModelProto. Texts point into the bytes of `file`, lists into `arena`; both must
/// outlive the model. Error(format) where the bytes are not an ONNX model, Error(limit) where a bound of `limits` is
/// exceeded.
Model read_model(const Excerpt& file, const OnnxLimits& limits, std::pmr::memory_resource& arena);

}  // namespace perfpass::onnx
