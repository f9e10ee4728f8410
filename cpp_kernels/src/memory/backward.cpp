// The backward pass of a forward graph, node by node in reverse: which gradients are alive beside what was saved.
#include <algorithm>
#include <string_view>
#include <vector>

#include "memory/requests.hpp"
#include "memory/saved.hpp"
#include "perfpass/error.hpp"

namespace perfpass {
namespace {

using detail::Count;
using detail::Saving;

constexpr std::int64_t kNoGradient = -1;
constexpr std::string_view kCache = "present";
constexpr std::size_t kLearned = 3;  // inputs of a batch normalization before its running statistics

class Backward {
 public:
  Backward(const OpGraph& graph, const Saving& saving)
      : g_(graph),
        s_(saving),
        gradient_(graph.tensor_count(), kNoGradient),
        held_(graph.tensor_count(), 0),
        counted_(graph.tensor_count(), 0),
        dying_(graph.node_count()) {}

  SavedActivations run() {
    find_saved();
    const std::int64_t loss = begin_with_loss();
    note(loss);
    for (NodeId n = static_cast<NodeId>(g_.node_count()) - 1; n >= 0; --n) {
      if (g_.attributes[n].view == 0) pass(n);
      alive_ -= dying_[n];
    }
    return std::move(found_);
  }

 private:
  /// All bytes that are ever added are checked, so that no sum can wrap around.
  std::int64_t checked(std::int64_t bytes) {
    all_ += bytes;
    if (all_.value() > detail::kMaxCount) {
      throw Error(ErrorCode::limit, "the graph's tensors have more than 2^62 bytes; check its shapes");
    }
    return bytes;
  }

  bool is_made(TensorId owner) const noexcept { return g_.tensor_role[owner] == TensorRole::activation; }

  bool has_loss(TensorId t) const {
    return s_.is_cast(t) && !g_.strings.at(g_.tensor_name[t]).starts_with(kCache) && is_made(s_.owner(t));
  }

  void find_saved() {
    for (TensorId t = 0; t < static_cast<TensorId>(g_.tensor_count()); ++t) {
      held_[t] = g_.tensor_role[t] == TensorRole::input;
    }
    for (const TensorId t : g_.graph_outputs) {
      if (has_loss(t)) held_[s_.owner(t)] = 1;
    }
    std::vector<std::int64_t> bytes(g_.tensor_count(), 0);
    for (TensorId t = 0; t < static_cast<TensorId>(g_.tensor_count()); ++t) {
      const NodeId saver = g_.is_constant(t) ? kNone : s_.saver(t);
      if (saver == kNone && held_[t] == 0) continue;
      alive_ += bytes[t] = checked(s_.bytes(t));
      if (saver == kNone) continue;
      found_.saved_bytes += bytes[t];
      found_.tensors.push_back(t);
      if (held_[t] == 0) dying_[saver] += bytes[t];
    }
    for (NodeId n = 0; n < static_cast<NodeId>(g_.node_count()); ++n) {
      const std::int64_t copied = checked(s_.copied(n).value());
      alive_ += copied, found_.saved_bytes += copied, dying_[n] += copied;
    }
    std::stable_sort(found_.tensors.begin(), found_.tensors.end(),
                     [&](TensorId a, TensorId b) { return bytes[a] > bytes[b]; });
  }

  /// Gradients of the results are alive from here on. The bytes that the loss needs for a moment: log-probabilities of
  /// all results, and the gradient of one of them.
  std::int64_t begin_with_loss() {
    std::int64_t saved = 0, largest = 0;
    for (const TensorId t : g_.graph_outputs) {
      if (!has_loss(t)) continue;
      const std::int64_t bytes = checked(s_.bytes_of_loss(t));
      saved += bytes;
      largest = std::max(largest, bytes);
      add_gradient(s_.owner(t));
    }
    return saved + checked(largest);
  }

  void add_gradient(TensorId owner) {
    if (gradient_[owner] != kNoGradient) return;
    alive_ += gradient_[owner] = checked(s_.bytes(owner));
  }

  void note(std::int64_t more) {
    if (alive_ + more + weights_ <= found_.backward_bytes + found_.gradient_bytes) return;
    found_.backward_bytes = alive_ + more;
    found_.gradient_bytes = weights_;
  }

