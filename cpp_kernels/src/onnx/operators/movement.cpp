// Operators that rearrange a tensor without choosing among its elements.
#include <algorithm>

#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {
namespace {

/// When the file fixes a batch and another is asked for, a constant target may repeat the file's: [1, 197, 768] for a
/// batch of 1, [12, 197, 64] for 12 heads of it. The first entry that differs from the input's dimension carries the
/// batch if it is the file's product of the dimensions from there on; it is scaled. `must` scales it regardless (the
/// target does not fit otherwise).
Shape rebound_target(const InferContext& c, Dims x, const Shape& target, bool must) {
  Shape scaled = target;
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (target[i] < 1) {
      if (target[i] == 0) continue;
      return target;
    }
    if (i < x.size() && target[i] == x[i] && x[i] % c.batch != 0) continue;
    if (target[i] % c.file_batch != 0) {
      if (i < x.size() && target[i] == x[i]) continue;
      return target;
    }
    bool carries = must;
    std::int64_t merged = 1;
    for (std::size_t k = i; k < x.size() && !carries; ++k) {
      if (k == i && x[k] % c.batch != 0) break;
      merged = product(c, merged, k == i ? x[k] / c.batch * c.file_batch : x[k]);
      carries = merged == target[i] || (k == i && merged % target[i] == 0);
    }
    if (!carries) return target;
    scaled[i] = product(c, target[i] / c.file_batch, c.batch);
    return scaled;
  }
  return target;
}

/// Fills the one entry of -1; false where the elements do not fit.
bool complete(const InferContext& c, std::int64_t count, Shape& target) {
  std::int64_t rest = 1;
  std::size_t open = target.size();
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (target[i] == -1) {
      if (open != target.size()) fail(c, "found a target of " + show(target) + ", needs at most one entry of -1");
      open = i;
    } else if (target[i] < 0) {
      fail(c, "found a target of " + show(target) + ", needs entries of -1 or more");
    } else {
      rest = product(c, rest, target[i]);
    }
  }
  if (open == target.size()) return rest == count;
  if (rest == 0) {
    target[open] = 0;
    return count == 0;
  }
  target[open] = count / rest;
  return count % rest == 0;
}

}  // namespace

bool infer_reshape(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  Dims wanted = integers_attribute(c, "shape");  // opset 1
  bool constant = true;
  if (c.find("shape") == nullptr) {
    if (input(c, 1) == nullptr) fail(c, "found no target shape, needs it as second input");
    const Value* target = integers_of(c, 1);
    if (target == nullptr) return false;
    wanted = target->integers;
    constant = target->is_constant;
  }
  Shape target(wanted);
  if (integer_attribute(c, "allowzero", 0) == 0) {
    for (std::size_t i = 0; i < target.size(); ++i) {
      if (target[i] != 0) continue;
      if (i >= x.size())
        fail(c, "found a target of " + show(target) + " for an input of shape " + show(x) +
                    ", needs no 0 past the input's dimensions");
      target[i] = x[i];
    }
  }
  const std::int64_t count = elements(x);
  Shape out = target;
  const bool open = std::find(target.begin(), target.end(), -1) != target.end();
  if (rebinds(c) && constant && open && !c.inputs[0]->is_constant) out = rebound_target(c, x, target, false);
  bool fits = complete(c, count, out);
  if (!fits && rebinds(c)) {
    out = rebound_target(c, x, target, true);
    fits = complete(c, count, out);
  }
  if (!fits) {
    fail(c, "found an input of shape " + show(x) + " and a target of " + show(target) +
                ", needs the same number of elements");
  }
  set(c, 0, dtype_of(c, 0), out);
  select_values(c, 0, *c.inputs[0], [](std::int64_t k) { return k; });
  return true;
}

void lower_flatten(InferContext& c, const Operator&) {
  c.attributes.view = 1;
  c.attributes.axis = soft_axis(c.integer("axis", 1), input(c, 0), 1);
}

bool infer_flatten(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  const std::int64_t given = integer_attribute(c, "axis", 1);
  const auto rank = static_cast<std::int64_t>(x.size());
  const std::size_t axis = given == rank ? x.size() : axis_of(c, given, x.size());
  Shape out{1, 1};
  for (std::size_t i = 0; i < x.size(); ++i) out[i < axis ? 0 : 1] = product(c, out[i < axis ? 0 : 1], x[i]);
  set(c, 0, dtype_of(c, 0), out);
  select_values(c, 0, *c.inputs[0], [](std::int64_t k) { return k; });
  return true;
}

namespace {

/// Axes as attribute (before opset 13) or as second input. Sets `absent` where the node names none; false where they
/// are not known.
bool axes_of(const InferContext& c, Dims& axes, bool& absent) {
  absent = false;
  if (c.find("axes") != nullptr) {
    axes = integers_attribute(c, "axes");
    return true;
  }
  if (input(c, 1) == nullptr) {
    absent = true;
    return true;
  }
  const Value* known = integers_of(c, 1);
  if (known != nullptr) axes = known->integers;
  return known != nullptr;
}

}  // namespace

bool infer_squeeze(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  Dims axes;
  bool absent = false;
  if (!ready(c, {0}) || !axes_of(c, axes, absent)) return false;
  const Dims x = shape_of(c, 0);
  bool dropped[kMaxRank] = {};
  for (std::size_t i = 0; i < x.size() && absent; ++i) dropped[i] = x[i] == 1;
  for (const std::int64_t axis : axes) {
    const std::size_t i = axis_of(c, axis, x.size());
    if (x[i] != 1) fail(c, "found an input of shape " + show(x) + ", needs 1 at axis " + std::to_string(i));
    dropped[i] = true;
  }
  Shape out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!dropped[i]) out.push(x[i]);
  }
  set(c, 0, dtype_of(c, 0), out);
  select_values(c, 0, *c.inputs[0], [](std::int64_t k) { return k; });
  return true;
}

