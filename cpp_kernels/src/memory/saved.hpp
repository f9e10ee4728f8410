// What autograd keeps of a forward run, node by node.
#pragma once

#include <cstdint>
#include <vector>

#include "costs/node.hpp"
#include "graph/operator_set.hpp"
#include "perfpass/memory.hpp"

namespace perfpass::detail {

/// Follows a graph in execution order: whose buffers are kept, by which node, and how wide tensors are under autocast.
class Saving {
 public:
  Saving(const OpGraph& graph, const MemoryOptions& options);

  /// The tensor whose buffer it lies in.
  TensorId owner(TensorId t) const noexcept { return owner_[t]; }
  /// The first node whose backward pass reads an owner's buffer, which dies with it; kNone where nothing keeps it.
  NodeId saver(TensorId owner) const noexcept { return saver_[owner]; }
  /// Bytes that a node keeps for itself: inputs cast by autocast, indices.
  Count copied(NodeId n) const noexcept { return copied_[n]; }
  /// Whether its first output lies over its first input.
  bool shares(NodeId n) const noexcept { return shares_[n] != 0; }
  /// Of one tensor's buffer.
  std::int64_t bytes(TensorId t) const { return bytes(t, wide_[t] != 0); }
  /// The same in fp32 where the step runs at fewer bits.
  std::int64_t bytes_of_loss(TensorId t) const;
  /// Whether a precision is chosen for it, and it may have a gradient.
  bool is_cast(TensorId t) const noexcept;
  /// Whether autocast runs it at 16 bits, with copies of its weights.
  bool runs_at_half(NodeId n) const noexcept;

 private:
  void visit(NodeId n);
  void save(TensorId t, NodeId n);
  std::int64_t bytes(TensorId t, bool wide) const;

  const OpGraph& g_;
  MemoryOptions options_;
  std::vector<TensorId> owner_;       // [T]
  std::vector<NodeId> saver_;         // [T] of owners
  std::vector<Count> copied_;         // [N]
  std::vector<std::uint8_t> shares_;  // [N]
  std::vector<std::uint8_t> wide_;    // [T] of autocast: fp32
};

}  // namespace perfpass::detail
