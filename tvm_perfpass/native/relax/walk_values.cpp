// What expressions stand for: the tensors of their types, tuples, variables and constants.
#include "walker.hpp"

namespace perfpass::relax {

TensorId Walker::add_tensor(Handle type, std::int32_t frame, TensorRole role, const std::string& whose) {
  const char* what = role == TensorRole::activation ? "its result" : "it";
  const Handle shape = tvm_.child(type, Field::tensor_shape);
  if (tvm_.class_of(shape) != Class::shape_expr) {
    throw Error(ErrorCode::shape, whose + ": " + what + " has a shape that depends on data (rank " +
                                      std::to_string(tvm_.integer(type, Field::tensor_rank)) +
                                      "), so its cost cannot be counted; predict for the parts of the model before and "
                                      "after it");
  }
  const Handle sizes = tvm_.child(shape, Field::shape_values);
  const std::int64_t rank = tvm_.array_size(sizes);
  const auto first = records_.dims.size();
  for (std::int64_t i = 0; i < rank; ++i) {
    const Handle size = tvm_.array_item(sizes, i);
    if (tvm_.class_of(size) == Class::int_imm) {
      records_.dims.push_back(tvm_.integer(size, Field::int_value));
      continue;
    }
    std::string unknown;
    records_.dims.push_back(evaluate(size, frame, unknown));
    if (!unknown.empty()) {
      throw Error(ErrorCode::shape, whose + ": " + what + " has the symbolic size " + unknown + " at axis " +
                                        std::to_string(i) + ", which has no value");
    }
  }
  const std::span<const std::int64_t> dims{records_.dims.data() + first, static_cast<std::size_t>(rank)};
  try {
    checked_elements(dims);
  } catch (const Error& error) {
    throw Error(error.code(), whose + ": " + error.what());
  }
  const DType dtype = tvm_.dtype(type);
  if (dtype == DType::undefined) {
    throw Error(ErrorCode::unsupported, whose + ": " + what + " has dtype " + tvm_.dtype_name(type) +
                                            ", whose size and speed are unknown; allowed are floats, integers of 4 to "
                                            "64 bits, and bool");
  }
  if (role == TensorRole::weight && !ir::is_parameter(dtype, dims.size())) role = TensorRole::literal;
  records_.tensors.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(rank), dtype, role, kNone});
  return static_cast<TensorId>(records_.tensors.size() - 1);
}

Value Walker::tuple_of(std::span<const Value> fields) {
  const auto first = static_cast<std::int32_t>(records_.tuples.size());
  records_.tuples.insert(records_.tuples.end(), fields.begin(), fields.end());
  return {Value::Kind::tuple, first, static_cast<std::int32_t>(fields.size())};
}

/// Fresh tensors for a type: one, a tuple of them, or the empty tuple for what is no tensor.
Value Walker::value_of_type(Handle type, std::int32_t frame, TensorRole role, const std::string& whose, int depth) {
  if (type == nullptr) {
    throw Error(ErrorCode::graph, whose + ": the expression has no type; run relax.transform.Normalize() first");
  }
  const Class cls = tvm_.class_of(type);
  if (cls == Class::tensor_type) return {Value::Kind::tensor, add_tensor(type, frame, role, whose), 0};
  if (cls != Class::tuple_type) return none();
  if (depth > kMaxNesting) {
    throw Error(ErrorCode::limit, "tuples are nested more than " + std::to_string(kMaxNesting) + " deep");
  }
  const Handle fields = tvm_.child(type, Field::tuple_type_fields);
  const std::int64_t size = tvm_.array_size(fields);
  std::vector<Value> values;
  for (std::int64_t i = 0; i < size; ++i) {
    values.push_back(value_of_type(tvm_.array_item(fields, i), frame, role, whose, depth + 1));
  }
  return tuple_of(values);
}

Value Walker::variable(Handle var, std::int32_t frame) {
  for (std::int32_t f = frame; f != kNone; f = frames_[f].lexical) {
    if (const Value* found = memo_.find(var, f)) return *found;
  }
  if (tvm_.class_of(tvm_.child(var, Field::expr_type)) == Class::prim_type) return none();  // a symbolic size
  throw Error(ErrorCode::graph, "variable '" + name_of(var) + "' is bound by nothing");
}

Value Walker::constant(Handle expression, std::int32_t frame) {
  if (const auto it = constants_.find(expression); it != constants_.end()) return it->second;
  const std::size_t first = records_.tensors.size();
  const Value value = value_of_type(tvm_.child(expression, Field::expr_type), frame, TensorRole::weight, "a constant");
  for (std::size_t t = first; t < records_.tensors.size(); ++t) records_.tensors[t].constant = true;
  constants_.emplace(expression, value);
  return value;
}

Value Walker::function_value(Handle function, std::int32_t frame) {
  closures_.push_back({function, frame});
  return {Value::Kind::function, static_cast<std::int32_t>(closures_.size() - 1), 0};
}

Handle Walker::global_function(Handle var) const {
  const auto it = module_.functions.find(var);
  if (it == module_.functions.end()) {
    throw Error(ErrorCode::graph, "a call of a global function that the module does not have");
  }
  return it->second;
}

/// What a leaf, a tuple of leaves or a field of a tuple stands for; the empty tuple for what is no tensor.
Value Walker::value_of(Handle expression, std::int32_t frame, int depth) {
  switch (tvm_.class_of(expression)) {
    case Class::var:
    case Class::dataflow_var:
      return variable(expression, frame);
    case Class::constant:
      return constant(expression, frame);
    case Class::function:
      return function_value(expression, frame);
    case Class::global_var:
      return function_value(global_function(expression), kNone);
    case Class::extern_func:
      return function_value(expression, kNone);
    case Class::tuple:
    case Class::get_item:
      break;
    case Class::call:
    case Class::if_:
    case Class::seq:
      throw Error(ErrorCode::unsupported,
                  "a " + tvm_.type_key(expression) +
                      " inside of an expression; bind it to a variable first: relax.transform.Normalize()");
    default:
      return none();  // shapes, numbers, text
  }
  if (depth > kMaxNesting) {
    throw Error(ErrorCode::limit, "tuples are nested more than " + std::to_string(kMaxNesting) + " deep");
  }
  if (tvm_.class_of(expression) == Class::tuple) {
    const Handle fields = tvm_.child(expression, Field::tuple_fields);
    const std::int64_t size = tvm_.array_size(fields);
    std::vector<Value> parts;
    parts.reserve(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i) parts.push_back(value_of(tvm_.array_item(fields, i), frame, depth + 1));
    return tuple_of(parts);
  }
  const Value whole = value_of(tvm_.child(expression, Field::get_item_tuple), frame, depth + 1);
  const std::int64_t index = tvm_.integer(expression, Field::get_item_index);
  if (whole.kind != Value::Kind::tuple || index < 0 || index >= whole.b) {
    throw Error(ErrorCode::graph, "field " + std::to_string(index) + " is taken of a value that does not have it");
  }
  return records_.tuples[whole.a + index];
}

}  // namespace perfpass::relax
