// The flat module in the canonical vocabulary. Broadcasts that an elementwise operator reads are left out, as every
// runtime reads the small tensor; products get the shapes [.., M, K] x [.., K, N] through views.
#include <algorithm>
#include <array>
#include <numeric>

#include "perfpass/error.hpp"
#include "stablehlo/flat.hpp"
#include "stablehlo/operator_table.hpp"
#include "support/text.hpp"

namespace perfpass::stablehlo {
namespace {

using Dims = std::vector<std::int64_t>;

constexpr int kMostHops = 64;

std::int32_t small(std::int64_t value) {
  if (value > std::numeric_limits<std::int32_t>::max() || value < std::numeric_limits<std::int32_t>::min()) {
    throw Error(ErrorCode::limit,
                "an attribute of the module is " + std::to_string(value) + "; it must fit in 32 bits");
  }
  return static_cast<std::int32_t>(value);
}

std::int64_t at(const Integers& list, std::size_t i, std::int64_t otherwise) {
  return i < list.size() ? list[i] : otherwise;
}

std::int64_t product(const Dims& dims, const Integers& of) {
  std::int64_t result = 1;
  for (const std::int64_t d : of) {
    if (__builtin_mul_overflow(result, dims[static_cast<std::size_t>(d)], &result)) return kMaxElements + 1;
  }
  return result;
}

Dims pick(const Dims& dims, const Integers& of) {
  Dims result;
  for (const std::int64_t d : of) result.push_back(dims[static_cast<std::size_t>(d)]);
  return result;
}

Integers joined(std::initializer_list<const Integers*> parts) {
  Integers all;
  for (const Integers* part : parts) all.insert(all.end(), part->begin(), part->end());
  return all;
}

bool in_order(const Integers& order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

class Lowerer {
 public:
  explicit Lowerer(const FlatGraph& graph)
      : g_(graph), tensor_(graph.values.size(), kNone), uses_(graph.values.size(), 0), live_(graph.ops.size(), false) {}

  OpGraph run() {
    find_live();
    b_.reserve(g_.ops.size(), g_.values.size());
    for (const MainArgument& argument : g_.arguments) {
      if (!argument.is_weight) inputs_.push_back(tensor_of(argument.value));
    }
    for (std::size_t n = 0; n < g_.ops.size(); ++n) {
      if (live_[n]) emit(g_.ops[n]);
    }
    std::vector<TensorId> outputs;
    for (const Value v : g_.outputs) {
      const TensorId t = tensor_of(v);
      if (std::find(outputs.begin(), outputs.end(), t) == outputs.end()) outputs.push_back(t);
    }
    for (const std::string& note : g_.notes) b_.add_note(note);
    return std::move(b_).finish(inputs_, outputs);
  }

 private:
  // -- what is read ---------------------------------------------------------------------------------------------------

  /// Behind operators that are another value's name.
  Value plain(Value v) const {
    for (int hop = 0; hop < kMostHops; ++hop) {
      const FlatOp* op = g_.maker(v);
      if (op == nullptr || op->code != Code::domain) return v;
      v = g_.in(*op)[0];
    }
    return v;
  }
  /// Behind broadcasts too, and reshapes that only add dimensions of 1 to what is broadcast.
  Value before_broadcast(Value v) const {
    Value small_one = plain(v);
    for (int hop = 0; hop < kMostHops; ++hop) {
      const FlatOp* op = g_.maker(small_one);
      if (op == nullptr) return small_one;
      const bool widens = op->code == Code::broadcast_in_dim || op->code == Code::dynamic_broadcast_in_dim ||
                          op->code == Code::broadcast;
      const Value before = op->in_count > 0 ? plain(g_.in(*op)[0]) : small_one;
      const bool reshapes = (op->code == Code::reshape || op->code == Code::dynamic_reshape) &&
                            without_ones(g_.type(before).dims) == without_ones(g_.type(small_one).dims);
      if (!widens && !reshapes) return small_one;
      small_one = before;
    }
    return small_one;
  }
  static Dims without_ones(const Dims& dims) {
    Dims rest;
    std::copy_if(dims.begin(), dims.end(), std::back_inserter(rest), [](std::int64_t d) { return d != 1; });
    return rest;
  }
  Value read(const FlatOp& op, std::size_t i) const {
    const Value v = g_.in(op)[i];
    return meaning_of(op.code).elementwise ? before_broadcast(v) : plain(v);
  }
  /// How many operands count: initial values of reductions and indices that only say where a slice is do not.
  std::size_t operands_read(const FlatOp& op) const {
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

  void find_live() {
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

  bool is_weight(Value v) const {
    const FlatValue& value = g_.values[v];
    if (value.argument != kNobody) return g_.arguments[static_cast<std::size_t>(value.argument)].is_weight;
    if (value.constant == nullptr || value.known != kNobody) return false;
    const Type& type = g_.type(v);
    const bool counts = is_floating(type.dtype)
                            ? !type.dims.empty()
                            : bits_of(type.dtype) <= 8 && type.dtype != DType::boolean && type.dims.size() >= 2;
    return counts && !constant_number(*value.constant, type.dtype);
  }

  TensorId tensor_of(Value v) {
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

  // -- what is written ------------------------------------------------------------------------------------------------

  TensorId activation(DType dtype, const Dims& dims) { return b_.add_tensor({}, dtype, dims, TensorRole::activation); }

  std::string_view name_of(const FlatOp& op) const { return g_.module.location_name(op.at->location); }

  void node(const FlatOp& op, OpKind kind, const NodeAttributes& attributes, std::span<const TensorId> in,
            std::span<const TensorId> out, std::string_view source = {}) {
    b_.add_node(kind, source.empty() ? op.at->name : source, name_of(op), attributes, in, out, op.repeat);
  }
  void view(const FlatOp& op, OpKind kind, TensorId in, TensorId out) {
    NodeAttributes attributes;
    attributes.view = 1;
    node(op, kind, attributes, std::array{in}, std::array{out});
  }
  std::vector<TensorId> results(const FlatOp& op) {
    std::vector<TensorId> out;
    for (std::uint32_t i = 0; i < op.out_count; ++i) out.push_back(tensor_of(op.out_begin + i));
    return out;
  }
  std::vector<TensorId> reads(const FlatOp& op) {
    std::vector<TensorId> in;
    for (std::size_t i = 0; i < operands_read(op); ++i) in.push_back(tensor_of(read(op, i)));
    return in;
  }

  void emit(const FlatOp& op) {
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
    node(op, kind, attributes, reads(op), out, source_of(op));
  }

  /// Groups are called by what they are.
  static std::string_view source_of(const FlatOp& op) {
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
      case Code::softplus_:
        return "softplus";
      case Code::elu_:
        return "elu";
      default:
        return op.at->name;
    }
  }

  std::int32_t axis_of(const FlatOp& op) const {
    switch (op.code) {
      case Code::softmax_:
      case Code::log_softmax_:
      case Code::layer_norm_:
      case Code::rms_norm_:
        return op.axis;
      case Code::concatenate:
      case Code::sort: {
        const auto axis = integer(*op.at, "dim") ? integer(*op.at, "dim") : integer(*op.at, "dimension");
        return axis ? small(*axis) : kNoAxis;
      }
      case Code::top_k:
      case Code::fft:
        return op.in_count > 0 ? static_cast<std::int32_t>(g_.type(g_.in(op)[0]).dims.size()) - 1 : kNoAxis;
      default:
        return kNoAxis;
    }
  }

  // -- products -------------------------------------------------------------------------------------------------------

  /// One operand of a product while it gets its canonical shape.
  struct Side {
    Value value = 0;
    Dims dims;
    Integers batch, free, contracted;
    bool weight = false;
  };

  Side side(const FlatOp& op, const DotSides& sides, int i) const {
    Side s{
        plain(g_.in(op)[static_cast<std::size_t>(i)]), {}, sides.batch[i], sides.free[i], sides.contracted[i], false};
    // A transposed weight is the weight, read in another order.
    if (const FlatOp* maker = g_.maker(s.value);
        maker != nullptr && maker->code == Code::transpose && maker->in_count == 1) {
      const Value before = plain(g_.in(*maker)[0]);
      const Integers order = integers(*maker->at, "dims", "permutation");
      if (is_weight(before) && order.size() == g_.type(before).dims.size()) {
        for (Integers* list : {&s.batch, &s.free, &s.contracted}) {
          for (std::int64_t& d : *list) {
            d = order[static_cast<std::size_t>(d)];
            if (d < 0 || d >= static_cast<std::int64_t>(order.size())) d = 0;
          }
        }
        s.value = before;
      }
    }
    s.dims = g_.type(s.value).dims;
    s.weight = is_weight(s.value);
    return s;
  }

  /// A tensor in another order of its dimensions, or the tensor itself.
  TensorId ordered(const FlatOp& op, TensorId t, const Dims& dims, const Integers& order, DType dtype) {
    if (in_order(order)) return t;
    const TensorId turned = activation(dtype, pick(dims, order));
    view(op, OpKind::transpose, t, turned);
    return turned;
  }
  TensorId reshaped(const FlatOp& op, TensorId t, const Dims& from, const Dims& to, DType dtype) {
    if (from == to) return t;
    const TensorId other = activation(dtype, to);
    view(op, OpKind::reshape, t, other);
    return other;
  }

  /// [.., rows, columns] of an operand; `turned` where its memory has [.., columns, rows].
  TensorId matrix(const FlatOp& op, const Side& s, const Integers& rows, const Integers& columns, bool& turned) {
    const DType dtype = g_.type(s.value).dtype;
    const Integers straight = joined({&s.batch, &rows, &columns}), other = joined({&s.batch, &columns, &rows});
    turned = !in_order(straight) && in_order(other);
    const Integers& order = turned ? other : straight;
    TensorId t = ordered(op, tensor_of(s.value), s.dims, order, dtype);
    Dims wanted = pick(s.dims, s.batch);
    wanted.push_back(product(s.dims, turned ? columns : rows));
    wanted.push_back(product(s.dims, turned ? rows : columns));
    return reshaped(op, t, pick(s.dims, order), wanted, dtype);
  }

  void emit_product(const FlatOp& op) {
    const DotSides sides = dot_sides(g_, *op.at, g_.in(op));
    Side left = side(op, sides, 0), right = side(op, sides, 1);
    const FlatOp* maker = g_.maker(right.value);
    while (maker != nullptr && maker->code == Code::convert) maker = g_.maker(plain(g_.in(*maker)[0]));
    const bool probabilities = maker != nullptr && maker->code == Code::softmax_;
    const bool swapped = op.in_count == 2 && !right.weight && (left.weight || probabilities);
    if (swapped) std::swap(left, right);
    const Type& type = g_.type(op.out_begin);
    const bool quantized = g_.type(left.value).quantized || g_.type(right.value).quantized;
    NodeAttributes attributes;
    std::vector<TensorId> in;
    Dims dims = pick(left.dims, left.batch);
    bool turned = false;
    const Integers contracted_last = joined({&left.batch, &left.free, &left.contracted});
    const bool as_is =
        left.batch.empty() && left.contracted.size() == 1 && in_order(contracted_last) && !left.free.empty();
    if (as_is && right.batch.empty()) {  // [.., K] by a matrix, whatever stands before K
      in.push_back(tensor_of(left.value));
      for (const std::int64_t d : left.free) dims.push_back(left.dims[static_cast<std::size_t>(d)]);
    } else {
      in.push_back(matrix(op, left, left.free, left.contracted, turned));
      attributes.transpose_a = turned;
      dims.push_back(product(left.dims, left.free));
    }
    in.push_back(right.weight ? weight_matrix(op, right, turned)
                              : matrix(op, right, right.contracted, right.free, turned));
    attributes.transpose_b = turned;
    dims.push_back(product(right.dims, right.free));
    if (op.in_count > 2) in.push_back(tensor_of(plain(g_.in(op)[2])));
    const OpKind kind = quantized                             ? OpKind::quantized_matmul
                        : right.weight && right.batch.empty() ? OpKind::dense
                                                              : OpKind::matmul;
    Dims whole = pick(left.dims, left.batch);
    for (const std::int64_t d : left.free) whole.push_back(left.dims[static_cast<std::size_t>(d)]);
    for (const std::int64_t d : right.free) whole.push_back(right.dims[static_cast<std::size_t>(d)]);
    // Sides that changed places: [batch, right, left] is turned back.
    Integers order(whole.size());
    std::iota(order.begin(), order.end(), 0);
    if (swapped) {
      const auto begin = order.begin() + static_cast<std::ptrdiff_t>(left.batch.size());
      std::rotate(begin, begin + static_cast<std::ptrdiff_t>(left.free.size()), order.end());
    }
    const bool is_last = dims == whole && in_order(order);
    const TensorId out = is_last ? tensor_of(op.out_begin) : activation(type.dtype, dims);
    node(op, kind, attributes, in, std::array{out});
    if (is_last) return;
    TensorId t = out;
    if (dims != whole) {
      const bool ends = in_order(order);
      const TensorId next = ends ? tensor_of(op.out_begin) : activation(type.dtype, whole);
      view(op, OpKind::reshape, t, next);
      if (ends) return;
      t = next;
    }
    if (uses_[op.out_begin] == 1) {
      turned_[op.out_begin] = {t, order};  // the transpose that reads it does both
      return;
    }
    view(op, OpKind::transpose, t, tensor_of(op.out_begin));
  }

  /// A weight as [K, N], or [N, K] where `turned`; a weight of more dimensions is declared by its matrix.
  TensorId weight_matrix(const FlatOp& op, const Side& s, bool& turned) {
    const Integers straight = joined({&s.batch, &s.contracted, &s.free}),
                   other = joined({&s.batch, &s.free, &s.contracted});
    const bool plain_order = in_order(straight);
    if (tensor_[s.value] == kNone && s.batch.empty() && (plain_order || in_order(other)) && s.dims.size() > 2) {
      turned = !plain_order;
      const std::int64_t k = product(s.dims, s.contracted), n = product(s.dims, s.free);
      const FlatValue& value = g_.values[s.value];
      const std::string_view name = value.argument == kNobody
                                        ? std::string_view()
                                        : std::string_view(g_.arguments[static_cast<std::size_t>(value.argument)].name);
      const TensorId t =
          b_.add_tensor(name, g_.type(s.value).dtype, turned ? Dims{n, k} : Dims{k, n}, TensorRole::weight);
      matrices_[s.value] = t;
      tensor_[s.value] = t;
      if (value.argument != kNobody) tensor_[g_.arguments[static_cast<std::size_t>(value.argument)].value] = t;
      return t;
    }
    if (const auto found = matrices_.find(s.value); found != matrices_.end() && (plain_order || in_order(other))) {
      turned = !plain_order;
      return found->second;
    }
    return matrix(op, s, s.contracted, s.free, turned);
  }

  void emit_transpose(const FlatOp& op) {
    const Value before = plain(g_.in(op)[0]);
    Integers order = integers(*op.at, "dims", "permutation");
    const Dims& dims = g_.type(before).dims;
    if (order.size() != dims.size()) throw Error(ErrorCode::format, "a transpose does not name every dimension once");
    NodeAttributes attributes;
    TensorId from = kNone;
    if (const auto found = turned_.find(before); found != turned_.end()) {
      from = found->second.first;
      for (std::int64_t& d : order)
        d = at(found->second.second, static_cast<std::size_t>(std::max<std::int64_t>(d, 0)), 0);
      if (in_order(order)) {
        tensor_[op.out_begin] = from;
        return;
      }
      attributes.view = 1;
    } else {
      from = tensor_of(before);
    }
    // Layout assignment gives a product its operands in the order that they have.
    const auto is_product = [](const FlatOp* other) {
      return other != nullptr &&
             (other->code == Code::dot_general || other->code == Code::dot || other->code == Code::convolution);
    };
    if (is_product(g_.maker(before)) || feeds_product(op)) attributes.view = 1;
    node(op, OpKind::transpose, attributes, std::array{from}, std::array{tensor_of(op.out_begin)});
  }

  bool feeds_product(const FlatOp& op) {
    if (readers_.empty()) {
      readers_.assign(g_.values.size(), false);
      for (std::size_t n = 0; n < g_.ops.size(); ++n) {
        const FlatOp& other = g_.ops[n];
        if (!live_[n] || (other.code != Code::dot_general && other.code != Code::dot)) continue;
        for (const Value v : g_.in(other)) readers_[plain(v)] = true;
      }
    }
    return readers_[op.out_begin];
  }

  void emit_einsum(const FlatOp& op) {
    NodeAttributes attributes;
    std::vector<TensorId> in = reads(op);
    if (op.code == Code::ragged_dot && in.size() > 2) in.resize(2);
    if (op.in_count >= 1) {
      const Dims& left = g_.type(g_.in(op)[0]).dims;
      attributes.contraction = left.empty() ? 1 : small(left.back());
    }
    if (op.code == Code::einsum) attributes.contraction = small(contraction(op));
    node(op, OpKind::einsum, attributes, in, results(op));
  }

  /// Product of the sizes of the labels that an einsum's result does not have.
  std::int64_t contraction(const FlatOp& op) const {
    const std::string_view equation = text(*op.at, "einsum_config");
    const std::size_t arrow = equation.find("->");
    if (arrow == std::string_view::npos) return 1;
    std::map<char, std::int64_t> sizes;
    std::size_t operand = 0, axis = 0;
    for (const char c : equation.substr(0, arrow)) {
      if (c == ',') {
        ++operand;
        axis = 0;
      } else if (operand < op.in_count) {
        sizes[c] = at(g_.type(g_.in(op)[operand]).dims, axis++, 1);
      }
    }
    std::int64_t result = 1;
    for (const auto& [label, size] : sizes) {
      if (equation.find(label, arrow) == std::string_view::npos && __builtin_mul_overflow(result, size, &result))
        return kMaxElements;
    }
    return result;
  }

  // -- convolutions and windows ---------------------------------------------------------------------------------------

  /// Dimensions of a part in the order of `wanted`: 'b', 'f', 's' for all spatial ones.
  static Integers order_of(const std::vector<char>& part, std::string_view wanted, std::size_t spatial) {
    Integers order;
    for (const char c : wanted) {
      for (std::size_t k = 0; k < (c == 's' ? spatial : 1); ++k) {
        const char name = c == 's' ? static_cast<char>('0' + k) : c;
        const auto found = std::find(part.begin(), part.end(), name);
        if (found == part.end()) throw Error(ErrorCode::format, "a convolution does not name all its dimensions");
        order.push_back(found - part.begin());
      }
    }
    return order;
  }

  void emit_convolution(const FlatOp& op) {
    const DimensionNumbers numbers = dimension_numbers(*op.at);
    const auto input = letters(numbers.input), kernel = letters(numbers.kernel), output = letters(numbers.output);
    const Value x = plain(g_.in(op)[0]), w = plain(g_.in(op)[1]);
    const Dims &x_dims = g_.type(x).dims, &w_dims = g_.type(w).dims, &y_dims = g_.type(op.out_begin).dims;
    if (x_dims.size() < 2 || input.size() != x_dims.size() || kernel.size() != w_dims.size() ||
        output.size() != y_dims.size() || input.size() != kernel.size() || input.size() != output.size()) {
      throw Error(ErrorCode::format, "the dimension numbers of a convolution do not fit its operands");
    }
    const std::size_t rank = x_dims.size() - 2;
    NodeAttributes a;
    a.spatial_rank = static_cast<std::int32_t>(std::min<std::size_t>(rank, 3));
    const bool last = in_order(order_of(input, "bsf", rank)) && in_order(order_of(output, "bsf", rank));
    a.channels_last = last && rank > 0;
    const std::string_view wanted = last ? "bsf" : "bfs";
    Integers kernel_order = order_of(kernel, "ois", rank);
    if (in_order(order_of(kernel, "sio", rank))) {
      a.weight_layout = 1;
      std::iota(kernel_order.begin(), kernel_order.end(), 0);
    } else if (in_order(order_of(kernel, "ios", rank)) && !in_order(kernel_order)) {
      a.weight_layout = 2;
      std::iota(kernel_order.begin(), kernel_order.end(), 0);
    }
    const Integers stride = integers(*op.at, "stride", "window_strides", rank),
                   pad = integers(*op.at, "pad", "padding", 2 * rank),
                   base = integers(*op.at, "lhs_dilate", "lhs_dilation", rank),
                   dilation = integers(*op.at, "rhs_dilate", "rhs_dilation", rank);
    const bool transposed = std::any_of(base.begin(), base.end(), [](std::int64_t d) { return d > 1; });
    const Integers sizes = order_of(kernel, "s", rank);
    for (std::size_t i = 0; i < static_cast<std::size_t>(a.spatial_rank); ++i) {
      const std::int64_t k = w_dims[static_cast<std::size_t>(sizes[i])];
      a.kernel[i] = small(k);
      a.dilation[i] = small(at(dilation, i, 1));
      a.stride[i] = small(transposed ? at(base, i, 1) : at(stride, i, 1));
      const std::int64_t reach = std::int64_t{a.dilation[i]} * (k - 1);
      a.pad_begin[i] = small(transposed ? reach - at(pad, 2 * i, 0) : at(pad, 2 * i, 0));
      a.pad_end[i] = small(transposed ? reach - at(pad, 2 * i + 1, 0) : at(pad, 2 * i + 1, 0));
    }
    const std::int64_t groups = integer(*op.at, "feature_group_count").value_or(1);
    a.groups = small(std::max<std::int64_t>(1, std::max(groups, integer(*op.at, "batch_group_count").value_or(1))));
    const DType x_type = g_.type(x).dtype, w_type = g_.type(w).dtype, y_type = g_.type(op.out_begin).dtype;
    std::vector<TensorId> in{ordered(op, tensor_of(x), x_dims, order_of(input, wanted, rank), x_type),
                             ordered(op, tensor_of(w), w_dims, kernel_order, w_type)};
    for (std::size_t i = 2; i < op.in_count; ++i) in.push_back(tensor_of(plain(g_.in(op)[i])));
    const Integers out_order = order_of(output, wanted, rank);
    const bool quantized = g_.type(x).quantized || g_.type(w).quantized;
    const OpKind kind = quantized ? OpKind::quantized_conv : transposed ? OpKind::conv_transpose : OpKind::conv;
    if (in_order(out_order)) {
      node(op, kind, a, in, results(op));
      return;
    }
    const TensorId turned = activation(y_type, pick(y_dims, out_order));
    node(op, kind, a, in, std::array{turned});
    view(op, OpKind::transpose, turned, tensor_of(op.out_begin));
  }

  Code joins(const Operation& operation) const {
    if (operation.region_count == 0) {
      const std::size_t found = operation.attributes.find("applies ");
      if (found == std::string_view::npos) return Code::other;
      std::string_view name = operation.attributes.substr(found + 8);
      name = name.substr(0, name.find(' '));
      return code_of(name.substr(name.find('.') + 1));
    }
    const Region& region = g_.module.regions[operation.region_begin];
    return region.operations.size() == 2 ? g_.module.operations[region.operations[0]].code : Code::other;
  }

  void emit_window(const FlatOp& op) {
    if (op.in_count == 0 || op.out_count == 0) throw Error(ErrorCode::format, "a reduce_window without operands");
    const Dims& dims = g_.type(plain(g_.in(op)[0])).dims;
    const std::size_t rank = dims.size();
    const Integers window = integers(*op.at, "window_dimensions", rank),
                   stride = integers(*op.at, "window_strides", rank), pad = integers(*op.at, "padding", 2 * rank),
                   dilation = integers(*op.at, "window_dilations", rank);
    const Code how = op.code == Code::average_pool_ ? Code::add : joins(*op.at);
    OpKind kind = how == Code::maximum || how == Code::minimum ? OpKind::max_pool
                  : how == Code::add                           ? OpKind::avg_pool
                                                               : OpKind::unknown;
    NodeAttributes a;
    Integers axes;
    for (std::size_t i = 0; i < rank; ++i) {
      if (at(window, i, 1) != 1) axes.push_back(static_cast<std::int64_t>(i));
    }
    if (axes.size() == 1 && op.code == Code::reduce_window) {
      const auto d = static_cast<std::size_t>(axes[0]);
      const bool whole = at(window, d, 1) == dims[d] && at(stride, d, 1) == 1;
      if (whole && at(pad, 2 * d, 0) + at(pad, 2 * d + 1, 0) == dims[d] - 1) {
        kind = OpKind::cumulative;
        a.axis = static_cast<std::int32_t>(d);
      }
    }
    if (kind != OpKind::cumulative && rank >= 3) {
      a.channels_last = at(window, rank - 1, 1) == 1 && at(stride, rank - 1, 1) == 1 &&
                        (at(window, 1, 1) != 1 || at(stride, 1, 1) != 1);
      const std::size_t first = a.channels_last ? 1 : 2;
      a.spatial_rank = static_cast<std::int32_t>(std::min<std::size_t>(rank - 2, 3));
      for (std::size_t i = 0; i < static_cast<std::size_t>(a.spatial_rank); ++i) {
        a.kernel[i] = small(at(window, first + i, 1));
        a.stride[i] = small(at(stride, first + i, 1));
        a.dilation[i] = small(at(dilation, first + i, 1));
        a.pad_begin[i] = small(at(pad, 2 * (first + i), 0));
        a.pad_end[i] = small(at(pad, 2 * (first + i) + 1, 0));
      }
    }
    std::vector<TensorId> in{tensor_of(plain(g_.in(op)[0]))};
    node(op, kind, a, in, results(op));
  }

  // -- reductions, gathers, calls -------------------------------------------------------------------------------------

  void emit_reduction(const FlatOp& op) {
    NodeAttributes a;
    const Integers axes = integers(*op.at, "dimensions");
    if (!axes.empty()) a.axis = small(axes.back());
    OpKind kind = OpKind::unknown;
    if (op.out_count == 2) {
      kind = OpKind::arg_reduce;
    } else {
      switch (joins(*op.at)) {
        case Code::add:
          kind = OpKind::reduce_sum;
          break;
        case Code::maximum:
          kind = OpKind::reduce_max;
          break;
        case Code::minimum:
          kind = OpKind::reduce_min;
          break;
        case Code::multiply:
          kind = OpKind::reduce_prod;
          break;
        case Code::and_:
        case Code::or_:
        case Code::xor_:
          kind = OpKind::reduce_any;
          break;
        default:
          break;
      }
    }
    node(op, kind, a, reads(op), results(op));
  }

  void emit_mean(const FlatOp& op) {
    const Value x = plain(g_.in(op)[0]);
    const Dims& dims = g_.type(x).dims;
    Integers axes = integers(*op.at, "dimensions");
    std::sort(axes.begin(), axes.end());
    NodeAttributes a;
    const std::size_t rank = dims.size();
    const bool whole = rank >= 4 && rank <= 5 && axes.size() == rank - 2 && (axes[0] == 1 || axes[0] == 2) &&
                       axes.back() - axes[0] == static_cast<std::int64_t>(rank) - 3 &&
                       axes.back() < static_cast<std::int64_t>(rank);
    if (!whole) {
      if (!axes.empty()) a.axis = small(axes.back());
      node(op, OpKind::reduce_mean, a, std::array{tensor_of(x)}, results(op), "mean");
      return;
    }
    a.spatial_rank = static_cast<std::int32_t>(rank) - 2;
    a.channels_last = axes[0] == 1;
    for (std::size_t i = 0; i < axes.size(); ++i) a.kernel[i] = small(dims[static_cast<std::size_t>(axes[i])]);
    node(op, OpKind::global_avg_pool, a, std::array{tensor_of(x)}, results(op), "mean");
  }

  void emit_gather(const FlatOp& op) {
    const Value table = plain(g_.in(op)[0]);
    const Dims &dims = g_.type(table).dims, &out = g_.type(op.out_begin).dims;
    const Integers collapsed = integers(*op.at, "collapsed_slice_dims"), offset = integers(*op.at, "offset_dims");
    const bool rows = is_weight(table) && dims.size() == 2 && collapsed == Integers{0} &&
                      offset == Integers{static_cast<std::int64_t>(out.size()) - 1};
    NodeAttributes a;
    if (const Integers axes = integers(*op.at, "start_index_map"); axes.size() == 1) a.axis = small(axes[0]);
    const Value indices = before_broadcast(g_.in(op)[1]);
    const bool same = elements_of(g_.type(indices)) == elements_of(g_.type(g_.in(op)[1])) && available(indices);
    const TensorId index = tensor_of(same ? indices : g_.in(op)[1]);
    node(op, rows ? OpKind::embedding : OpKind::gather, a, std::array{tensor_of(table), index}, results(op));
  }

  /// Whether a value has a tensor, or will have one.
  bool available(Value v) const {
    const FlatValue& value = g_.values[v];
    return value.maker == kNobody || live_[static_cast<std::size_t>(value.maker)];
  }

  void emit_custom_call(const FlatOp& op) {
    const std::string_view target = op.at->symbol.empty() ? text(*op.at, "call_target_name") : op.at->symbol;
    const auto has = [&](std::string_view part) { return target.find(part) != std::string_view::npos; };
    OpKind kind = OpKind::unknown;
    NodeAttributes a;
    std::vector<TensorId> in = reads(op);
    if (has("fmha") && in.size() >= 3 && op.out_count > 0) return emit_attention(op, target);
    if (has("topk") || has("TopK") || has("top_k")) {
      kind = OpKind::top_k;
      a.axis = op.in_count > 0 ? static_cast<std::int32_t>(g_.type(g_.in(op)[0]).dims.size()) - 1 : kNoAxis;
    } else if (has("threefry") || has("philox")) {
      kind = OpKind::random;
    } else if (has("mhlo.erf")) {
      kind = OpKind::erf;
    }
    node(op, kind, a, in, results(op), target);
  }

  /// cuDNN's attention: query, key and value [batch, length, heads, dim], the result [batch, heads, length, dim].
  void emit_attention(const FlatOp& op, std::string_view target) {
    std::vector<TensorId> in;
    NodeAttributes a;
    const Dims& out = g_.type(op.out_begin).dims;
    for (std::size_t i = 0; i < op.in_count; ++i) {
      const Value v = plain(g_.in(op)[i]);
      const Dims& dims = g_.type(v).dims;
      const bool length_first = i < 3 && dims.size() == 4 && out.size() == 4 && dims[2] == out[1];
      in.push_back(ordered(op, tensor_of(v), dims, length_first ? Integers{0, 2, 1, 3} : Integers{}, g_.type(v).dtype));
    }
    if (out.size() == 4) a.num_heads = a.num_kv_heads = small(out[1]);
    a.causal = op.at->attributes.find("CAUSAL") != std::string_view::npos &&
               op.at->attributes.find("NO_MASK") == std::string_view::npos;
    node(op, OpKind::attention, a, in, results(op), target);
  }

  const FlatGraph& g_;
  GraphBuilder b_;
  std::vector<TensorId> tensor_;
  std::vector<std::int32_t> uses_;
  std::vector<bool> live_, readers_;
  std::vector<TensorId> inputs_;
  std::unordered_map<Value, TensorId> matrices_;
  std::unordered_map<Value, std::pair<TensorId, Integers>> turned_;
};

}  // namespace

OpGraph lower(const FlatGraph& graph) { return Lowerer(graph).run(); }

}  // namespace perfpass::stablehlo
