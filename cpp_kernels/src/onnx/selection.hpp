// What decides the size of a selection (NonZero of a detector's scores) where its contents are not known.
#pragma once

#include "onnx/model.hpp"

namespace perfpass::onnx {

/// What the outputs of a node are, by what its inputs are.
Selects selects(OpKind op, const InferContext& context) noexcept;

}  // namespace perfpass::onnx
