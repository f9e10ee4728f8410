// Products of matrices, the transposes around them, einsums.
#include <map>
#include <numeric>

#include "stablehlo/lowerer.hpp"

namespace perfpass::stablehlo {

Lowerer::Side Lowerer::side(const FlatOp& op, const DotSides& sides, int i) const {
  Side s{plain(g_.in(op)[static_cast<std::size_t>(i)]), {}, sides.batch[i], sides.free[i], sides.contracted[i], false};
  // A transposed weight is the weight, read in another order.
  if (const FlatOp* maker = g_.maker(s.value);
      maker != nullptr && maker->code == Code::transpose && maker->in_count == 1) {
    const Value before = plain(g_.in(*maker)[0]);
    const Integers order = integers(*maker->at, "dims", "permutation");
    if (is_weight(before) && order.size() == g_.type(before).dims.size() &&
        order.size() == g_.type(s.value).dims.size()) {
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

TensorId Lowerer::ordered(const FlatOp& op, TensorId t, const Dims& dims, const Integers& order, DType dtype) {
  if (in_order(order)) return t;
  const TensorId turned = activation(dtype, pick(dims, order));
  view(op, OpKind::transpose, t, turned);
  return turned;
}

TensorId Lowerer::reshaped(const FlatOp& op, TensorId t, const Dims& from, const Dims& to, DType dtype) {
  if (from == to) return t;
  const TensorId other = activation(dtype, to);
  view(op, OpKind::reshape, t, other);
  return other;
}

TensorId Lowerer::matrix(const FlatOp& op, const Side& s, const Integers& rows, const Integers& columns, bool& turned) {
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

void Lowerer::emit_product(const FlatOp& op) {
  const DotSides sides = dot_sides(g_, *op.at, g_.in(op));
  Side left = side(op, sides, 0), right = side(op, sides, 1);
  const FlatOp* maker = g_.maker(right.value);
  for (int hop = 0; hop < kMostHops && maker != nullptr && maker->code == Code::convert; ++hop) {
    maker = maker->in_count > 0 ? g_.maker(plain(g_.in(*maker)[0])) : nullptr;
  }
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

TensorId Lowerer::weight_matrix(const FlatOp& op, const Side& s, bool& turned) {
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

void Lowerer::emit_transpose(const FlatOp& op) {
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

bool Lowerer::feeds_product(const FlatOp& op) {
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

void Lowerer::emit_einsum(const FlatOp& op) {
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

std::int64_t Lowerer::contraction(const FlatOp& op) const {
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

}  // namespace perfpass::stablehlo
