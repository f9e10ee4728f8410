#include "features/patterns.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "costs/node.hpp"

namespace perfpass::detail {
namespace {

using enum OpKind;
const OperatorSet kMasking{add, mul, div, where, cast, clip};
const OperatorSet kMaskMaker{matmul, add, mul, div, where, cast};
const OperatorSet kScaling{mul, div};
const OperatorSet kSquare{OpKind::pow, mul};
const OperatorSet kPolynomial{add, mul, OpKind::pow};
const OperatorSet kRoot{OpKind::sqrt, rsqrt};
const OperatorSet kMean{reduce_mean};
const OperatorSet kVariance{reduce_mean, reduce_variance};
const OperatorSet kAround{conv, conv_transpose, dense, max_pool};
const OperatorSet kAfterSoftmax{cast, dropout, identity};
const OperatorSet kWithWeight{conv, dense, matmul};
const OperatorSet kClipped{relu, clip};
const OperatorSet kJoining{reshape, expand};
const OperatorSet kShown{reshape, expand, transpose, copy};
constexpr int kMostMasking = 4;         // operators between the first product and the softmax
constexpr int kCube = 3;                // the degree of the cubic in a GELU by tanh, and its power
constexpr std::size_t kCubicParts = 8;  // of which it is made at most; five or six are usual
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

namespace {

/// What makes an operand, behind a reshape.
NodeId shown_maker(const Links& links, NodeId n, std::size_t slot) {
  const NodeId maker = links.maker(n, slot);
  return links.is(maker, reshape) ? links.maker(maker, 0) : maker;
}

/// x s + (bias - mean s) with s = weight / sqrt(variance + eps), as TensorFlow's and PyTorch's converters write it.
void add_sums(const Links& links, Fused& found) {
  links.each(add, [&](NodeId sum) {
    const std::size_t second = links.is(shown_maker(links, sum, 1), sub) ? 1 : 0;
    const NodeId difference = shown_maker(links, sum, second), product = shown_maker(links, sum, 1 - second);
    const NodeId subtracted = shown_maker(links, difference, 1);
    if (links.traced(sum) || !links.is(difference, sub) || !links.is(product, mul) || !links.is(subtracted, mul))
      return;
    const std::size_t of_mean = links.is(shown_maker(links, subtracted, 0), reduce_mean) ? 0 : 1;
    const NodeId mean = shown_maker(links, subtracted, of_mean), scale = shown_maker(links, subtracted, 1 - of_mean);
    const std::size_t of_scale = shown_maker(links, product, 0) == scale ? 0 : 1;
    if (!links.is(mean, reduce_mean) || shown_maker(links, product, of_scale) != scale) return;
    if (links.tensor(mean, 0) != links.tensor(product, 1 - of_scale)) return;
    const bool weighted = links.is(scale, mul) && links.has_constant(scale);
    const NodeId root = weighted ? shown_maker(links, scale, links.data_slot(scale)) : scale;
    const NodeId epsilon = links.maker(root, 0);
    if (!links.is(root, rsqrt) || !links.is(epsilon, add)) return;
    const NodeId variance = shown_maker(links, epsilon, links.data_slot(epsilon));
    if (!links.is(variance, kVariance)) return;
    const NodeId square = links.is(variance, reduce_mean) ? links.maker(variance, 0) : kNone;
    const NodeId centred =
        links.is(square, kSquare) ? links.maker(square, 0) : square;  // or the square of a difference
    if (square != kNone && (!links.is(centred, sub) || shown_maker(links, centred, 1) != mean)) return;
    const NodeId scaled = weighted ? kNone : links.after_with_constant(sum, mul);
    const NodeId shifted = links.after_with_constant(scaled, add);
    const NodeId last = shifted != kNone ? shifted : scaled != kNone ? scaled : sum;
    found.anchor.push_back(last);
    for (const NodeId n : {mean, centred, square, variance, epsilon, root, scale, subtracted, difference, product, sum,
                           scaled, shifted}) {
      if (n != last) found.part(n);
    }
  });
}

}  // namespace

Fused layer_norms(const Links& links) {
  Fused found{layer_norm, {}, {}};
  links.each(kRoot, [&](NodeId root) {
    const NodeId epsilon = links.maker(root, 0);
    if (!links.is(epsilon, add)) return;
    const bool traced = links.traced(root);
    const OperatorSet& known = traced ? kMean : kVariance;
    NodeId variance = links.maker(epsilon, 0);
    if (!links.is(variance, known)) variance = links.maker(epsilon, 1);
    if (!links.is(variance, known) || (traced && links.is(root, rsqrt))) return;
    NodeId reciprocal_node = kNone, divided = links.is(root, rsqrt) ? links.after(root, mul) : links.after(root, div);
    if (!traced && links.is(divided, div) && links.data_slot(divided) == 1) {  // a constant by the root
      reciprocal_node = divided;
      divided = links.after(reciprocal_node, mul);
    }
    if (divided == kNone) return;
    const NodeId inverse = reciprocal_node != kNone ? reciprocal_node : root;
    const NodeId beside = links.maker(divided, links.maker(divided, 0) == inverse ? 1 : 0);
    const bool in_parts = links.is(variance, reduce_mean);
    const NodeId square = in_parts ? links.maker(variance, 0) : kNone;
    if (in_parts && !links.is(square, kSquare)) return;
    const NodeId centred = in_parts ? links.maker(square, 0) : beside;
    if (!links.is(centred, sub) || (links.is(divided, mul) && centred != beside)) return;
    const NodeId mean = links.maker(centred, 1);
    if (!links.is(mean, reduce_mean) || (!in_parts && links.tensor(variance, 0) != links.tensor(centred, 0))) return;
    const NodeId scaled = links.after_with_constant(divided, mul);
    const NodeId shifted = links.after_with_constant(scaled, add);
    const std::array chain{mean, centred, square, variance, epsilon, root, reciprocal_node, divided, scaled, shifted};
    const NodeId last = shifted != kNone ? shifted : scaled != kNone ? scaled : divided;
    found.anchor.push_back(last);
    for (const NodeId n : chain) {
      if (n != last) found.part(n);
    }
  });
  add_sums(links, found);
  return std::move(found).once();
}

namespace {

/// The degree in `x` of a tensor that sums, products and a power of it make, each read once, which go to `parts`; none
/// for any other tensor.
std::optional<int> degree(const Links& links, TensorId t, TensorId x, std::vector<NodeId>& parts) {
  if (t == x) return 1;
  if (t == kNone || links.constant(t)) return 0;
  const NodeId n = links.maker_of(t);
  if (!links.is(n, kPolynomial) || links.next(n) == kNone || parts.size() == kCubicParts) return {};
  parts.push_back(n);
  const auto first = degree(links, links.tensor(n, 0), x, parts), second = degree(links, links.tensor(n, 1), x, parts);
  if (!first || !second) return {};
  if (links.is(n, add)) return std::max(*first, *second);
  if (links.is(n, mul)) return *first + *second;
  return *second == 0 ? std::optional(kCube * *first) : std::nullopt;
}

/// x / 2 * (1 + tanh(cubic of x)), the half of x, of the sum, or of the product.
void add_by_tanh(const Links& links, Fused& found) {
  links.each(OpKind::tanh, [&](NodeId node) {
    const NodeId plus_one = links.after_by_number(node, add);
    const NodeId half_sum = links.after_by_number(plus_one, kScaling);
    const NodeId factor = half_sum != kNone ? half_sum : plus_one;
    const NodeId product = links.after(factor, mul);
    if (product == kNone) return;
    const std::size_t beside = links.maker(product, 0) == factor ? 1 : 0;
    const NodeId other = links.maker(product, beside);
    const bool halves =
        half_sum == kNone && links.is(other, kScaling) && links.by_number(other) && links.next(other) == product;
    const NodeId half_product = half_sum != kNone || halves ? kNone : links.after_by_number(product, kScaling);
    if (half_sum == kNone && !halves && half_product == kNone) return;
    const TensorId x = halves ? links.tensor(other, links.data_slot(other)) : links.tensor(product, beside);
    std::vector<NodeId> cubic;
    if (x == kNone || degree(links, links.tensor(node, 0), x, cubic) != kCube) return;
    found.anchor.push_back(node);
    for (const NodeId n : cubic) found.part(n);
    for (const NodeId n : {plus_one, half_sum, halves ? other : kNone, product, half_product}) found.part(n);
  });
}

}  // namespace

Fused gelus(const Links& links, bool fuses) {
  Fused found{gelu, {}, {}};
  if (fuses) add_by_tanh(links, found);
  links.each(erf, [&](NodeId node) {
    const NodeId plus_one = fuses ? links.after_by_number(node, add) : links.after_with_constant(node, add);
    const NodeId times_x = links.after(plus_one, mul);
    if (times_x == kNone) return;
    found.anchor.push_back(node);
    const NodeId scaled = links.maker(node, 0);
    if (links.is(scaled, kScaling) && links.next(scaled) == node) found.part(scaled);
    found.part(plus_one);
    found.part(times_x);
    const NodeId halved =
        fuses ? links.after_by_number(times_x, kScaling) : links.after_with_constant(times_x, kScaling);
    found.part(halved);
    // Half of x, made before: the other operand of the product.
    const NodeId other = links.maker(times_x, links.maker(times_x, 0) == plus_one ? 1 : 0);
    if (halved == kNone && links.is(other, kScaling) && links.next(other) == times_x) found.part(other);
  });
  return std::move(found).once();
}

Fused silus(const Links& links, bool fuses) {
  Fused found{silu, {}, {}};
  links.each(sigmoid, [&](NodeId node) {
    const NodeId product = links.after(node, mul);
    const auto with = [&](TensorId x) { return links.tensor(product, 0) == x || links.tensor(product, 1) == x; };
    if (product == kNone) return;
    NodeId scaled = kNone;
    if (!with(links.tensor(node, 0))) {
      scaled = links.maker(node, 0);
      const bool quick = fuses && links.is(scaled, mul) && links.by_number(scaled) && links.next(scaled) == node;
      if (!quick || !with(links.tensor(scaled, links.data_slot(scaled)))) return;
    }
    found.anchor.push_back(node);
    found.part(scaled);
    found.part(product);
  });
  return std::move(found).once();
}

HardActivations hard_activations(const Links& links) {
  HardActivations found;
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
    if (product == kNone && ((!scales && divided == kNone) || links.traced(node))) return;
    if (product == kNone && scales) divided = kNone;
    if (product != kNone && divided == kNone && !scales) divided = links.after_with_constant(product, kScaling);
    Fused& one = product != kNone ? found.swishes : found.sigmoids;
    one.anchor.push_back(node);
    for (const NodeId n : {scaled, shifted, divided, product}) one.part(n);
  });
  links.each(hard_sigmoid, [&](NodeId node) {
    const NodeId product = product_with(node, links.tensor(node, 0));
    if (product == kNone) return;
    found.swishes.anchor.push_back(node);
    found.swishes.part(product);
  });
  return {std::move(found.swishes).once(), std::move(found.sigmoids).once()};
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

/// Whether a node adds one constant a channel to what it reads.
bool adds_bias(const OpGraph& graph, const Links& links, NodeId n, std::int64_t channels, bool last) {
  if (!links.is(n, add) || !links.has_constant(n)) return false;
  const TensorId bias = links.tensor(n, 1 - links.data_slot(n));
  if (bias == kNone || channels < 2 || graph.elements(bias) != channels) return false;
  return !last || graph.shape(bias).back() == channels;
}

/// The reshape right after a kernel, or none, and the addition of its bias.
std::pair<NodeId, NodeId> bias_behind(const OpGraph& graph, const Links& links, NodeId node) {
  const std::pair<NodeId, NodeId> none{kNone, kNone};
  const auto made = graph.node_outputs(node);
  if (links.is(node, max_pool) || links.tensor(node, 2) != kNone || made.empty() || made[0] == kNone) return none;
  const auto shape = graph.shape(made[0]);
  if (shape.size() < 2) return none;
  const bool last = links.is(node, dense) || graph.attributes[node].channels_last != 0;
  const std::int64_t channels = last ? shape.back() : shape[1];
  // Relay's dense layers take two axes; the others come back behind them.
  const NodeId shown = links.is(node, dense) ? links.after(node, reshape) : kNone;
  const NodeId added = links.next(shown != kNone ? shown : node);
  return adds_bias(graph, links, added, channels, last) ? std::pair{shown, added} : none;
}

}  // namespace

