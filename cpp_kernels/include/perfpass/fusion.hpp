// The operator table of a graph as a runtime runs it, when its source wrote operators out in parts.
//
// Exporters spell out what every runtime runs as one kernel: a GELU as five operators, a layer norm as nine, attention
// as two products around a softmax, and each shape as a page of integer arithmetic. Predictors learn from graphs in
// which these are one operator (torch's own trace), so the parts are put together again, in the table alone: the graph,
// its costs and its totals stay exact. A graph that has none of the patterns keeps its table as it is.
#pragma once

#include <cstdint>
#include <vector>

#include "perfpass/cost.hpp"
#include "perfpass/export.hpp"
#include "perfpass/features.hpp"
#include "perfpass/graph.hpp"

namespace perfpass {

/// Where the nodes of a graph went: `row` [N] that holds a node's executions, kNone for nodes that never run and for
/// those that another one's row is put together from, which is then `into` [N], else kNone.
struct Placement {
  std::vector<std::int32_t> row;
  std::vector<NodeId> into;
};

/// [N] 1 for nodes that compute the same for every input of these shapes: shapes, and what is made of these and
/// constants alone.
PERFPASS_API std::vector<std::uint8_t> fixed_nodes(const OpGraph& graph);
/// [N] 1 for those of them that runtimes compute when they load a model: not products, stored weights made wider and
/// operators of stated costs, nor what is made of these.
PERFPASS_API std::vector<std::uint8_t> folded_nodes(const OpGraph& graph);

/// The table with written-out operators put together, without shape arithmetic and operators that do nothing.
/// `strided`: transposes, splits, slices, expansions and a fixed index change strides and move nothing, as in torch,
/// but for transposes whose axes are joined next; where they do not in a runtime that `folds`, those that PyTorch
/// recorded as other strides move bytes too, parts of one tensor are a split, and transposes are free that move no
/// number or swap the last two axes for a product. `folds`: folded nodes are views, whose bytes stay held. `fuses`: the
/// runtime makes one kernel of activations and attention that a model itself computes in parts, which PyTorch runs one
/// by one, and none of the whole numbers that shapes decide. `places`, where asked for: where each node went.
/// Error(argument) if the costs belong to another graph.
PERFPASS_API OperatorTable table_as_run(const OpGraph& graph, const Costs& costs, bool strided, bool folds, bool fuses,
                                        Placement* places = nullptr);

/// The graph as a runtime holds it that runs in 8 bits what table_as_run has in 8 bits: such outputs have the type that
/// they are narrowed to, and what widens and narrows numbers around them shows what it reads.
PERFPASS_API OpGraph narrowed(const OpGraph& graph);

}  // namespace perfpass
