#include <algorithm>
#include <string>
#include <utility>

#include "costs/node.hpp"
#include "memory/requests.hpp"
#include "perfpass/allocators.hpp"
#include "perfpass/error.hpp"
#include "perfpass/memory.hpp"

namespace perfpass {
namespace {

using detail::Count;

/// Who owns each tensor's buffer, how large the buffers are, and from when to when each lives. O(tensors + edges).
class Planner {
 public:
  Planner(const OpGraph& graph, const MemoryOptions& options)
      : g_(graph), options_(options), owner_(graph.tensor_count(), kNone), last_use_(graph.tensor_count(), kNone) {}

  MemoryPlan plan() {
    assign_owners();
    extend_to_last_uses();
    return sweep();
  }

  MemoryEvents events() {
    assign_owners();
    extend_to_last_uses();
    MemoryEvents made;
    const auto tensors = static_cast<TensorId>(g_.tensor_count());
    const std::size_t most = 2 * g_.tensor_count();  // each is allocated once and freed once
    made.block.reserve(most), made.bytes.reserve(most), made.use.reserve(most);
    const auto add = [&](TensorId t, std::int64_t bytes, MemoryUse use) {
      made.block.push_back(t);
      made.bytes.push_back(bytes);
      made.use.push_back(static_cast<std::uint8_t>(use));
    };
    Count all = 0;
    const auto counted = [&](TensorId t) {
      const std::int64_t bytes = buffer_bytes(t);
      all += bytes;
      check_total(all);
      return bytes;
    };
    for (TensorId t = 0; t < tensors; ++t) {
      if (g_.is_constant(t)) add(t, counted(t), MemoryUse::weights);
    }
    for (TensorId t = 0; t < tensors; ++t) {
      if (g_.tensor_role[t] == TensorRole::input && is_buffer(t)) add(t, counted(t), MemoryUse::inputs);
    }
    // Of each node what it is the last to touch, as a list: the first, and behind every tensor the next.
    std::vector<TensorId> first(g_.node_count(), kNone), next(g_.tensor_count(), kNone);
    for (TensorId t = tensors; t-- > 0;) {
      if (g_.tensor_role[t] != TensorRole::activation || !is_buffer(t)) continue;
      next[t] = std::exchange(first[last_use_[t]], t);
    }
    for (NodeId n = 0; n <= last_node(); ++n) {
      for (const TensorId t : g_.node_outputs(n)) {
        if (t != kNone && is_buffer(t) && runs(n)) add(t, counted(t), MemoryUse::activations);
      }
      for (TensorId t = first[n]; t != kNone; t = next[t]) add(t, MemoryEvents::kFree, MemoryUse::activations);
    }
    return made;
  }

 private:
  static void check_total(const Count& all) {
    if (all.value() > detail::kMaxCount) {
      throw Error(ErrorCode::limit, "the graph's tensors have more than 2^62 bytes; check its shapes");
    }
  }

  NodeId last_node() const noexcept { return static_cast<NodeId>(g_.node_count()) - 1; }
  bool runs(NodeId n) const noexcept { return g_.repeat[n] > 0.0; }

  std::int64_t buffer_bytes(TensorId t) const { return detail::buffer_bytes(g_, t, options_); }

