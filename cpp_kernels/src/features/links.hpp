// Who makes what a node of a graph reads, who reads what it makes, and what no input decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "graph/operator_set.hpp"
#include "perfpass/graph.hpp"
#include "perfpass/operators.hpp"

namespace perfpass::detail {

/// Whether runtimes compute an operator of constants when a model is loaded: neither products nor what widens stored
/// weights, which are read as they are stored.
inline bool folds(OpKind op) noexcept {
  switch (op_class(op)) {
    case OpClass::activation:
    case OpClass::elementwise:
    case OpClass::reduction:
    case OpClass::data_movement:
    case OpClass::gather:
      return true;
    case OpClass::generator:
      return op != OpKind::random;
    default:
      return false;
  }
}

/// Whether a node takes nothing but the shape of what it reads: tensors that PyTorch makes like another one, filled.
inline bool takes_shape(const OpGraph& graph, NodeId n) {
  if (graph.op[n] != OpKind::fill || graph.attributes[n].in_place != 0) return false;
  const std::string_view source = graph.strings.at(graph.source_op[n]);
  return source.starts_with("aten.new_") || (source.starts_with("aten.") && source.ends_with("_like"));
}

/// [N] nodes that shapes and constants (all, or all but `weights`) alone decide, where `computes` takes them. What a
/// scatter writes into or writes is no weight, whatever a file calls it: masks begin so.
template <typename Computes>
std::vector<bool> fixed(const OpGraph& graph, const Computes& computes, bool weights = true) {
  std::vector<bool> found(graph.node_count());
  for (NodeId n = 0; n < static_cast<NodeId>(found.size()); ++n) {
    bool reads = false;
    bool known = true;
    for (const TensorId t : takes_shape(graph, n) ? std::span<const TensorId>() : graph.node_inputs(n)) {
      if (t == kNone) continue;
      const NodeId maker = graph.producer[t];
      const bool counts = weights || graph.tensor_role[t] != TensorRole::weight || graph.op[n] == OpKind::scatter;
      const bool constant = graph.is_constant(t) && counts;
      reads = true;
      known = known && (constant || (maker != kNone && found[maker]));
    }
    const bool begins = reads || op_class(graph.op[n]) == OpClass::generator;
    found[n] = graph.op[n] == OpKind::shape_of || (begins && known && computes(n));
  }
  return found;
}

/// [N] nodes that runtimes compute when a model is loaded; `weights`: also what these decide.
inline std::vector<bool> folded_nodes(const OpGraph& graph, bool weights) {
  const auto computes = [&](NodeId n) {
    return folds(graph.op[n]) && (graph.stated.empty() || !graph.stated.contains(n));
  };
  return fixed(graph, computes, weights);
}

/// Who makes what a node reads and who reads what it makes; kNone where there is none.
class Links {
 public:
  explicit Links(const OpGraph& graph)
      : g_(graph),
        next_(graph.node_count(), kNone),
        readers_(graph.node_count(), 0),
        folded_(folded_nodes(graph, true)) {
    for (std::size_t e = 0; e < graph.edge_count(); ++e) {
      ++readers_[graph.edge_producer[e]];
      next_[graph.edge_producer[e]] = graph.edge_consumer[e];
    }
    for (std::size_t n = 0; n < readers_.size(); ++n) {
      if (readers_[n] != 1) next_[n] = kNone;
    }
    for (const TensorId t : graph.graph_outputs) {
      if (t != kNone && graph.producer[t] != kNone) next_[graph.producer[t]] = kNone;  // the caller reads it too
    }
  }

  NodeId count() const noexcept { return static_cast<NodeId>(next_.size()); }
  /// The one reader of a node's outputs.
  NodeId next(NodeId n) const noexcept { return n == kNone ? kNone : next_[n]; }
  /// How many nodes read a node's outputs, each tensor counted.
  std::int32_t readers(NodeId n) const noexcept { return readers_[n]; }
  bool is(NodeId n, OpKind op) const noexcept { return n != kNone && g_.op[n] == op; }
  bool is(NodeId n, const OperatorSet& some) const noexcept { return n != kNone && some(g_.op[n]); }

  TensorId tensor(NodeId n, std::size_t slot) const noexcept {
    if (n == kNone) return kNone;
    const auto inputs = g_.node_inputs(n);
    return slot < inputs.size() ? inputs[slot] : kNone;
  }
  NodeId maker(NodeId n, std::size_t slot) const noexcept { return maker_of(tensor(n, slot)); }
  /// [N] nodes that runtimes compute when a model is loaded.
  const std::vector<bool>& folded() const noexcept { return folded_; }
  /// Whether a tensor is a weight or a literal, or computed from these and shapes alone.
  bool constant(TensorId t) const noexcept {
    return t != kNone && (g_.is_constant(t) || (g_.producer[t] != kNone && folded_[g_.producer[t]]));
  }
  /// Whether PyTorch recorded a node, so that it is a kernel that ran; files and compilers' modules write in parts what
  /// runs as one.
  bool traced(NodeId n) const { return g_.strings.at(g_.source_op[n]).starts_with("aten."); }
  /// Whether a padding is of one number: TensorFlow Lite's; other formats' operators say it by attributes.
  bool pads_with_one_number(NodeId n) const {
    const std::string_view source = g_.strings.at(g_.source_op[n]);
    return source == "PAD" || source == "PADV2";
  }
  /// Whether one of the first two inputs is constant.
  bool has_constant(NodeId n) const noexcept { return constant(tensor(n, 0)) || constant(tensor(n, 1)); }
  /// Whether a node takes one tensor of data beside a constant; numbers are no inputs of what PyTorch recorded.
  bool by_number(NodeId n) const noexcept { return has_constant(n) || (n != kNone && tensor(n, 1) == kNone); }
  /// What makes a tensor, else kNone.
  NodeId maker_of(TensorId t) const noexcept { return t == kNone ? kNone : g_.producer[t]; }
  /// The first of two inputs that is computed from data, else the first.
  std::size_t data_slot(NodeId n) const noexcept {
    const auto varies = [&](TensorId t) { return t != kNone && !constant(t); };
    return !varies(tensor(n, 0)) && varies(tensor(n, 1)) ? 1 : 0;
  }
  /// The only reader of a node if it is one of the operators, else kNone.
  template <typename Some>
  NodeId after(NodeId n, const Some& some) const noexcept {
    const NodeId reader = next(n);
    return is(reader, some) ? reader : kNone;
  }
  /// The same, where that reader has a constant operand.
  template <typename Some>
  NodeId after_with_constant(NodeId n, const Some& some) const noexcept {
    const NodeId reader = after(n, some);
    return reader != kNone && has_constant(reader) ? reader : kNone;
  }
  /// The same, where that reader takes a number or a constant.
  template <typename Some>
  NodeId after_by_number(NodeId n, const Some& some) const noexcept {
    const NodeId reader = after(n, some);
    return reader != kNone && by_number(reader) ? reader : kNone;
  }
  template <typename Visit>
  void each(OpKind op, const Visit& visit) const {
    for (NodeId n = 0; n < count(); ++n) {
      if (g_.op[n] == op) visit(n);
    }
  }
  template <typename Visit>
  void each(const OperatorSet& some, const Visit& visit) const {
    for (NodeId n = 0; n < count(); ++n) {
      if (some(g_.op[n])) visit(n);
    }
  }

 private:
  const OpGraph& g_;
  std::vector<NodeId> next_;
  std::vector<std::int32_t> readers_;
  std::vector<bool> folded_;
};

}  // namespace perfpass::detail
