// LSTM, GRU, RNN and their quantized forms.
#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {
namespace {

// What the weights have, which the attribute may repeat and not contradict.
std::int64_t hidden_size(const InferContext& c, const Operator& op) {
  const Dims r = shape_of(c, 2);  // [directions, gates x hidden, hidden], or the last two exchanged
  const std::int64_t weights = r.size() != 3 ? 0 : op.variant == Variant::transposed ? r[1] : r[2];
  const std::int64_t given = integer_attribute(c, "hidden_size", weights);
  if (given != weights && (given < 1 || weights > 0)) {
    fail(c, "found hidden_size " + std::to_string(given) + " and recurrent weights of shape " + show(r) +
                ", needs their " + (weights > 0 ? std::to_string(weights) : std::string("size, at least 1")));
  }
  return given;
}

std::int64_t direction_count(const InferContext& c) {
  return c.text("direction", "forward") == "bidirectional" ? 2 : 1;
}

}  // namespace

void lower_recurrent(InferContext& c, const Operator& op) {
  c.attributes.hidden_size = clamped(hidden_size(c, op));
  c.attributes.directions = static_cast<std::int32_t>(direction_count(c));
}

bool infer_recurrent(InferContext& c, const Operator& op) {
  for (std::size_t i = 0; i < c.outputs.size(); ++i) set_dtype(c, i, dtype_of(c, 0));
  if (!ready(c, {0, 2})) return false;
  const Dims x = shape_of(c, 0);
  const std::int64_t hidden = hidden_size(c, op), directions = direction_count(c);
  if (x.size() != 3 || hidden < 1) {
    fail(c, "found an input of shape " + show(x) + " and a hidden size of " + std::to_string(hidden) +
                ", needs [length, batch, inputs] and at least 1");
  }
  const bool batch_first = integer_attribute(c, "layout", 0) != 0;
  const std::int64_t length = x[batch_first ? 1 : 0], batch = x[batch_first ? 0 : 1];
  const Shape state = batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
  set(c, 0, dtype_of(c, 0),
      batch_first ? Shape{batch, length, directions, hidden} : Shape{length, directions, batch, hidden});
  set(c, 1, dtype_of(c, 0), state);
  set(c, 2, dtype_of(c, 0), state);
  return true;
}

}  // namespace perfpass::onnx
