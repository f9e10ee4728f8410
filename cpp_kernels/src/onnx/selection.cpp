#include "onnx/selection.hpp"

#include <algorithm>

namespace perfpass::onnx {
namespace {

/// Operators that leave a score a score, and a mask a mask.
bool passes_on(OpKind op) noexcept {
  switch (op) {
    case OpKind::reshape:
    case OpKind::transpose:
    case OpKind::concat:
    case OpKind::split:
    case OpKind::slice:
    case OpKind::gather:
    case OpKind::identity:
    case OpKind::copy:
    case OpKind::cast:
    case OpKind::expand:
      return true;
    default:
      return false;
  }
}

bool is_at_most_zero(const Value* value) noexcept {
  return value != nullptr && value->has_values && value->reals.size() == 1 && value->reals[0] <= 0.0;
}

}  // namespace

Selects selects(OpKind op, const InferContext& c) noexcept {
  if (op == OpKind::sigmoid || op == OpKind::softmax) return Selects::probability;
  Selects first = Selects::unknown;
  bool all = true;
  for (const Value* value : c.inputs) {
    if (value == nullptr || value->selects == Selects::unknown) continue;
    if (first == Selects::unknown) first = value->selects;
    all = all && value->selects == Selects::all;
  }
  const bool is_mask = first == Selects::some || first == Selects::all;
  if (op == OpKind::sub && first == Selects::unknown) return Selects::extent;
  if (op == OpKind::compare && !c.inputs.empty() && c.inputs[0] != nullptr) {
    const bool at_least = c.node.op_type == "GreaterOrEqual";
    if (c.inputs[0]->selects == Selects::probability) {
      if (c.node.op_type == "Equal") return Selects::unknown;
      return at_least && c.inputs.size() > 1 && is_at_most_zero(c.inputs[1]) ? Selects::all : Selects::some;
    }
    return at_least && c.inputs[0]->selects == Selects::extent ? Selects::all : Selects::unknown;
  }
  if (op == OpKind::logical && is_mask) return c.node.op_type == "And" && all ? Selects::all : Selects::some;
  if (passes_on(op)) return is_mask ? (all ? Selects::all : Selects::some) : first;
  const bool keeps = op == OpKind::mul || op == OpKind::sqrt || op == OpKind::reduce_max || op == OpKind::top_k;
  return keeps && first == Selects::probability ? first : Selects::unknown;
}

}  // namespace perfpass::onnx
