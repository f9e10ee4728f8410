// Symbolic sizes: what they are in this run of a function.
#include <algorithm>

#include "walker.hpp"

namespace perfpass::relax {

const std::int64_t* Walker::size_of(Handle var, std::int32_t frame) const {
  for (std::int32_t f = frame; f != kNone; f = frames_[f].lexical) {
    for (const auto& [known, size] : frames_[f].sizes) {
      if (known == var) return &size;
    }
  }
  return nullptr;
}

/// The value of a size; a name in `unknown` where it depends on a variable without one.
std::int64_t Walker::evaluate(Handle size, std::int32_t frame, std::string& unknown, int depth) const {
  const Class cls = tvm_.class_of(size);
  if (cls == Class::int_imm) return tvm_.integer(size, Field::int_value);
  if (cls == Class::var || cls == Class::dataflow_var) {
    if (const std::int64_t* found = size_of(size, frame)) return *found;
    if (unknown.empty()) unknown = name_of(size);
    return 0;
  }
  if (depth > kMaxNesting) {
    throw Error(ErrorCode::limit,
                "the arithmetic of a size is nested more than " + std::to_string(kMaxNesting) + " deep");
  }
  if (cls == Class::cast) return evaluate(tvm_.child(size, Field::cast_value), frame, unknown, depth + 1);
  if (cls < Class::add || cls > Class::max) {
    if (unknown.empty()) unknown = tvm_.type_key(size);
    return 0;
  }
  const std::int64_t a = evaluate(tvm_.child(size, Field::left), frame, unknown, depth + 1);
  const std::int64_t b = evaluate(tvm_.child(size, Field::right), frame, unknown, depth + 1);
  if (!unknown.empty()) return 0;
  const bool divides = cls == Class::floor_div || cls == Class::floor_mod || cls == Class::div || cls == Class::mod;
  if (divides && b == 0) throw Error(ErrorCode::shape, "a symbolic size divides by 0");
  std::int64_t out = 0;
  bool overflow = false;
  const std::int64_t whole = divides && b != -1 ? a / b : 0, rest = divides && b != -1 ? a % b : 0;
  switch (cls) {
    case Class::add:
      overflow = __builtin_add_overflow(a, b, &out);
      break;
    case Class::sub:
      overflow = __builtin_sub_overflow(a, b, &out);
      break;
    case Class::mul:
      overflow = __builtin_mul_overflow(a, b, &out);
      break;
    case Class::floor_div:
    case Class::div:
      if (b == -1) {
        overflow = __builtin_sub_overflow(std::int64_t{0}, a, &out);
      } else {
        out = whole - (cls == Class::floor_div && rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
      }
      break;
    case Class::floor_mod:
      out = rest + (rest != 0 && (rest < 0) != (b < 0) ? b : 0);
      break;
    case Class::mod:
      out = rest;
      break;
    case Class::min:
      out = std::min(a, b);
      break;
    default:
      out = std::max(a, b);
      break;
  }
  if (overflow) throw Error(ErrorCode::limit, "a symbolic size is over 2^63");
  return out;
}

/// Binds the symbolic sizes that a type names to those of the value.
void Walker::match(Handle type, Value value, std::int32_t frame) {
  const Class cls = tvm_.class_of(type);
  if (cls == Class::tuple_type && value.kind == Value::Kind::tuple) {
    const Handle fields = tvm_.child(type, Field::tuple_type_fields);
    const std::int64_t count = std::min<std::int64_t>(tvm_.array_size(fields), value.b);
    for (std::int64_t i = 0; i < count; ++i) match(tvm_.array_item(fields, i), records_.tuples[value.a + i], frame);
  } else if (cls == Class::tensor_type && value.kind == Value::Kind::tensor) {
    const Handle shape = tvm_.child(type, Field::tensor_shape);
    if (tvm_.class_of(shape) == Class::shape_expr) match_sizes(tvm_.child(shape, Field::shape_values), value.a, frame);
  }
}

void Walker::match_sizes(Handle names, TensorId tensor, std::int32_t frame) {
  const std::int64_t count = tvm_.array_size(names);
  if (count != records_.tensors[tensor].rank) return;
  for (std::int64_t i = 0; i < count; ++i) {
    const Handle name = tvm_.array_item(names, i);
    const Class cls = tvm_.class_of(name);
    if (cls != Class::var && cls != Class::dataflow_var) continue;
    const std::int64_t size = records_.shape(tensor)[i];
    const std::int64_t* known = size_of(name, frame);
    if (known == nullptr) {
      frames_[frame].sizes.emplace_back(name, size);
    } else if (*known != size) {
      throw Error(ErrorCode::shape, "symbolic size " + name_of(name) + " is " + std::to_string(*known) + " and " +
                                        std::to_string(size) + " at once");
    }
  }
}

}  // namespace perfpass::relax
