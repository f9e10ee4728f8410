// Which operators are read by others, and those that are written as they stand.
#include <unordered_set>

#include "stablehlo/lowerer.hpp"

namespace perfpass::stablehlo {

OpGraph Lowerer::run() {
  find_live();
  b_.reserve(g_.ops.size(), g_.values.size());
  for (const MainArgument& argument : g_.arguments) {
    if (!argument.is_weight) inputs_.push_back(tensor_of(argument.value));
  }
  for (std::size_t n = 0; n < g_.ops.size(); ++n) {
    if (live_[n]) emit(g_.ops[n]);
  }
  std::vector<TensorId> outputs;
  std::unordered_set<TensorId> seen;
  for (const Value v : g_.outputs) {
    const TensorId t = tensor_of(v);
    if (seen.insert(t).second) outputs.push_back(t);
  }
  b_.add_notes(g_.notes);
  return std::move(b_).finish(inputs_, outputs);
}

Value Lowerer::plain(Value v) const {
  for (int hop = 0; hop < kMostHops; ++hop) {
    const FlatOp* op = g_.maker(v);
    if (op == nullptr || op->code != Code::domain) return v;
    v = g_.in(*op)[0];
  }
  return v;
}

Value Lowerer::before_broadcast(Value v) const {
  Value small_one = plain(v);
  for (int hop = 0; hop < kMostHops; ++hop) {
    const FlatOp* op = g_.maker(small_one);
    if (op == nullptr) return small_one;
    const bool widens =
        op->code == Code::broadcast_in_dim || op->code == Code::dynamic_broadcast_in_dim || op->code == Code::broadcast;
    const Value before = op->in_count > 0 ? plain(g_.in(*op)[0]) : small_one;
    const bool reshapes = (op->code == Code::reshape || op->code == Code::dynamic_reshape) &&
                          without_ones(g_.type(before).dims) == without_ones(g_.type(small_one).dims);
    if (!widens && !reshapes) return small_one;
    small_one = before;
  }
  return small_one;
}

Dims Lowerer::without_ones(const Dims& dims) {
  Dims rest;
  std::copy_if(dims.begin(), dims.end(), std::back_inserter(rest), [](std::int64_t d) { return d != 1; });
  return rest;
}

std::size_t Lowerer::operands_read(const FlatOp& op) const {
  switch (op.code) {
    case Code::reduce:
    case Code::reduce_window:
      return op.in_count / 2;
    case Code::slice:
    case Code::dynamic_slice:
    case Code::real_dynamic_slice:
    case Code::dynamic_reshape:
    case Code::dynamic_broadcast_in_dim:
    case Code::pad:
    case Code::dynamic_pad:
      return std::min<std::size_t>(1, op.in_count);
    case Code::dynamic_iota:
    case Code::rng:
      return 0;
    case Code::dynamic_update_slice:
    case Code::dynamic_gather:
      return std::min<std::size_t>(2, op.in_count);
    default:
      return op.in_count;
  }
}

void Lowerer::find_live() {
  std::vector<bool> needed(g_.values.size(), false);
  for (const Value v : g_.outputs) {
    needed[plain(v)] = true;
    uses_[plain(v)] += 2;
  }
  for (std::size_t n = g_.ops.size(); n-- > 0;) {
    const FlatOp& op = g_.ops[n];
    bool alive = op.repeat == 0.0 || op.code == Code::custom_call || op.code == Code::other;
    for (std::uint32_t i = 0; i < op.out_count; ++i) alive = alive || needed[op.out_begin + i];
    if (op.code == Code::domain || !alive) continue;
    live_[n] = true;
    for (std::size_t i = 0; i < operands_read(op); ++i) {
      const Value v = read(op, i);
      needed[v] = true;
      ++uses_[v];
    }
  }
}

bool Lowerer::is_weight(Value v) const {
  const FlatValue& value = g_.values[v];
  if (value.argument != kNobody) return g_.arguments[static_cast<std::size_t>(value.argument)].is_weight;
  if (value.constant == nullptr || value.known != kNobody) return false;
  const Type& type = g_.type(v);
  const bool counts = is_floating(type.dtype)
                          ? !type.dims.empty()
                          : bits_of(type.dtype) <= 8 && type.dtype != DType::boolean && type.dims.size() >= 2;
  return counts && !value.is_number;
}

TensorId Lowerer::tensor_of(Value v) {
  v = plain(v);
  if (tensor_[v] != kNone) return tensor_[v];
  const FlatValue& value = g_.values[v];
  const Type& type = g_.type(v);
  if (value.argument != kNobody) {
    const MainArgument& argument = g_.arguments[static_cast<std::size_t>(value.argument)];
    const Value whole = argument.value;
    if (tensor_[whole] == kNone) {
      tensor_[whole] = b_.add_tensor(argument.name, type.dtype, type.dims,
                                     argument.is_weight ? TensorRole::weight : TensorRole::input);
    }
    return tensor_[v] = tensor_[whole];
  }
  if (value.is_constant) {
    const bool weight = is_weight(v);
    // A number for every element is one number.
    const bool splat = !weight && value.constant != nullptr && is_floating(type.dtype);
    return tensor_[v] = b_.add_tensor({}, type.dtype, splat ? Dims{} : type.dims,
                                      weight ? TensorRole::weight : TensorRole::literal);
  }
  // An activation whose maker is not lowered can only be read in a damaged module.
  if (value.maker == kNobody || !live_[static_cast<std::size_t>(value.maker)]) {
    throw Error(ErrorCode::graph, "the module reads a value that no operator makes");
  }
  return tensor_[v] = b_.add_tensor({}, type.dtype, type.dims, TensorRole::activation);
}

void Lowerer::view(const FlatOp& op, OpKind kind, TensorId in, TensorId out) {
  NodeAttributes attributes;
  attributes.view = 1;
  node(op, kind, attributes, std::array{in}, std::array{out});
}

std::vector<TensorId> Lowerer::results(const FlatOp& op) {
  std::vector<TensorId> out;
  for (std::uint32_t i = 0; i < op.out_count; ++i) out.push_back(tensor_of(op.out_begin + i));
  return out;
}

std::vector<TensorId> Lowerer::reads(const FlatOp& op) {
  std::vector<TensorId> in;
  for (std::size_t i = 0; i < operands_read(op); ++i) in.push_back(tensor_of(read(op, i)));
  return in;
}

void Lowerer::emit(const FlatOp& op) {
  switch (op.code) {
    case Code::dot:
    case Code::dot_general:
      if (op.in_count < 2 || op.out_count != 1) break;
      return emit_product(op);
    case Code::convolution:
      if (op.in_count < 2 || op.out_count != 1) break;
      return emit_convolution(op);
    case Code::reduce:
      return emit_reduction(op);
    case Code::mean_:
      return emit_mean(op);
    case Code::reduce_window:
    case Code::average_pool_:
      return emit_window(op);
    case Code::transpose:
      if (op.in_count != 1 || op.out_count != 1) break;
      return emit_transpose(op);
    case Code::gather:
    case Code::dynamic_gather:
      if (op.in_count < 2) break;
      return emit_gather(op);
    case Code::custom_call:
      return emit_custom_call(op);
    case Code::einsum:
    case Code::ragged_dot:
      return emit_einsum(op);
    default:
      break;
  }
  const Meaning meaning = meaning_of(op.code);
  OpKind kind = meaning.kind;
  const std::vector<TensorId> out = results(op);
  const DType type = op.out_count > 0 ? g_.type(op.out_begin).dtype : DType::undefined;
  if (kind == OpKind::logical && type != DType::boolean) kind = OpKind::bitwise;
  if (kind == OpKind::cast && op.in_count == 1 && g_.type(g_.in(op)[0]).dtype == type) kind = OpKind::identity;
  const bool arithmetic = kind == OpKind::add || kind == OpKind::sub || kind == OpKind::mul || kind == OpKind::div;
  if (arithmetic && op.out_count > 0 && g_.type(op.out_begin).quantized) kind = OpKind::quantized_elementwise;
  NodeAttributes attributes;
  attributes.axis = axis_of(op);
  if (kind == OpKind::reshape || kind == OpKind::expand || op.code == Code::real || op.code == Code::imag)
    attributes.view = 1;
  if (op.code == Code::dynamic_update_slice) attributes.in_place = 1;
  if (op.code == Code::group_norm_) attributes.groups = op.groups;
  if (op.code == Code::batch_norm_) attributes.channels_last = 1;
  if (op.code == Code::resize_) attributes.spatial_rank = 2;
  node(op, kind, attributes, reads(op), out, source_of(op));
}

std::string_view Lowerer::source_of(const FlatOp& op) {
  switch (op.code) {
    case Code::softmax_:
      return "softmax";
    case Code::log_softmax_:
      return "log_softmax";
    case Code::layer_norm_:
      return "layer_norm";
    case Code::rms_norm_:
      return "rms_norm";
    case Code::group_norm_:
      return "group_norm";
    case Code::batch_norm_:
      return "batch_norm";
    case Code::gelu_:
      return "gelu";
    case Code::silu_:
      return "silu";
    case Code::relu_:
      return "relu";
    case Code::leaky_relu_:
      return "leaky_relu";
    case Code::sigmoid_:
      return "sigmoid";
    case Code::hard_swish_:
      return "hard_swish";
    case Code::hard_sigmoid_:
      return "hard_sigmoid";
    case Code::softplus_:
      return "softplus";
    case Code::elu_:
      return "elu";
    case Code::resize_:
      return "resize";
    default:
      return op.at->name;
  }
}

std::int32_t Lowerer::axis_of(const FlatOp& op) const {
  switch (op.code) {
    case Code::softmax_:
    case Code::log_softmax_:
    case Code::layer_norm_:
    case Code::rms_norm_:
      return op.axis;
    case Code::concatenate:
    case Code::sort: {
      const auto axis = integer(*op.at, "dim", "dimension");
      return axis ? small(*axis) : kNoAxis;
    }
    case Code::top_k:
    case Code::fft:
      return op.in_count > 0 ? static_cast<std::int32_t>(g_.type(g_.in(op)[0]).dims.size()) - 1 : kNoAxis;
    default:
      return kNoAxis;
  }
}

OpGraph lower(const FlatGraph& graph) { return Lowerer(graph).run(); }

}  // namespace perfpass::stablehlo
