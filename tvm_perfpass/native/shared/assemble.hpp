// From what a walk has collected to the graph: branches of Ifs, weights among the inputs, transposed weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "values.hpp"

namespace perfpass::ir {

/// The two branches of one If, as ranges of node records.
struct Branches {
  std::int32_t begin, middle, end;
};

struct WalkResult {
  OpGraph graph;
  std::vector<std::int32_t> kernel_group;  // [N]: the fused function a node belongs to, kNone outside
};

/// Floating constants that are no scalars, and quantized weights: bytes of two and more dimensions.
bool is_parameter(DType dtype, std::size_t rank);

/// Error(limit) past kMaxNodes.
void add_node(Records& records, OpKind op, std::int32_t source, const NodeAttributes& attributes,
              std::span<const TensorId> inputs, std::span<const TensorId> outputs, std::int32_t group);

/// Turns inputs that stand where an operator has its parameters into weights, and takes them out of the graph's inputs;
/// a note says how many.
void weights_in_slots(Records& records, std::vector<TensorId>& graph_inputs);

/// Products by a transposed constant matrix read the constant itself, as a compiler folds it; transposes that nobody
/// reads any more go.
void fold_transposed_weights(Records& records, std::span<const TensorId> outputs, std::vector<Branches>& branches);

/// The graph. Of the two branches of every If, the lighter one counts 0 times; inner Ifs come first in `branches`.
WalkResult assemble(Records& records, std::span<const TensorId> graph_inputs, std::span<const TensorId> outputs,
                    std::span<const Branches> branches);

}  // namespace perfpass::ir
