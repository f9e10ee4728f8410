// relax.call_tir: lowered functions as operators.
#include <algorithm>
#include <limits>

#include "walker.hpp"

namespace perfpass::relax {
namespace {

bool is_product(OpKind op) { return op == OpKind::conv || op == OpKind::matmul || op == OpKind::einsum; }

}  // namespace

std::pair<OpKind, NodeAttributes> kernel_attributes(OpKind op, std::span<const TensorId> inputs, const Records& records,
                                                    std::int64_t contraction) {
  NodeAttributes out;
  if (op == OpKind::attention) {
    const auto heads = [&](std::size_t i) {
      const auto shape = i < inputs.size() ? records.shape(inputs[i]) : std::span<const std::int64_t>();
      return shape.size() == 4 ? static_cast<std::int32_t>(std::min<std::int64_t>(shape[2], 1 << 20)) : 0;
    };
    out.num_heads = heads(0);
    out.num_kv_heads = heads(1);
    return {op, out};
  }
  if (!is_product(op)) {
    out.view = op == OpKind::reshape ? 1 : 0;
    return {op, out};
  }
  if (inputs.size() < 2) return {OpKind::unknown, out};
  const auto a = records.shape(inputs[0]), b = records.shape(inputs[1]);
  const std::size_t rank = a.size();
  if (op == OpKind::conv && rank == b.size() && rank > 2 && b[1] > 0 && a[1] % b[1] == 0) {
    std::int64_t weights = 1;
    for (const std::int64_t size : b) weights *= size;
    if (contraction * b[0] == weights) {
      out.spatial_rank = static_cast<std::int32_t>(std::min<std::size_t>(rank - 2, 3));
      out.groups = static_cast<std::int32_t>(a[1] / b[1]);
      for (std::int32_t i = 0; i < out.spatial_rank; ++i) out.kernel[i] = static_cast<std::int32_t>(b[2 + i]);
      return {OpKind::conv, out};
    }
  }
  const std::size_t columns = b.size();
  const bool in_b = (columns > 0 && b[columns - 1] == contraction) || (columns > 1 && b[columns - 2] == contraction);
  const bool transposed = columns > 1 && b[columns - 1] == contraction && b[columns - 2] != contraction;
  if (rank > 0 && a[rank - 1] == contraction && in_b) {
    out.transpose_b = transposed ? 1 : 0;
    return {OpKind::matmul, out};
  }
  if (rank > 1 && a[rank - 2] == contraction && in_b) {
    out.transpose_a = 1;
    out.transpose_b = transposed ? 1 : 0;
    return {OpKind::matmul, out};
  }
  if (inputs.size() > 2 || contraction > std::numeric_limits<std::int32_t>::max()) return {OpKind::unknown, out};
  out.contraction = static_cast<std::int32_t>(contraction);
  return {OpKind::einsum, out};
}

void Walker::lowered_function(Handle call, Handle target, std::int32_t frame) {
  const Handle args = tvm_.child(call, Field::call_args);
  const Handle called = tvm_.array_item(args, 0);
  if (tvm_.class_of(called) != Class::global_var) {
    throw Error(ErrorCode::unsupported,
                "relax.call_tir of a " + tvm_.type_key(called) + "; a function of the module is needed");
  }
  const auto it = module_.kernels.find(called);
  if (it == module_.kernels.end()) {
    throw Error(ErrorCode::graph, "relax.call_tir of a function that is no lowered function of the module");
  }
  const Kernel& kernel = it->second;
  std::vector<TensorId> arguments;
  if (!records_.flatten(value_of(tvm_.array_item(args, 1), frame), arguments)) {
    throw Error(ErrorCode::unsupported, "kernel " + kernel.name + " takes a function as argument");
  }
  outputs_.clear();
  const Value result = value_of_type(tvm_.child(call, Field::expr_type), frame, TensorRole::activation, kernel.name);
  records_.flatten(result, outputs_);
  frames_.emplace_back();  // of the symbolic sizes that the kernel names
  const auto sizes = static_cast<std::int32_t>(frames_.size() - 1);
  for (std::size_t i = 0; i < std::min(kernel.shapes.size(), arguments.size() + outputs_.size()); ++i) {
    const TensorId tensor = i < arguments.size() ? arguments[i] : outputs_[i - arguments.size()];
    match_sizes(kernel.shapes[i], tensor, sizes);
  }
  std::int64_t contraction = 1;
  for (const Handle extent : kernel.extents) {
    std::string unknown;
    const std::int64_t size = evaluate(extent, sizes, unknown);
    if (!unknown.empty()) {
      throw Error(ErrorCode::shape,
                  "kernel " + kernel.name + ": it loops over the symbolic size " + unknown + ", which has no value");
    }
    if (__builtin_mul_overflow(contraction, size, &contraction)) {
      throw Error(ErrorCode::limit, "kernel " + kernel.name + ": it reduces over more than 2^63 products");
    }
  }
  frames_.pop_back();
  inputs_.clear();
  for (const std::size_t i : kernel.order) {
    if (i < arguments.size()) inputs_.push_back(arguments[i]);
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (std::find(kernel.order.begin(), kernel.order.end(), i) == kernel.order.end()) inputs_.push_back(arguments[i]);
  }
  const auto [op, attributes] = kernel_attributes(kernel.op, inputs_, records_, contraction);
  ir::add_node(records_, op, source_id(kernel.name), attributes, inputs_, outputs_, frames_[frame].group);
  memo_.put(target, frame, result);
}

}  // namespace perfpass::relax
