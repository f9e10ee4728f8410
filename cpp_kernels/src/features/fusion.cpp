#include "perfpass/fusion.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "costs/node.hpp"
#include "graph/operator_set.hpp"

namespace perfpass {
namespace {

constexpr double kNothingLeft = 1e-9;  // of a sum and its parts after rounding

using detail::OperatorSet;
using enum OpKind;
const OperatorSet kMasking{add, mul, div, where, cast, clip};
const OperatorSet kMaskMaker{matmul, add, mul, div, where, cast};
const OperatorSet kScaling{mul, div};
const OperatorSet kSquare{OpKind::pow, mul};
const OperatorSet kAfterSoftmax{cast, dropout, identity};
// What torch does by changing strides, and an ONNX file by an operator that moves data.
const OperatorSet kStrided{transpose, split, slice, expand};
const OperatorSet kNothing{identity, dropout, constant};

/// Who makes what a node reads and who reads what it makes; kNone where there is none.
class Links {
 public:
  explicit Links(const OpGraph& graph) : g_(graph), next_(graph.node_count(), kNone) {
    std::vector<std::int32_t> readers(graph.node_count(), 0);
    for (std::size_t e = 0; e < graph.edge_count(); ++e) {
      ++readers[graph.edge_producer[e]];
      next_[graph.edge_producer[e]] = graph.edge_consumer[e];
    }
    for (std::size_t n = 0; n < readers.size(); ++n) {
      if (readers[n] != 1) next_[n] = kNone;
    }
    for (const TensorId t : graph.graph_outputs) {
      if (t != kNone && graph.producer[t] != kNone) next_[graph.producer[t]] = kNone;  // the caller reads it too
    }
  }

  NodeId count() const noexcept { return static_cast<NodeId>(next_.size()); }
  /// The one reader of a node's outputs.
  NodeId next(NodeId n) const noexcept { return n == kNone ? kNone : next_[n]; }
  bool is(NodeId n, OpKind op) const noexcept { return n != kNone && g_.op[n] == op; }
  bool is(NodeId n, const OperatorSet& some) const noexcept { return n != kNone && some(g_.op[n]); }

  TensorId tensor(NodeId n, std::size_t slot) const noexcept {
    if (n == kNone) return kNone;
    const auto inputs = g_.node_inputs(n);
    return slot < inputs.size() ? inputs[slot] : kNone;
  }
  NodeId maker(NodeId n, std::size_t slot) const noexcept {
    const TensorId t = tensor(n, slot);
    return t == kNone ? kNone : g_.producer[t];
  }
  /// Whether one of the first two inputs is a weight or a literal.
  bool has_constant(NodeId n) const noexcept {
    for (const std::size_t slot : {0U, 1U}) {
      const TensorId t = tensor(n, slot);
      if (t != kNone && g_.is_constant(t)) return true;
    }
    return false;
  }
  /// The only reader of a node if it is one of the operators, else kNone.
  template <typename Some>
  NodeId after(NodeId n, const Some& some) const noexcept {
    const NodeId reader = next(n);
    return is(reader, some) ? reader : kNone;
  }
  /// The same, where that reader has a constant operand.
  template <typename Some>
  NodeId after_with_constant(NodeId n, const Some& some) const noexcept {
    const NodeId reader = after(n, some);
    return reader != kNone && has_constant(reader) ? reader : kNone;
  }
  template <typename Visit>
  void each(OpKind op, const Visit& visit) const {
    for (NodeId n = 0; n < count(); ++n) {
      if (g_.op[n] == op) visit(n);
    }
  }