Fused around_kernels(const OpGraph& graph, const Links& links) {
  Fused found{std::nullopt, {}, {}};
  links.each(kAround, [&](NodeId node) {
    if (links.traced(node)) return;
    const NodeId before = links.maker(node, 0);
    const bool padded = !links.is(node, dense) && links.is(before, pad) && links.next(before) == node &&
                        links.pads_with_one_number(before);
    const auto [shown, added] = bias_behind(graph, links, node);
    if (!padded && added == kNone) return;
    found.anchor.push_back(node);
    if (padded) found.part(before);
    found.part(shown);
    found.part(added);
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

/// The transposes, the reshape and (where `scales`) the multiplication by a constant that make an operand of a product
/// of three axes.
void add_views(const OpGraph& graph, const Links& links, NodeId product, std::size_t slot, bool scales,
               std::vector<NodeId>& around) {
  NodeId maker = links.maker(product, slot);
  for (const OpKind op : {transpose, reshape, mul, transpose}) {
    const bool scaled = scales && links.is(maker, kScaling) && links.has_constant(maker);
    if (!(op == mul ? scaled : links.is(maker, op)) || links.next(maker) == kNone) continue;
    around.push_back(maker);
    maker = links.maker(maker, op == mul ? links.data_slot(maker) : 0);
  }
  // Converters move a scale to where the heads are not split yet.
  const NodeId scale = scales && links.is(maker, reshape) && links.next(maker) != kNone ? links.maker(maker, 0) : kNone;
  if (!links.is(scale, kScaling) || !links.has_constant(scale) || links.next(scale) == kNone) return;
  const TensorId number = links.tensor(scale, 1 - links.data_slot(scale));
  if (number != kNone && graph.elements(number) == 1) around.push_back(scale);
}

/// What makes an operand of a product that PyTorch recorded: it multiplies three axes alone, so that heads are shown to
/// it by reshapes of copies, and a query is scaled before.
void add_copies(const Links& links, NodeId product, std::size_t slot, bool scales, std::vector<NodeId>& around) {
  for (NodeId maker = links.maker(product, slot); maker != kNone && links.next(maker) != kNone;) {
    const bool scaled = scales && links.is(maker, kScaling) && links.by_number(maker);
    if (!scaled && !links.is(maker, kShown)) return;
    scales = scales && !scaled;
    around.push_back(maker);
    maker = links.maker(maker, scaled ? links.data_slot(maker) : 0);
  }
}

/// What makes a tensor, behind reshapes that show it to one node alone, which go to `shown`.
NodeId behind_reshapes(const Links& links, NodeId n, std::vector<NodeId>& shown) {
  while (links.is(n, reshape) && links.next(n) != kNone) {
    shown.push_back(n);
    n = links.maker(n, 0);
  }
  return n;
}

/// The last axis of what a node makes, 0 for a scalar or nothing.
std::int64_t last_axis(const OpGraph& graph, NodeId n) {
  const auto made = graph.node_outputs(n);
  if (made.empty() || made[0] == kNone) return 0;
  const auto shape = graph.shape(made[0]);
  return shape.empty() ? 0 : shape.back();
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

/// The transpose of a product's result, its heads split before it (by as many reshapes as given) or not, else kNone.
NodeId transposed_result(const OpGraph& graph, const Links& links, NodeId product, int reshapes) {
  NodeId made = product;
  for (int hop = 0; hop < reshapes; ++hop) {
    const NodeId split = links.after(made, reshape);
    if (split == kNone || joins_axes(graph, links, split)) break;
    made = split;
  }
  return links.after(made, transpose);
}

}  // namespace

Attentions attentions(const OpGraph& graph, const Links& links, bool fuses, bool turns) {
  Attentions found;
  const std::map<NodeId, NodeId> guards = guarded(links);
  links.each(softmax, [&](NodeId node) {
    const bool traced = links.traced(node);
    const auto guard = guards.find(node);
    const NodeId chosen = guard == guards.end() ? node : guard->second;
    const NodeId converted = links.after(chosen, kAfterSoftmax);
    NodeId probabilities = converted != kNone ? converted : chosen;
    std::vector<NodeId> around{node, converted};
    bool joined = false;  // the products are of three axes
    for (NodeId shown = kNone; (shown = links.after(probabilities, kJoining)) != kNone; probabilities = shown) {
      around.push_back(shown);
      joined = true;
    }
    const NodeId product = links.after(probabilities, matmul);
    if (product == kNone || (traced && joined && !fuses)) return;
    const auto maker = [&](NodeId n, std::size_t slot, std::vector<NodeId>& shown) {
      return fuses || joined ? behind_reshapes(links, links.maker(n, slot), shown) : links.maker(n, slot);
    };
    NodeId scores = maker(node, 0, around);
    for (int step = 0; step < kMostMasking && links.is(scores, kMasking) && links.next(scores) != kNone; ++step) {
      around.push_back(scores);
      // The mask may stand first: follow the operand that is computed from data.
      std::vector<NodeId> before;
      NodeId upstream = maker(scores, 0, before);
      if (links.constant(links.tensor(scores, 0)) || !links.is(upstream, kMaskMaker)) {
        before.clear();
        upstream = maker(scores, 1, before);
      }
      around.insert(around.end(), before.begin(), before.end());
      scores = upstream;
    }
    if (!links.is(scores, matmul) || last_axis(graph, scores) != last_axis(graph, node)) return;
    found.first.push_back(scores);
    found.second.push_back(product);
    // Relay's importer of ONNX leaves the file's own reshape behind that of the product.
    const NodeId turned = transposed_result(graph, links, product, joined ? 2 : 1);
    around.insert(around.end(), {scores, turned});
    if (traced) around.push_back(links.after(turned, copy));
    if (chosen != node) around.insert(around.end(), {chosen, links.maker(chosen, 0)});
    for (const std::size_t slot : {0U, 1U}) {
      if (traced) {
        add_copies(links, scores, slot, true, around);
      } else if (joined) {
        add_views(graph, links, scores, slot, true, around);
      } else {
        around.insert(around.end(), {scaling_of(links, scores, slot), transposed(links, scores, slot)});
      }
    }
    if (traced) {
      add_copies(links, product, 1, false, around);
    } else if (joined) {
      add_views(graph, links, product, 1, false, around);
    } else {
      around.push_back(transposed(links, product, 1));
    }
    for (const NodeId n : around) {
      if (n != kNone && (turns || !links.is(n, transpose))) found.parts.push_back({n, product});
    }
  });
  return found;
}

namespace {

/// The tensor that a concatenation of two slices shows turned around along one axis, else kNone.
TensorId rolled(const OpGraph& graph, const Links& links, NodeId n) {
  const TensorId source = links.tensor(links.maker(n, 0), 0);
  const auto made = graph.node_outputs(n);
  if (!links.is(n, concat) || links.traced(n) || graph.node_inputs(n).size() != 2 || source == kNone) return kNone;
  for (const std::size_t slot : {0U, 1U}) {
    const NodeId part = links.maker(n, slot);
    if (!links.is(part, slice) || links.next(part) != n || links.tensor(part, 0) != source) return kNone;
  }
  const bool whole = !made.empty() && made[0] != kNone && std::ranges::equal(graph.shape(made[0]), graph.shape(source));
  return whole ? source : kNone;
}

}  // namespace

Fused rolls(const OpGraph& graph, const Links& links) {
  Fused found{roll, {}, {}};
  std::vector<bool> inner(links.count());  // of a roll along several axes, which is one operator of PyTorch
  const auto before = [&](NodeId n) {
    const NodeId maker = links.maker_of(rolled(graph, links, n));
    return maker != kNone && links.readers(maker) == 2 && rolled(graph, links, maker) != kNone ? maker : kNone;
  };
  links.each(concat, [&](NodeId n) {
    if (const NodeId first = before(n); first != kNone) inner[first] = true;
  });
  links.each(concat, [&](NodeId n) {
    if (inner[n] || rolled(graph, links, n) == kNone) return;
    found.anchor.push_back(n);
    for (NodeId one = n; one != kNone; one = before(one)) {
      if (one != n) found.part(one);
      for (const std::size_t slot : {0U, 1U}) found.part(links.maker(one, slot));
    }
  });
  return found;
}

bool by_strides(const OpGraph& graph, const Links& links, NodeId n) {
  if (!kStrided(graph.op[n])) return false;
  if (graph.op[n] == gather) {
    const TensorId index = links.tensor(n, 1);
    // Indices that follow from shapes alone, as Relax writes them, are learned as copies of traces.
    const bool fixed = links.traced(n) ? index != kNone && graph.is_constant(index) : links.constant(index);
    return fixed && graph.elements(index) == 1;
  }
  const NodeId next = graph.op[n] == transpose ? links.after(n, reshape) : kNone;
  if (next == kNone || !joins_axes(graph, links, next)) return true;
  std::vector<NodeId> shown;
  return !links.traced(n) && links.is(behind_reshapes(links, links.maker(n, 0), shown), attention);
}

namespace {

/// What a node reads and makes first, kNone where there is none.
std::pair<TensorId, TensorId> ends(const OpGraph& graph, const Links& links, NodeId n) {
  const auto made = graph.node_outputs(n);
  return {links.tensor(n, 0), made.empty() ? kNone : made[0]};
}

/// Whether a transpose moves axes of one element past others, none of which are alike: a reshape.
bool keeps_order(const OpGraph& graph, TensorId read, TensorId made) {
  const auto long_axes = [&](TensorId t) {
    std::vector<std::int64_t> found;
    std::ranges::copy_if(graph.shape(t), std::back_inserter(found), [](std::int64_t d) { return d != 1; });
    return found;
  };
  std::vector<std::int64_t> axes = long_axes(read);
  if (axes != long_axes(made)) return false;
  std::ranges::sort(axes);
  return std::ranges::adjacent_find(axes) == axes.end();
}

/// Whether a transpose swaps the last two axes for a matrix product alone, behind views, or a scale of its own.
bool swaps_for_product(const OpGraph& graph, const Links& links, NodeId n, TensorId read, TensorId made) {
  const auto from = graph.shape(read), to = graph.shape(made);
  const std::size_t rank = from.size();
  if (rank < 2 || rank != to.size() || from[rank - 1] != to[rank - 2] || from[rank - 2] != to[rank - 1]) return false;
  if (!std::ranges::equal(from.first(rank - 2), to.first(rank - 2))) return false;
  NodeId reader = links.next(n);
  while (links.is(reader, kJoining) || links.is(reader, copy)) reader = links.next(reader);
  if (links.is(reader, kScaling) && links.by_number(reader)) reader = links.next(reader);
  return links.is(reader, matmul);
}

}  // namespace

bool turns_for_free(const OpGraph& graph, const Links& links, NodeId n) {
  const auto [read, made] = ends(graph, links, n);
  if (graph.op[n] != transpose || read == kNone || made == kNone) return false;
  return keeps_order(graph, read, made) || swaps_for_product(graph, links, n, read, made);
}

bool shown_by_pytorch(const OpGraph& graph, const Links& links, NodeId n) {
  const auto [read, made] = ends(graph, links, n);
  const bool shows = graph.attributes[n].view != 0 && links.traced(n) && kStrided(graph.op[n]);
  if (!shows || read == kNone || made == kNone) return false;
  return graph.op[n] == transpose || graph.elements(read) != graph.elements(made);
}

std::vector<bool> splits_in_parts(const OpGraph& graph, const Links& links, std::vector<bool>& others) {
  std::map<TensorId, std::vector<NodeId>> parts;
  for (NodeId n = 0; n < links.count(); ++n) {
    const TensorId index = links.is(n, gather) ? links.tensor(n, 1) : kNone;
    const bool one = index != kNone && links.constant(index) && graph.elements(index) == 1;
    const bool selected = graph.op[n] == slice && graph.strings.at(graph.source_op[n]) == "aten.select";
    const auto [read, made] = ends(graph, links, n);
    if ((one || selected) && read != kNone && made != kNone && !links.constant(read)) parts[read].push_back(n);
  }
  std::vector<bool> found(links.count());
  for (const auto& [read, nodes] : parts) {
    const auto size = [&](NodeId n) { return graph.elements(graph.node_outputs(n)[0]); };
    const bool alike = std::ranges::all_of(nodes, [&](NodeId n) { return size(n) == size(nodes.front()); });
    const auto count = static_cast<std::int64_t>(nodes.size());
    if (count < 2 || !alike || graph.elements(read) / count != size(nodes.front())) continue;
    found[nodes.front()] = true;
    for (std::size_t i = 1; i < nodes.size(); ++i) others[nodes[i]] = true;
  }
  return found;
}

std::vector<bool> copies_for_pytorch(const OpGraph& graph, const Links& links, bool strided) {
  std::vector<bool> found(links.count());
  const auto source = [&](NodeId n) { return graph.strings.at(graph.source_op[n]); };
  links.each(copy, [&](NodeId n) {
    const NodeId next = links.after(n, reshape);
    const bool for_itself = source(n) == "aten.clone" || source(n) == "aten.contiguous";
    found[n] = for_itself && (!strided || next == kNone || !joins_axes(graph, links, next));
  });
  links.each(identity, [&](NodeId n) {
    const NodeId whole = links.maker(n, 0);
    if (whole != kNone && source(n) == "alias_after_write") found[whole] = false;
  });
  return found;
}

namespace {

/// Whether a node's operands are dequantized, both of a product and all but constants of anything else.
bool reads_quantized(const OpGraph& graph, const Links& links, NodeId n) {
  if (links.is(n, quantize) || links.is(n, dequantize)) return false;
  const std::size_t size = links.is(n, kWithWeight) ? 2 : graph.node_inputs(n).size();
  bool found = false;
  for (std::size_t slot = 0; slot < size; ++slot) {
    const bool widened = links.is(links.maker(n, slot), dequantize);
    const TensorId read = links.tensor(n, slot);
    const bool aside = read == kNone || links.constant(read);
    if (!widened && (!aside || links.is(n, kWithWeight))) return false;
    found = found || widened;
  }
  return found;
}

}  // namespace

Quantized quantized(const OpGraph& graph, const Links& links) {
  Quantized found{std::vector<bool>(graph.node_count()), {}};
  std::vector<std::int32_t> units_of(graph.node_count());  // of a node's readers, those in 8 bits
  std::vector<NodeId> last(graph.node_count(), kNone);     // of these
  for (NodeId n = 0; n < links.count(); ++n) {
    if (!reads_quantized(graph, links, n)) continue;
    const NodeId clipped = links.is(n, kWithWeight) ? links.after(n, kClipped) : kNone;
    const NodeId narrowed = links.after(clipped != kNone ? clipped : n, quantize);
    // A product in 8 bits may leave its sums wide; convolutions that do are run in floats.
    if (narrowed == kNone && !links.is(n, dense) && !links.is(n, matmul)) continue;
    found.units[n] = true;
    if (narrowed != kNone) {
      if (clipped != kNone) found.parts.push_back({clipped, n});
      found.parts.push_back({narrowed, n});
    }
    for (std::size_t slot = 0; slot < graph.node_inputs(n).size(); ++slot) {
      const NodeId maker = links.maker(n, slot);
      if (!links.is(maker, dequantize)) continue;
      ++units_of[maker];
      last[maker] = n;
    }
  }
  links.each(dequantize, [&](NodeId n) {
    if (units_of[n] > 0 && units_of[n] >= links.readers(n)) found.parts.push_back({n, last[n]});
  });
  return found;
}

}  // namespace perfpass::detail
