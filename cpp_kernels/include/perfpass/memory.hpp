// The memory planner: liveness of tensors over the execution order.
#pragma once

#include <cstdint>
#include <vector>

#include "perfpass/cost.hpp"
#include "perfpass/graph.hpp"

namespace perfpass {

struct MemoryOptions {
  DType float_as = DType::undefined;  // as in CostOptions
  /// Every live buffer is rounded up to a multiple of this many bytes (torch's caching allocator: 512; 1: exact).
  std::int64_t alignment_bytes = 1;
};

/// A tensor lives from its producer to its last reader; views and in-place outputs share the buffer of their source;
/// graph inputs and outputs live from start to end of the run; weights always.
struct MemoryPlan {
  std::int64_t weight_bytes = 0;           // weights and literals, each once
  std::int64_t input_bytes = 0;            // graph inputs
  std::int64_t peak_activation_bytes = 0;  // largest sum of live buffers, inputs included, weights not
  NodeId peak_node = kNone;                // the node during which it is reached
  std::vector<TensorId> peak_tensors;      // live then, largest first
  std::vector<NodeId> peak_producers;      // producers of those tensors (kNone for inputs), same order
  std::vector<std::int64_t> live_bytes;    // [N] live while each node runs
};

MemoryPlan plan_memory(const OpGraph& graph, const MemoryOptions& options = {});

}  // namespace perfpass