  void assign_owners() {
    for (TensorId t = 0; t < static_cast<TensorId>(g_.tensor_count()); ++t) {
      if (g_.tensor_role[t] != TensorRole::activation) owner_[t] = t;
    }
    for (NodeId n = 0; n <= last_node(); ++n) {  // execution order, so chains of views resolve as they are met
      if (!runs(n)) continue;
      const auto inputs = g_.node_inputs(n);
      const auto outputs = g_.node_outputs(n);
      const TensorId source = inputs.empty() || inputs[0] == kNone ? kNone : owner_[inputs[0]];
      const NodeAttributes& a = g_.attributes[n];
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i] == kNone) continue;
        const bool shares = source != kNone && (a.view != 0 || (a.in_place != 0 && i == 0));
        owner_[outputs[i]] = shares ? source : outputs[i];
      }
    }
  }

  void use(TensorId t, NodeId n) {
    if (t == kNone || owner_[t] == kNone) return;
    last_use_[owner_[t]] = std::max(last_use_[owner_[t]], n);
  }

  void extend_to_last_uses() {
    for (NodeId n = 0; n <= last_node(); ++n) {
      if (!runs(n)) continue;
      for (const TensorId t : g_.node_inputs(n)) use(t, n);
      for (const TensorId t : g_.node_outputs(n)) use(t, n);  // written even if never read
    }
    for (const TensorId t : g_.graph_outputs) use(t, last_node());
    for (TensorId t = 0; t < static_cast<TensorId>(g_.tensor_count()); ++t) {
      if (g_.tensor_role[t] == TensorRole::input) use(t, last_node());
    }
  }

  NodeId first_use(TensorId owner) const noexcept {
    return g_.tensor_role[owner] == TensorRole::input ? 0 : g_.producer[owner];
  }

  bool is_buffer(TensorId t) const noexcept {
    return owner_[t] == t && !g_.is_constant(t) && last_use_[t] != kNone && first_use(t) != kNone;
  }

  MemoryPlan sweep() const {
    MemoryPlan plan;
    Count weights = 0, inputs = 0, all = 0;
    std::vector<std::int64_t> change(g_.node_count() + 1, 0);
    for (TensorId t = 0; t < static_cast<TensorId>(g_.tensor_count()); ++t) {
      if (!g_.is_constant(t) && !is_buffer(t)) continue;
      const std::int64_t bytes = buffer_bytes(t);
      all += bytes;
      check_total(all);
      if (g_.is_constant(t)) {
        weights += bytes;
        continue;
      }
      if (g_.tensor_role[t] == TensorRole::input) inputs += bytes;
      change[first_use(t)] += bytes;
      change[last_use_[t] + 1] -= bytes;
    }
    plan.weight_bytes = weights.value();
    plan.input_bytes = inputs.value();
    plan.live_bytes.resize(g_.node_count());
    std::int64_t live = 0;
    for (NodeId n = 0; n <= last_node(); ++n) {
      live += change[n];
      plan.live_bytes[n] = live;
      if (!runs(n) || (plan.peak_node != kNone && live <= plan.peak_activation_bytes)) continue;
      plan.peak_activation_bytes = live;
      plan.peak_node = n;
    }
    if (plan.peak_node == kNone) plan.peak_activation_bytes = plan.input_bytes;  // nothing runs
    name_peak(plan);
    return plan;
  }

  void name_peak(MemoryPlan& plan) const {
    std::vector<std::pair<std::int64_t, TensorId>> alive;
    const NodeId at = std::max(plan.peak_node, 0);
    for (TensorId t = 0; t < static_cast<TensorId>(g_.tensor_count()); ++t) {
      if (is_buffer(t) && first_use(t) <= at && at <= last_use_[t]) alive.emplace_back(-buffer_bytes(t), t);
    }
    std::sort(alive.begin(), alive.end());
    for (const auto& [negative_bytes, t] : alive) {
      plan.peak_tensors.push_back(t);
      plan.peak_producers.push_back(g_.producer[t]);
      plan.peak_bytes.push_back(-negative_bytes);
    }
  }

  const OpGraph& g_;
  MemoryOptions options_;
  std::vector<TensorId> owner_;   // [T] the tensor whose buffer it lies in; kNone where no running node makes it
  std::vector<NodeId> last_use_;  // [T] of owners: the last running node that touches the buffer
};

}  // namespace

std::int64_t detail::buffer_bytes(const OpGraph& graph, TensorId t, const MemoryOptions& options) {
  const int bits = effective_bits(graph.tensor_dtype[t], options.float_as);
  return rounded_bytes(bytes_for(graph.elements(t), bits), options.alignment_bytes);
}

std::int64_t detail::rounded_bytes(std::int64_t bytes, std::int64_t alignment_bytes) {
  const std::int64_t rest = bytes % alignment_bytes;
  return rest == 0 ? bytes : (Count(bytes) + (alignment_bytes - rest)).value();
}

void detail::check_options(const MemoryOptions& options) {
  if (options.alignment_bytes < 1) {
    throw Error(ErrorCode::argument,
                "alignment_bytes is " + std::to_string(options.alignment_bytes) + "; it must be 1 or more");
  }
  if (options.float_as != DType::undefined && !is_floating(options.float_as)) {
    throw Error(ErrorCode::argument, "float_as is " + std::string(dtype_name(options.float_as)) +
                                         "; only floating types can stand for floating tensors");
  }
}

MemoryEvents memory_events(const OpGraph& graph, DType float_as) {
  const MemoryOptions options{float_as, 1};
  detail::check_options(options);
  return Planner(graph, options).events();
}

MemoryPlan plan_memory(const OpGraph& graph, const MemoryOptions& options) {
  detail::check_options(options);
  return Planner(graph, options).plan();
}

}  // namespace perfpass
