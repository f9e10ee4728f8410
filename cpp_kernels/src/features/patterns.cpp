#include "features/patterns.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "costs/node.hpp"

namespace perfpass::detail {
namespace {

using enum OpKind;
const OperatorSet kMasking{add, mul, div, where, cast, clip};
const OperatorSet kMaskMaker{matmul, add, mul, div, where, cast};
const OperatorSet kScaling{mul, div};
const OperatorSet kSquare{OpKind::pow, mul};
const OperatorSet kAfterSoftmax{cast, dropout, identity};
// What torch does by changing strides, and a file by an operator of its own.
const OperatorSet kStrided{transpose, split, slice, expand, gather};

/// Whether a reshape makes one axis of several, which a transposed tensor cannot be shown as.
bool joins_axes(const OpGraph& graph, const Links& links, NodeId reshape_node) {
  const TensorId read = links.tensor(reshape_node, 0);
  const auto made = graph.node_outputs(reshape_node);
  if (read == kNone || made.empty() || made[0] == kNone) return true;
  const auto from = graph.shape(read);
  std::size_t next = 0;
  std::int64_t left = 1;  // of the axis that is being split
  for (const std::int64_t d : graph.shape(made[0])) {
    while (left == 1 && next < from.size()) left = from[next++];
    if (d == 0 || left % d != 0) return true;
    left /= d;
  }
  while (left == 1 && next < from.size()) left = from[next++];
  return left != 1;
}

}  // namespace

Fused layer_norms(const Links& links) {
  Fused found{layer_norm, {}, {}};
  links.each(sqrt, [&](NodeId root) {
    const NodeId epsilon = links.maker(root, 0);
    if (!links.is(epsilon, add)) return;
    NodeId variance = links.maker(epsilon, 0);
    if (!links.is(variance, reduce_mean)) variance = links.maker(epsilon, 1);
    if (!links.is(variance, reduce_mean)) return;
    const NodeId square = links.maker(variance, 0);
    if (!links.is(square, kSquare)) return;
    const NodeId centred = links.maker(square, 0);
    if (!links.is(centred, sub)) return;
    const NodeId mean = links.maker(centred, 1);
    const NodeId divided = links.after(root, div);
    if (!links.is(mean, reduce_mean) || divided == kNone) return;
    const NodeId scaled = links.after_with_constant(divided, mul);
    const NodeId shifted = links.after_with_constant(scaled, add);
    const std::array chain{mean, centred, square, variance, epsilon, root, divided, scaled, shifted};
    const NodeId last = shifted != kNone ? shifted : scaled != kNone ? scaled : divided;
    found.anchor.push_back(last);
    for (const NodeId n : chain) {
      if (n != last) found.part(n);
    }
  });
  return std::move(found).once();
}

Fused gelus(const Links& links) {
  Fused found{gelu, {}, {}};
  links.each(erf, [&](NodeId node) {
    const NodeId plus_one = links.after_with_constant(node, add);
    const NodeId times_x = links.after(plus_one, mul);
    if (times_x == kNone) return;
    found.anchor.push_back(node);
    const NodeId scaled = links.maker(node, 0);
    if (links.is(scaled, kScaling) && links.next(scaled) == node) found.part(scaled);
    found.part(plus_one);
    found.part(times_x);
    const NodeId halved = links.after_with_constant(times_x, kScaling);
    found.part(halved);
    // Half of x, made before: the other operand of the product.
    const NodeId other = links.maker(times_x, links.maker(times_x, 0) == plus_one ? 1 : 0);
    if (halved == kNone && links.is(other, kScaling) && links.next(other) == times_x) found.part(other);
  });
  return std::move(found).once();
}

Fused silus(const Links& links) {
  Fused found{silu, {}, {}};
  links.each(sigmoid, [&](NodeId node) {
    const NodeId product = links.after(node, mul);
    const TensorId x = links.tensor(node, 0);
    if (product == kNone || (links.tensor(product, 0) != x && links.tensor(product, 1) != x)) return;
    found.anchor.push_back(node);
    found.part(product);
  });
  return found;
}

Fused hard_swishes(const Links& links) {
  Fused found{hard_swish, {}, {}};
  const auto product_with = [&](NodeId n, TensorId x) {
    const NodeId product = links.after(n, mul);
    return product != kNone && (links.tensor(product, 0) == x || links.tensor(product, 1) == x) ? product : kNone;
  };
  links.each(clip, [&](NodeId node) {
    const NodeId shifted = links.maker(node, 0);
    if (!links.is(shifted, add) || !links.has_constant(shifted) || links.next(shifted) != node) return;
    NodeId scaled = links.maker(shifted, links.data_slot(shifted));
    const bool divides = links.is(scaled, div) && links.data_slot(scaled) == 1;  // a constant by x
    const bool scales =
        links.is(scaled, kScaling) && links.has_constant(scaled) && links.next(scaled) == shifted && !divides;
    if (!scales) scaled = kNone;
    const NodeId first = scales ? scaled : shifted;
    const TensorId x = links.tensor(first, links.data_slot(first));
    NodeId divided = links.after_with_constant(node, kScaling);
    const NodeId product = product_with(divided != kNone ? divided : node, x);
    if (product == kNone) return;
    if (divided == kNone && !scales) divided = links.after_with_constant(product, kScaling);
    found.anchor.push_back(node);
    for (const NodeId n : {scaled, shifted, divided, product}) found.part(n);
  });
  links.each(hard_sigmoid, [&](NodeId node) {
    const NodeId product = product_with(node, links.tensor(node, 0));
    if (product == kNone) return;
    found.anchor.push_back(node);
    found.part(product);
  });
  return std::move(found).once();
}

namespace {

/// Whether a tensor is a weight matrix seen through views, the same one for every sample.
bool for_all_samples(const OpGraph& graph, TensorId t) {
  const TensorId weight = weight_behind(graph, t);
  const auto shape = graph.shape(t);
  return weight != kNone && shape.size() >= 2 &&
         graph.elements(weight) == (Count(shape[shape.size() - 2]) * shape.back()).value();
}

}  // namespace

Fused linears(const OpGraph& graph, const Links& links) {
  Fused found{dense, {}, {}};
  links.each(matmul, [&](NodeId node) {
    const TensorId second = links.tensor(node, 1);
    if (second == kNone || (graph.tensor_role[second] != TensorRole::weight && !for_all_samples(graph, second))) return;
    found.anchor.push_back(node);
    found.part(links.after_with_constant(node, add));
  });
  return found;
}

namespace {

/// The multiplication by a constant that makes an operand of a product (through a transpose), else kNone.
NodeId scaling_of(const Links& links, NodeId product, std::size_t slot) {
  NodeId maker = links.maker(product, slot);
  if (links.is(maker, transpose)) maker = links.maker(maker, 0);
  const bool scales = links.is(maker, kScaling) && links.has_constant(maker) && links.next(maker) != kNone;
  return scales ? maker : kNone;
}

/// The transpose that makes an operand of a product, else kNone.
NodeId transposed(const Links& links, NodeId product, std::size_t slot) {
  const NodeId maker = links.maker(product, slot);
  return links.is(maker, transpose) && links.next(maker) != kNone ? maker : kNone;
}

/// Rows of nothing but masked scores are no number after a softmax; exporters choose zero there: `where(is_nan(p), 0,
/// p)`, by the softmax that is read twice.
std::map<NodeId, NodeId> guarded(const Links& links) {
  std::map<NodeId, NodeId> found;
  links.each(where, [&](NodeId node) {
    const NodeId test = links.maker(node, 0), rows = links.maker(test, 0);
    const bool guards = links.is(test, is_special) && links.next(test) == node && links.is(rows, softmax);
    const bool chosen = links.maker(node, 1) == rows || links.maker(node, 2) == rows;
    if (guards && chosen && links.readers(rows) == 2) found[rows] = node;
  });
  return found;
}

/// The transpose of a product's result, its heads split before it or not, else kNone.
NodeId transposed_result(const OpGraph& graph, const Links& links, NodeId product) {
  const NodeId split = links.after(product, reshape);
  return links.after(split != kNone && !joins_axes(graph, links, split) ? split : product, transpose);
}

}  // namespace

Attentions attentions(const OpGraph& graph, const Links& links) {
  Attentions found;
  const std::map<NodeId, NodeId> guards = guarded(links);
  links.each(softmax, [&](NodeId node) {
    NodeId scores = links.maker(node, 0);
    std::array<NodeId, 4> between;
    for (NodeId& step : between) {
      const bool masked = links.is(scores, kMasking) && links.next(scores) != kNone;
      step = masked ? scores : kNone;
      if (!masked) continue;
      // The mask may stand first: follow the operand that is not made from nothing but constants.
      const NodeId upstream = links.maker(scores, 0);
      scores = links.is(upstream, kMaskMaker) ? upstream : links.maker(scores, 1);
    }
    const auto guard = guards.find(node);
    const NodeId chosen = guard == guards.end() ? node : guard->second;
    const NodeId probabilities = links.after(chosen, kAfterSoftmax);
    const NodeId product = links.after(probabilities != kNone ? probabilities : chosen, matmul);
    if (!links.is(scores, matmul) || product == kNone) return;
    found.first.push_back(scores);
    found.second.push_back(product);
    // Fused kernels read and write any order of heads and positions, so the transposes around them move nothing.
    const std::array around{scores,
                            node,
                            chosen == node ? kNone : links.maker(chosen, 0),
                            chosen == node ? kNone : chosen,
                            probabilities,
                            scaling_of(links, scores, 0),
                            scaling_of(links, scores, 1),
                            transposed(links, scores, 0),
                            transposed(links, scores, 1),
                            transposed(links, product, 1),
                            transposed_result(graph, links, product)};
    for (const auto& some : {std::span<const NodeId>(around), std::span<const NodeId>(between)}) {
      for (const NodeId n : some) {
        if (n != kNone) found.parts.push_back({n, product});
      }
    }
  });
  return found;
}

bool by_strides(const OpGraph& graph, const Links& links, NodeId n) {
  if (!kStrided(graph.op[n])) return false;
  if (graph.op[n] == gather) {
    const TensorId index = links.tensor(n, 1);
    return index != kNone && graph.is_constant(index) && graph.elements(index) == 1;
  }
  const NodeId next = graph.op[n] == transpose ? links.after(n, reshape) : kNone;
  return next == kNone || !joins_axes(graph, links, next);
}

}  // namespace perfpass::detail