  void pass(NodeId n) {
    const auto outputs = g_.node_outputs(n);
    const auto is_result = [&](TensorId owner) {
      return std::any_of(outputs.begin(), outputs.end(),
                         [&](TensorId t) { return t != kNone && s_.owner(t) == owner; });
    };
    if (std::none_of(outputs.begin(), outputs.end(),
                     [&](TensorId t) { return t != kNone && gradient_[s_.owner(t)] != kNoGradient; })) {
      return;
    }
    sources_.clear();
    for (const TensorId t : g_.node_inputs(n)) {
      if (t == kNone || !s_.is_cast(t)) continue;
      const TensorId owner = s_.owner(t);
      if (is_made(owner) && !is_result(owner) && std::find(sources_.begin(), sources_.end(), owner) == sources_.end()) {
        sources_.push_back(owner);
      }
    }
    if (g_.op[n] == OpKind::add || g_.op[n] == OpKind::sub) hand_on(n);
    std::int64_t moment = 0;  // sums of gradients, and what replaces one that was written over
    for (const TensorId owner : sources_) {
      if (gradient_[owner] != kNoGradient) moment += checked(s_.bytes(owner));
      add_gradient(owner);
    }
    if (outputs[0] != kNone && s_.shares(n) && is_made(s_.owner(outputs[0]))) {
      moment += checked(s_.bytes(s_.owner(outputs[0])));
    }
    if (g_.op[n] != OpKind::max_pool) moment += checked(s_.copied(n).value());  // gradients, before they are cast back
    moment += learn(n);
    note(moment);
    for (const TensorId t : outputs) {
      if (t == kNone || s_.owner(t) != t || gradient_[t] == kNoGradient) continue;
      alive_ -= gradient_[t];
      gradient_[t] = kNoGradient;
    }
  }

  /// The gradient of a sum is that of its terms: one buffer, which the term that was made first keeps longest.
  void hand_on(NodeId n) {
    const TensorId result = g_.node_outputs(n)[0];
    if (result == kNone || gradient_[s_.owner(result)] == kNoGradient) return;
    const auto is_term = [&](TensorId owner) {
      return gradient_[owner] == kNoGradient && g_.elements(owner) == g_.elements(result);
    };
    const TensorId own = s_.owner(result);
    TensorId keeps = s_.shares(n) ? own : kNone;
    for (const TensorId owner : sources_) {
      if (is_term(owner) && (keeps == kNone || owner < keeps)) keeps = owner;
    }
    if (keeps == kNone) return;
    const std::int64_t bytes = gradient_[own];
    const auto rest = std::stable_partition(sources_.begin(), sources_.end(), [&](TensorId o) { return !is_term(o); });
    std::for_each(rest, sources_.end(), [&](TensorId owner) { gradient_[owner] = 0; });
    sources_.erase(rest, sources_.end());
    gradient_[own] = 0;
    gradient_[keeps] = bytes;
  }

  /// Gradients of the weights that this node reads; bytes of those at 16 bits (autocast) or that are added to others.
  std::int64_t learn(NodeId n) {
    std::int64_t moment = 0;
    const auto inputs = g_.node_inputs(n);
    for (std::size_t i = 0; i < inputs.size() && !(g_.op[n] == OpKind::batch_norm && i >= kLearned); ++i) {
      if (inputs[i] == kNone || !s_.is_cast(inputs[i])) continue;
      const TensorId owner = s_.owner(inputs[i]);
      if (g_.tensor_role[owner] != TensorRole::weight) continue;
      const std::int64_t bytes = checked(s_.bytes(owner));
      if (s_.runs_at_half(n)) moment += checked(bytes / 2);
      if (counted_[owner] != 0) {
        moment += bytes + checked(bytes);  // the second gradient, and the sum of both
      } else {
        weights_ += bytes;
      }
      counted_[owner] = 1;
    }
    return moment;
  }

  const OpGraph& g_;
  const Saving& s_;
  SavedActivations found_;
  std::vector<std::int64_t> gradient_;  // [T] of owners: bytes, or kNoGradient
  std::vector<std::uint8_t> held_;      // [T] of owners: the caller holds it
  std::vector<std::uint8_t> counted_;   // [T] of weights
  std::vector<std::int64_t> dying_;     // [N] bytes that die with a node's backward pass
  std::vector<TensorId> sources_;       // of one node
  std::int64_t alive_ = 0, weights_ = 0;
  Count all_;
};

}  // namespace

SavedActivations saved_activations(const OpGraph& graph, const MemoryOptions& options) {
  detail::check_options(options);
  const Saving saving(graph, options);
  return Backward(graph, saving).run();
}

}  // namespace perfpass
