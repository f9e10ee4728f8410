// What exporters write out in parts, found in a graph: the nodes that every runtime runs as one.
//
// Predictors learned from PyTorch's traces. What a trace holds in parts PyTorch ran in parts, so that some spellings
// are put together elsewhere alone: a variance of one operator, biases and padding that stand apart, hard sigmoids and
// products of three axes.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "features/links.hpp"
#include "perfpass/graph.hpp"

namespace perfpass::detail {

/// A node that vanishes into another.
struct Part {
  NodeId node, into;
};

/// Nodes that become one: each of `anchor` stays, as operator `op` where one is given; `parts` vanish.
struct Fused {
  std::optional<OpKind> op;
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

/// What a file computes between dequantized inputs and a quantized output, which runtimes run in 8 bits: `units` [N]
/// are such nodes, and `parts` what widens and narrows around them.
struct Quantized {
  std::vector<bool> units;
  std::vector<Part> parts;
};

/// x * clip(x + 3, 0, 6) / 6, and clip(a x + b, 0, 1) or clip(x + 3, 0, 6) / 6 that is no part of it.
struct HardActivations {
  Fused swishes{OpKind::hard_swish, {}, {}};
  Fused sigmoids{OpKind::hard_sigmoid, {}, {}};
};

/// (x - mean) / sqrt(variance + eps) * weight + bias: the variance in parts, as exporters before opset 17 write it, or
/// one operator; divided by the root or multiplied by its reciprocal; or as a product and a sum, as TensorFlow Lite.
Fused layer_norms(const Links& links);
/// GELU: x / sqrt(2) -> erf -> + 1 -> * x -> / 2, the halving before or after. Where the runtime `fuses`, also of what
/// PyTorch recorded, and by tanh: x / 2 * (1 + tanh(c (x + 0.044715 x^3))), the cube a power or products.
Fused gelus(const Links& links, bool fuses);
/// SiLU: x * sigmoid(x). Where the runtime `fuses`, also the quick GELU: x * sigmoid(1.702 x).
Fused silus(const Links& links, bool fuses);
/// The sixth of a hard swish is also taken before the addition, or of the product.
HardActivations hard_activations(const Links& links);
/// Products with a weight, and the addition of a constant right after: one kernel.
Fused linears(const OpGraph& graph, const Links& links);
/// Convolutions, pooling and dense layers with the zeros that a node of its own puts around what they read, and (those
/// without a bias) with the addition of one constant a channel right after or behind a reshape that keeps the channels
/// last.
Fused around_kernels(const OpGraph& graph, const Links& links);
/// Also with products of three axes, which read and write theirs through reshapes, as Relay has them; so does PyTorch,
/// which runs the parts: what it recorded is one operator where the runtime `fuses`. There reshapes between the
/// products hide none either, which show windows of an image to masks of their own. `turns`: it reads and writes any
/// order of heads and positions, so that the transposes around it are its own.
Attentions attentions(const OpGraph& graph, const Links& links, bool fuses, bool turns);
/// Products between two dequantized operands (a convolution's output is quantized, behind a ReLU or a clip), and
/// whatever else has dequantized inputs beside constants and a quantized output.
Quantized quantized(const OpGraph& graph, const Links& links);
/// Two slices of a tensor put together the other way round, along one axis after another.
Fused rolls(const OpGraph& graph, const Links& links);
/// Whether a node shows what it reads by other strides: transposes, splits, slices, expansions and one fixed index.
/// Transposes whose axes are joined next are copied, as torch has to, but for those of a file behind an attention.
bool by_strides(const OpGraph& graph, const Links& links, NodeId n);
/// Whether runtimes turn a tensor without a copy: as the product reads it, or where no number changes its place.
bool turns_for_free(const OpGraph& graph, const Links& links, NodeId n);
/// [N] the first of the nodes that take one fixed index each of a tensor, all of it together: runtimes run a split.
/// `others` [N]: set for the rest of them.
std::vector<bool> splits_in_parts(const OpGraph& graph, const Links& links, std::vector<bool>& others);
/// Whether PyTorch recorded as other strides what a file has an operator for: a transpose, or a part of a tensor.
bool shown_by_pytorch(const OpGraph& graph, const Links& links, NodeId n);
/// [N] copies that PyTorch makes for itself (`contiguous`), of which a file that is exported has nothing: nothing is
/// written into a part of them, and where transposes are shown by strides (`strided`) no reshape joins axes of them
/// next, which has to copy.
std::vector<bool> copies_for_pytorch(const OpGraph& graph, const Links& links, bool strided);

}  // namespace perfpass::detail
