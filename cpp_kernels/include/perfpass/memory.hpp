// The memory planner: liveness of tensors over the execution order.
#pragma once

#include <cstdint>
#include <vector>

#include "perfpass/cost.hpp"
#include "perfpass/export.hpp"
#include "perfpass/graph.hpp"

namespace perfpass {

struct MemoryOptions {
  DType float_as = DType::undefined;  // as in CostOptions
  /// Every buffer, weights included, is rounded up to a multiple of this many bytes (torch's caching allocator: 512; 1:
  /// exact).
  std::int64_t alignment_bytes = 1;
  /// Of a training step: CUDA's autocast over fp32 weights chooses between float_as and fp32, operator by operator.
  bool autocast = false;
};

/// A tensor lives from its producer to its last reader; views and in-place outputs share the buffer of their source,
/// through chains of them; graph inputs live during the whole run, graph outputs until its end, weights always. Nodes
/// that never run (repeat 0) neither allocate nor keep anything alive.
struct MemoryPlan {
  std::int64_t weight_bytes = 0;           // weights and literals, each once
  std::int64_t input_bytes = 0;            // graph inputs
  std::int64_t peak_activation_bytes = 0;  // largest sum of live buffers, inputs included, weights not
  NodeId peak_node = kNone;                // the first node during which it is reached
  std::vector<TensorId> peak_tensors;      // owners of the buffers live then, largest first, then by id
  std::vector<NodeId> peak_producers;      // producers of those tensors (kNone for inputs), same order
  std::vector<std::int64_t> peak_bytes;    // sizes of those buffers, same order; they sum to peak_activation_bytes
  std::vector<std::int64_t> live_bytes;    // [N] live while each node runs
};

/// Error(argument) for an alignment below 1 or a float_as that is not floating, Error(limit) past 2^62 bytes in all.
PERFPASS_API MemoryPlan plan_memory(const OpGraph& graph, const MemoryOptions& options = {});

/// A training step of a forward graph: what autograd keeps of it (the tensors that the gradients of its operators read
/// again), and the most that is alive in the backward pass.
struct SavedActivations {
  std::int64_t saved_bytes = 0;  // alive when the loss begins
  std::int64_t backward_bytes =
      0;  // inputs, results, saved tensors, gradients of activations, the loss's own: at the peak
  std::int64_t gradient_bytes = 0;  // of weights, at the same moment
  std::vector<TensorId> tensors;    // owners of the saved buffers, largest first, then by id
};
/// Each buffer counts once (views and in-place results share that of their source); weights do not count, inputs do.
/// The loss is cross entropy of every floating result but caches ("present..."): log-probabilities, and one gradient of
/// them at a time, in fp32 or wider. Gradients of weights did not exist before. Errors as plan_memory.
PERFPASS_API SavedActivations saved_activations(const OpGraph& graph, const MemoryOptions& options = {});

}  // namespace perfpass
