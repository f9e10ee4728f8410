// What expressions stand for: the tensors of their types, tuples, variables and constants.
#include "walker.hpp"

namespace perfpass::relay {

namespace {

constexpr int kMaxTupleDepth = 16;

}  // namespace

TensorId Walker::add_tensor(Handle type, TensorRole role, std::int32_t name, const char* what,
                            const std::string& whose) {
  const Handle shape = tvm_.child(type, Field::tensor_shape);
  const std::int64_t rank = tvm_.array_size(shape);
  const auto first = records_.dims.size();
  for (std::int64_t i = 0; i < rank; ++i) {
    const Handle dim = tvm_.array_item(shape, i);
    if (tvm_.class_of(dim) != Class::int_imm) {
      throw Error(
          ErrorCode::shape,
          whose + ": " + what + " has a dynamic size (" + tvm_.type_key(dim) + ") at axis " + std::to_string(i) +
              "; give the module static shapes, for example from_onnx(model, shape={...}, freeze_params=True) or "
              "relay.transform.DynamicToStatic()");
    }
    records_.dims.push_back(tvm_.integer(dim, Field::int_value));
  }
  const std::span<const std::int64_t> dims{records_.dims.data() + first, static_cast<std::size_t>(rank)};
  try {
    checked_elements(dims);
  } catch (const Error& error) {
    throw Error(error.code(), whose + ": " + error.what());
  }
  const DType dtype = tvm_.dtype(type);
  if (dtype == DType::undefined) {
    throw Error(ErrorCode::unsupported,
                whose + ": " + what + " has dtype " + tvm_.attribute(type, "dtype").text +
                    ", whose size and speed are unknown; allowed are floats, integers of 4 to 64 bits, and bool");
  }
  if (role == TensorRole::weight && !ir::is_parameter(dtype, dims.size())) role = TensorRole::literal;
  records_.tensors.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(rank), dtype, role, name});
  return static_cast<TensorId>(records_.tensors.size() - 1);
}

Value Walker::tuple_of(std::span<const Value> fields) {
  const auto first = static_cast<std::int32_t>(records_.tuples.size());
  records_.tuples.insert(records_.tuples.end(), fields.begin(), fields.end());
  return {Value::Kind::tuple, first, static_cast<std::int32_t>(fields.size())};
}

/// Fresh tensors for a type: one, or a tuple of them.
Value Walker::value_of_type(Handle type, TensorRole role, const std::string& whose, int depth) {
  if (type == nullptr) {
    throw Error(ErrorCode::graph,
                whose + ": the expression has no checked type; run relay.transform.InferType() first");
  }
  const Class cls = tvm_.class_of(type);
  if (cls == Class::tensor_type) {
    return {Value::Kind::tensor,
            add_tensor(type, role, kNone, role == TensorRole::activation ? "its result" : "it", whose), 0};
  }
  if (cls != Class::tuple_type || depth > kMaxTupleDepth) {
    throw Error(ErrorCode::unsupported, whose + ": a value of type " + tvm_.type_key(type) +
                                            "; only tensors and tuples of tensors are counted");
  }
  const Handle fields = tvm_.child(type, Field::tuple_type_fields);
  const std::int64_t size = tvm_.array_size(fields);
  std::vector<Value> values;
  for (std::int64_t i = 0; i < size; ++i) {
    values.push_back(value_of_type(tvm_.array_item(fields, i), role, whose, depth + 1));
  }
  return tuple_of(values);
}

Value Walker::variable(Handle var, std::int32_t frame) {
  for (std::int32_t f = frame; f != kNone; f = frames_[f].lexical) {
    if (const Value* found = known(var, f)) return *found;
  }
  const std::string name = tvm_.text(tvm_.child(tvm_.child(var, Field::var_id), Field::id_name));
  throw Error(ErrorCode::graph, "variable '" + name + "' is bound by no function or let");
}

Value Walker::constant(Handle expression) {
  if (const auto it = constants_.find(expression); it != constants_.end()) return it->second;
  const Value value = value_of_type(tvm_.child(expression, Field::constant_type), TensorRole::weight, "a constant", 0);
  constants_.emplace(expression, value);
  return value;
}

}  // namespace perfpass::relay