bool infer_unsqueeze(InferContext& c, const Operator& op) {
  set_dtype(c, 0, dtype_of(c, 0));
  Dims axes;
  bool absent = false;
  if (!ready(c, {0}) || !axes_of(c, axes, absent)) return false;
  if (absent) fail(c, "found no axes, needs them as attribute or second input");
  const Dims x = shape_of(c, 0);
  const std::size_t rank = x.size() + axes.size();
  if (rank > kMaxRank) fail(c, "makes a tensor of " + std::to_string(rank) + " dimensions; at most 16 are allowed");
  bool added[kMaxRank] = {};
  for (const std::int64_t axis : axes) {
    const std::size_t i = axis_of(c, axis, rank);
    if (added[i]) fail(c, "found axis " + std::to_string(i) + " twice in " + show(axes) + ", needs distinct axes");
    added[i] = true;
  }
  Shape out;
  for (std::size_t i = 0, from = 0; i < rank; ++i) out.push(added[i] ? 1 : x[from++]);
  set(c, 0, dtype_of(c, 0), out);
  if (op.kind == OpKind::reshape) select_values(c, 0, *c.inputs[0], [](std::int64_t k) { return k; });
  return true;
}

bool infer_transpose(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  const Dims given = integers_attribute(c, "perm");
  if (!given.empty() && given.size() != x.size()) {
    fail(c, "found perm = " + show(given) + " for an input of shape " + show(x) + ", needs one entry per axis");
  }
  std::size_t perm[kMaxRank] = {};
  bool used[kMaxRank] = {};
  Shape out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    perm[i] = given.empty() ? x.size() - 1 - i : axis_of(c, given[i], x.size());
    if (used[perm[i]]) fail(c, "found perm = " + show(given) + ", needs every axis once");
    used[perm[i]] = true;
    out.push(x[perm[i]]);
  }
  set(c, 0, dtype_of(c, 0), out);
  const Strides from(x), to(out);
  select_values(c, 0, *c.inputs[0], [&](std::int64_t k) {
    std::int64_t position = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      position += k / to.of[i] * from.of[perm[i]];
      k %= to.of[i];
    }
    return position;
  });
  return true;
}

namespace {

std::int64_t block_of(const InferContext& c, Dims x) {
  const std::int64_t block = small(c, integer_attribute(c, "blocksize", 0), 1, "blocksize");
  if (x.size() != 4) fail(c, "found an input of shape " + show(x) + ", needs [batch, channels, height, width]");
  return block;
}

}  // namespace

bool infer_depth_to_space(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  const std::int64_t block = block_of(c, x);
  if (x[1] % (block * block) != 0) {
    fail(c, "found an input of shape " + show(x) + " and blocksize " + std::to_string(block) +
                ", needs channels divisible by its square");
  }
  set(c, 0, dtype_of(c, 0), Shape{x[0], x[1] / (block * block), product(c, x[2], block), product(c, x[3], block)});
  return true;
}

bool infer_space_to_depth(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  const std::int64_t block = block_of(c, x);
  if (x[2] % block != 0 || x[3] % block != 0) {
    fail(c, "found an input of shape " + show(x) + " and blocksize " + std::to_string(block) +
                ", needs a height and width divisible by it");
  }
  set(c, 0, dtype_of(c, 0), Shape{x[0], product(c, x[1], product(c, block, block)), x[2] / block, x[3] / block});
  return true;
}

bool infer_reorder(InferContext& c, const Operator& op) {
  // To the blocked layout and back. The padding of the channels is the machine's and not in the file; it is left out.
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Shape out(shape_of(c, 0));
  if (out.size() < 3) fail(c, "found an input of shape " + show(out) + ", needs [batch, channels, spatial]");
  const bool inverse = op.variant == Variant::inverse, last = integer_attribute(c, "channels_last", 0) != 0;
  std::int64_t channels = last && !inverse ? out[out.size() - 1] : out[1];
  if (inverse) channels = integer_attribute(c, "channels", channels);
  for (std::size_t d = 1; d + 1 < out.size() && last; ++d) {  // spatial axes move by one
    if (inverse) out[d] = out[d + 1];
    if (!inverse) out[out.size() - d] = out[out.size() - d - 1];
  }
  out[last && inverse ? out.size() - 1 : 1] = channels;
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

void lower_axis(InferContext& c, const Operator& op) {
  // Operators whose axis has a default: the first, but for the sorts, one-hot encodings and norms that take the last.
  const bool last = op.kind == OpKind::top_k || op.kind == OpKind::one_hot || op.kind == OpKind::l2_norm;
  const std::int64_t fallback = op.kind == OpKind::concat && c.opset < 4 ? 1 : last ? -1 : 0;
  std::int64_t axis = c.integer("axis", fallback);
  if (op.kind == OpKind::cumulative || (op.kind == OpKind::dft && c.opset >= 20)) {  // the axis is an input
    const Value* given = integers_of(c, op.kind == OpKind::dft ? 2 : 1);
    if (given == nullptr || given->integers.empty()) return;
    axis = given->integers[0];
  }
  const std::size_t data = op.variant == Variant::quantized ? 2 : 0;
  c.attributes.axis = soft_axis(axis, input(c, data), op.kind == OpKind::one_hot ? 1 : 0);
}

}  // namespace perfpass::onnx
