// What exporters write out in parts, found in a graph: the nodes that every runtime runs as one.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "features/links.hpp"
#include "perfpass/graph.hpp"

namespace perfpass::detail {

/// A node that vanishes into another.
struct Part {
  NodeId node, into;
};

/// Nodes that become one: each of `anchor` stays, as operator `op`; `parts` vanish.
struct Fused {
  OpKind op;
  std::vector<NodeId> anchor;
  std::vector<Part> parts;

  /// Of the last anchor.
  void part(NodeId n) {
    if (n != kNone) parts.push_back({n, anchor.back()});
  }
  /// A part of two patterns vanishes once.
  Fused once() && {
    std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.node < b.node; });
    const auto same = [](const Part& a, const Part& b) { return a.node == b.node; };
    parts.erase(std::unique(parts.begin(), parts.end(), same), parts.end());
    return std::move(*this);
  }
};

/// softmax(scale * q k + mask) v: both products, which become one, and what stands around them.
struct Attentions {
  std::vector<NodeId> first, second;
  std::vector<Part> parts;
};

/// (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias, as exporters before opset 17 write it.
Fused layer_norms(const Links& links);
/// GELU: x / sqrt(2) -> erf -> + 1 -> * x -> / 2, the halving before or after.
Fused gelus(const Links& links);
/// SiLU: x * sigmoid(x).
Fused silus(const Links& links);
/// Hard swish: x * clip(x + 3, 0, 6) / 6, also with the sixth taken before the addition, or of the product.
Fused hard_swishes(const Links& links);
/// Products with a weight, and the addition of a constant right after: one kernel.
Fused linears(const OpGraph& graph, const Links& links);
Attentions attentions(const OpGraph& graph, const Links& links);
/// Whether a node shows what it reads by other strides: transposes, splits, slices, expansions and one fixed index.
/// Transposes whose axes are joined next are copied, as torch has to.
bool by_strides(const OpGraph& graph, const Links& links, NodeId n);

}  // namespace perfpass::detail
