// What changes nothing: a product with 1 and a sum with 0, as exporters from PyTorch write every addmm, and transposes
// that undo each other. XLA's algebraic simplifier drops them before it fuses.
#include <numeric>

#include "stablehlo/flat.hpp"

namespace perfpass::stablehlo {
namespace {

constexpr int kMostHops = 16;

bool shows_another(Code code) {
  return code == Code::broadcast_in_dim || code == Code::dynamic_broadcast_in_dim || code == Code::reshape ||
         code == Code::dynamic_reshape || code == Code::broadcast;
}

bool is_constant(const FlatGraph& graph, Value v, double wanted) {
  for (int hop = 0; hop < kMostHops; ++hop) {
    const FlatOp* op = graph.maker(v);
    if (op == nullptr) break;
    if (!shows_another(op->code) || op->in_count == 0) return false;
    v = graph.in(*op)[0];
  }
  return graph.number_of(v) == wanted;
}

/// What a transpose of a transpose began with, where the two leave every dimension in its place.
std::optional<Value> turned_back(const FlatGraph& graph, const FlatOp& op) {
  const FlatOp* before = op.in_count == 1 ? graph.maker(graph.in(op)[0]) : nullptr;
  if (before == nullptr || before->code != Code::transpose || before->in_count != 1) return std::nullopt;
  const Integers second = integers(*op.at, "dims", "permutation"), first = integers(*before->at, "dims", "permutation");
  if (first.size() != second.size()) return std::nullopt;
  for (std::size_t i = 0; i < second.size(); ++i) {
    const auto from = static_cast<std::size_t>(second[i]);  // a negative one is past the end too
    if (from >= first.size() || first[from] != static_cast<std::int64_t>(i)) return std::nullopt;
  }
  return graph.in(*before)[0];
}

/// The operand that a result is equal to.
std::optional<Value> equal_operand(const FlatGraph& graph, const FlatOp& op) {
  if (op.code == Code::transpose) return turned_back(graph, op);
  const bool product = op.code == Code::multiply, sum = op.code == Code::add;
  const bool quotient = op.code == Code::divide, difference = op.code == Code::subtract;
  if (op.in_count != 2 || op.out_count != 1 || !(product || sum || quotient || difference)) return std::nullopt;
  const auto in = graph.in(op);
  const double neutral = product || quotient ? 1.0 : 0.0;
  for (const std::size_t i : {0U, 1U}) {
    if (i == 1 && !(product || sum)) break;
    const Type &kept = graph.type(in[i]), &made = graph.type(op.out_begin);
    if (is_floating(made.dtype) && kept.dtype == made.dtype && kept.dims == made.dims &&
        is_constant(graph, in[1 - i], neutral)) {
      return in[i];
    }
  }
  return std::nullopt;
}

}  // namespace

void drop_identities(FlatGraph& graph) {
  std::vector<Value> same(graph.values.size());
  std::iota(same.begin(), same.end(), 0);
  for (FlatOp& op : graph.ops) {  // what an operator reads was made before it
    for (std::uint32_t i = op.in_begin; i < op.in_begin + op.in_count; ++i) {
      graph.operands[i] = same[graph.operands[i]];
    }
    if (const auto operand = equal_operand(graph, op)) {
      same[op.out_begin] = *operand;
      op.in_count = 0;  // it is no reader
    }
  }
  for (Value& v : graph.outputs) v = same[v];
}

}  // namespace perfpass::stablehlo