 private:
  const OpGraph& g_;
  std::vector<NodeId> next_;
};

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

/// (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias, as exporters before opset 17 write it.
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

/// GELU: x / sqrt(2) -> erf -> + 1 -> * x -> / 2, the halving before or after.
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

/// SiLU: x * sigmoid(x).
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

/// Hard swish: x * clip(x + 3, 0, 6) / 6, also with the sixth taken before the addition, or of the product.
Fused hard_swishes(const Links& links) {
  Fused found{hard_swish, {}, {}};
  const auto product_with = [&](NodeId n, TensorId x) {
    const NodeId product = links.after(n, mul);
    return product != kNone && (links.tensor(product, 0) == x || links.tensor(product, 1) == x) ? product : kNone;
  };
  links.each(clip, [&](NodeId node) {
    const NodeId shifted = links.maker(node, 0);
    if (!links.is(shifted, add) || !links.has_constant(shifted) || links.next(shifted) != node) return;
    NodeId scaled = links.maker(shifted, 0);
    const bool scales = links.is(scaled, kScaling) && links.has_constant(scaled) && links.next(scaled) == shifted;
    if (!scales) scaled = kNone;
    const TensorId x = links.tensor(scales ? scaled : shifted, 0);
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

/// Whether a tensor is a weight matrix seen through views, the same one for every sample.
bool for_all_samples(const OpGraph& graph, TensorId t) {
  const TensorId weight = detail::weight_behind(graph, t);
  const auto shape = graph.shape(t);
  return weight != kNone && shape.size() >= 2 &&
         graph.elements(weight) == (detail::Count(shape[shape.size() - 2]) * shape.back()).value();
}

/// Products with a weight, and the addition of a constant right after: one kernel.
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

/// softmax(scale * q k + mask) v: both products, which become one, and what stands around them.
struct Attentions {
  std::vector<NodeId> first, second;
  std::vector<Part> parts;
};

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

Attentions attentions(const Links& links) {
  Attentions found;
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
    const NodeId probabilities = links.after(node, kAfterSoftmax);
    const NodeId product = links.after(probabilities != kNone ? probabilities : node, matmul);
    if (!links.is(scores, matmul) || product == kNone) return;
    found.first.push_back(scores);
    found.second.push_back(product);
    // Fused kernels read and write any order of heads and positions, so the transposes around them move nothing.
    const std::array around{scores,
                            node,
                            probabilities,
                            scaling_of(links, scores, 0),
                            scaling_of(links, scores, 1),
                            transposed(links, scores, 0),
                            transposed(links, scores, 1),
                            transposed(links, product, 1),
                            links.after(product, transpose)};
    for (const auto& some : {std::span<const NodeId>(around), std::span<const NodeId>(between)}) {
      for (const NodeId n : some) {
        if (n != kNone) found.parts.push_back({n, product});
      }
    }
  });
  return found;
}

/// A table being edited: counts go down where nodes are merged, and merged rows are appended.
class Edited {
 public:
  Edited(const OpGraph& graph, OperatorTable table, std::vector<std::int32_t> row_of)
      : g_(graph),
        t_(std::move(table)),
        row_of_(std::move(row_of)),
        runs_in_(row_of_),
        into_(row_of_.size(), kNone),
        rows_(t_.op.size()) {}

  /// Transposes, splits, slices and expansions become views, but for transposes whose result is reshaped: there even
  /// torch has to copy.
  void by_strides(const Links& links) {
    std::vector<bool> copies(rows_, false);
    links.each(transpose, [&](NodeId n) {
      if (row_of_[n] != kNone && links.after(n, reshape) != kNone) copies[row_of_[n]] = true;
    });
    for (std::size_t r = 0; r < rows_; ++r) {
      if (kStrided(static_cast<OpKind>(t_.op[r])) && !copies[r]) t_.view[r] = 1;
    }
  }

  /// Anchors change their operator, parts go.
  void merge(const Fused& fused) {
    if (!remove(fused.anchor, fused.parts)) return;
    std::map<std::int32_t, double> counts;
    for (const NodeId n : fused.anchor) counts[row_of_[n]] += g_.repeat[n];
    std::map<std::int32_t, std::int32_t> merged;
    for (const auto& [row, count] : counts) merged[row] = append(row, fused.op, count);
    vanish(fused.parts);
    for (const NodeId n : fused.anchor) runs_in_[n] = merged[row_of_[n]];
  }

  /// Both products in one row of the first one's sizes; the scores between them never leave the chip.
  void merge(const Attentions& fused) {
    if (!remove(fused.second, fused.parts)) return;
    std::map<std::pair<std::int32_t, std::int32_t>, double> counts;
    for (std::size_t i = 0; i < fused.first.size(); ++i) {
      counts[{row_of_[fused.first[i]], row_of_[fused.second[i]]}] += g_.repeat[fused.second[i]];
    }
    for (const NodeId n : fused.first) runs_in_[n] = kNone;
    vanish(fused.parts);
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> merged;
    for (const auto& [pair, count] : counts) {
      const auto [first, second] = pair;
      merged[pair] = append(first, attention, count);
      t_.macs.back() = sum(t_.macs[first], t_.macs[second]);
      t_.flops.back() = sum(t_.flops[first], t_.flops[second]);
      const std::int64_t read = sum(t_.bytes_read[first], t_.bytes_read[second]);
      t_.bytes_read.back() = std::max<std::int64_t>(read - t_.bytes_written[first], 0);
      t_.bytes_written.back() = t_.bytes_written[second];
      t_.output_elements.back() = t_.output_elements[second];
      t_.first_node.back() = t_.first_node[second];
    }
    for (std::size_t i = 0; i < fused.first.size(); ++i) {
      runs_in_[fused.second[i]] = merged[{row_of_[fused.first[i]], row_of_[fused.second[i]]}];
    }
  }

  /// Rows that compute shapes or scalars, which runtimes fold or leave to the host, and rows that do nothing.
  void drop_idle() {
    for (std::size_t r = 0; r < rows_; ++r) {
      const std::string_view type = dtype_name(static_cast<DType>(t_.dtype[r]));
      const bool integer = type.starts_with("int") || type.starts_with("uint") || type == "bool";
      const bool few = t_.output_elements[r] <= 1 || (integer && t_.output_elements[r] <= kMaxRank);
      if ((few && t_.macs[r] == 0) || kNothing(static_cast<OpKind>(t_.op[r]))) t_.count[r] = 0.0;
    }
  }

  /// `places`, where asked for: as of table_as_run.
  OperatorTable finish(Placement* places) && {
    std::vector<bool> kept(t_.op.size());
    for (std::size_t r = 0; r < kept.size(); ++r) kept[r] = r >= rows_ || t_.count[r] > kNothingLeft;
    if (places != nullptr) {
      std::vector<std::int32_t> place(kept.size(), kNone);
      for (std::size_t r = 0, size = 0; r < kept.size(); ++r) {
        if (kept[r]) place[r] = static_cast<std::int32_t>(size++);
      }
      for (std::int32_t& row : runs_in_) row = row == kNone ? kNone : place[row];
      *places = {std::move(runs_in_), std::move(into_)};
    }
    for_each_column(t_, [&](auto& column) {
      std::size_t size = 0;
      for (std::size_t r = 0; r < kept.size(); ++r) {
        if (kept[r]) column[size++] = column[r];
      }
      column.resize(size);
    });
    return std::move(t_);
  }

 private:
  /// Takes the executions of nodes from their rows; false, and nothing taken, if one of them never runs.
  bool remove(const std::vector<NodeId>& anchors, const std::vector<Part>& parts) {
    const auto runs = [&](NodeId n) { return row_of_[n] != kNone; };
    const auto part_runs = [&](const Part& part) { return runs(part.node); };
    if (!std::all_of(anchors.begin(), anchors.end(), runs) || !std::all_of(parts.begin(), parts.end(), part_runs)) {
      return false;
    }
    for (const NodeId n : anchors) t_.count[row_of_[n]] -= g_.repeat[n];
    for (const Part& part : parts) t_.count[row_of_[part.node]] -= g_.repeat[part.node];
    return true;
  }

  void vanish(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      runs_in_[part.node] = kNone;
      into_[part.node] = part.into;
    }
  }

  /// Counts are at most 2^62, so that two of them may pass what the type holds.
  static std::int64_t sum(std::int64_t a, std::int64_t b) { return (detail::Count(a) + b).value(); }

  /// The new row, which is one like `row` of another operator.
  std::int32_t append(std::int32_t row, OpKind op, double count) {
    for_each_column(t_, [&](auto& column) {
      const auto value = column[row];  // the vector may move
      column.push_back(value);
    });
    t_.op.back() = static_cast<std::uint16_t>(op);
    t_.op_class.back() = static_cast<std::uint8_t>(op_class(op));
    t_.count.back() = count;
    return static_cast<std::int32_t>(t_.op.size() - 1);
  }

  const OpGraph& g_;
  OperatorTable t_;
  std::vector<std::int32_t> row_of_;   // [N] as counted
  std::vector<std::int32_t> runs_in_;  // [N] as merged
  std::vector<NodeId> into_;           // [N] what a node vanished into
  std::size_t rows_;                   // of the table as counted; what follows was merged
};

}  // namespace

OperatorTable table_as_run(const OpGraph& graph, const Costs& costs, bool strided, Placement* places) {
  std::vector<std::int32_t> row_of;
  OperatorTable table = operator_table(graph, costs, &row_of);
  const Links links(graph);
  Edited edited(graph, std::move(table), std::move(row_of));
  if (strided) edited.by_strides(links);
  for (const Fused& fused :
       {layer_norms(links), gelus(links), silus(links), hard_swishes(links), linears(graph, links)}) {
    edited.merge(fused);
  }
  edited.merge(attentions(links));
  edited.drop_idle();
  return std::move(edited).finish(places);
}

}  // namespace perfpass
