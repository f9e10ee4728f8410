// What a training step keeps between its passes.
#include <algorithm>
#include <numeric>
#include <vector>

#include "costs/node.hpp"
#include "graph/operator_set.hpp"
#include "memory/requests.hpp"
#include "perfpass/error.hpp"

namespace perfpass {
namespace {

using detail::OperatorSet;
using enum OpKind;

// What the backward pass of an operator reads again: its inputs, its output, both, or nothing of the forward pass.
const OperatorSet kSavesOutput{relu,         sigmoid, tanh,       softmax, log_softmax, exp,
                               OpKind::sqrt, rsqrt,   reciprocal, elu,     selu,        celu};
const OperatorSet kSavesBoth{attention, lstm, gru, rnn, max_pool, l2_norm, reduce_norm, cumulative, reduce_prod};
const OperatorSet kSavesNothing{
    unknown,        add,       sub,     neg,     cast,       reduce_sum, reduce_mean, avg_pool,   global_avg_pool,
    reshape,        transpose, concat,  split,   slice,      pad,        tile,        expand,     depth_to_space,
    space_to_depth, unfold,    fold,    roll,    reverse,    copy,       identity,    triangular, resize,
    OpKind::round,  sign,      compare, logical, bitwise,    is_special, constant,    fill,       range,
    OpKind::random, shape_of,  eye,     window,  arg_reduce, reduce_any, top_k,       sort,       gather,
    embedding,      scatter,   one_hot, loss};
// A product with a constant has a gradient that reads the constant alone.
const OperatorSet kScales{mul, OpKind::div};

/// Follows a graph in execution order and marks the owners of what is kept.
class Saving {
 public:
  explicit Saving(const OpGraph& graph) : g_(graph), owner_(graph.tensor_count()), kept_(graph.tensor_count(), false) {
    std::iota(owner_.begin(), owner_.end(), 0);
    for (NodeId n = 0; n < static_cast<NodeId>(g_.node_count()); ++n) visit(n);
  }

  bool kept(TensorId t) const noexcept { return kept_[t]; }

 private:
  void visit(NodeId n) {
    const OpKind op = g_.op[n];
    const NodeAttributes& a = g_.attributes[n];
    const auto inputs = g_.node_inputs(n);
    const auto outputs = g_.node_outputs(n);
    const bool saves_inputs = !kSavesOutput(op) && !kSavesNothing(op);
    // A result written in place of an input that backward reads again is written beside it: autograd copies.
    const bool shares = a.view != 0 || (a.in_place != 0 && !saves_inputs);
    if (shares && !inputs.empty() && inputs[0] != kNone) {
      for (std::size_t i = 0; i < outputs.size() && (a.view != 0 || i == 0); ++i) {
        if (outputs[i] != kNone) owner_[outputs[i]] = owner_[inputs[0]];
      }
    }
    if (a.view != 0) return;
    const auto variable = [&](TensorId t) { return t != kNone && g_.tensor_role[t] != TensorRole::literal; };
    if (saves_inputs && !(kScales(op) && std::count_if(inputs.begin(), inputs.end(), variable) == 1)) {
      for (const TensorId t : inputs) {
        if (variable(t)) kept_[owner_[t]] = true;
      }
    }
    if (kSavesOutput(op) || kSavesBoth(op)) {
      for (const TensorId t : outputs) {
        if (t != kNone) kept_[owner_[t]] = true;
      }
    }
  }

  const OpGraph& g_;
  std::vector<TensorId> owner_;  // [T] the tensor whose buffer it lies in
  std::vector<bool> kept_;       // [T] of owners
};

}  // namespace

SavedActivations saved_activations(const OpGraph& graph, const MemoryOptions& options) {
  detail::check_options(options);
  const Saving saving(graph);
  SavedActivations found;
  detail::Count saved = 0;
  std::vector<std::int64_t> bytes(graph.tensor_count(), 0);
  for (TensorId t = 0; t < static_cast<TensorId>(graph.tensor_count()); ++t) {
    if (graph.is_constant(t)) continue;
    bytes[t] = detail::buffer_bytes(graph, t, options);
    found.largest_bytes = std::max(found.largest_bytes, bytes[t]);
    if (!saving.kept(t)) continue;
    saved += bytes[t];
    found.tensors.push_back(t);
  }
  if (saved.value() > detail::kMaxCount) {
    throw Error(ErrorCode::limit, "the graph's tensors have more than 2^62 bytes; check its shapes");
  }
  found.saved_bytes = saved.value();
  std::stable_sort(found.tensors.begin(), found.tensors.end(),
                   [&](TensorId a, TensorId b) { return bytes[a] > bytes[b]; });
  return found;
}

}  // namespace perfpass
