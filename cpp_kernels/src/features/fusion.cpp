#include "perfpass/fusion.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "costs/node.hpp"
#include "features/links.hpp"
#include "features/patterns.hpp"
#include "graph/operator_set.hpp"

namespace perfpass {
namespace {

constexpr double kNothingLeft = 1e-9;  // of a sum and its parts after rounding

using detail::Attentions;
using detail::Fused;
using detail::Links;
using detail::Part;
using detail::Quantized;
using enum OpKind;
const detail::OperatorSet kNothing{identity, dropout, constant};
const detail::OperatorSet kProduct{conv, dense, matmul};

/// The new row, which is one like `row`.
std::int32_t append_like(OperatorTable& table, std::int32_t row) {
  for_each_column(table, [&](auto& column) {
    const auto value = column[row];  // the vector may move
    column.push_back(value);
  });
  return static_cast<std::int32_t>(table.op.size() - 1);
}

/// Whether numbers of a type index and count.
bool is_whole(DType type) {
  const std::string_view name = dtype_name(type);
  return name.starts_with("int") || name.starts_with("uint") || name == "bool";
}

/// A row of its own for some of the nodes of a row, which is that row where they are all of it.
std::int32_t apart(const OpGraph& graph, const std::vector<NodeId>& nodes, bool all, OperatorTable& table,
                   std::vector<std::int32_t>& row_of) {
  const std::int32_t row = row_of[nodes.front()];
  if (all) return row;
  const std::int32_t into = append_like(table, row);
  table.count[into] = 0.0;
  for (const NodeId n : nodes) {
    table.count[into] += graph.repeat[n];
    row_of[n] = into;
  }
  table.count[row] -= table.count[into];
  return into;
}

/// Gives nodes that PyTorch recorded as other strides the bytes that operators of a file move; `whole`: a split's.
void move(const Costs& costs, OperatorTable& table, std::int32_t row, bool whole) {
  const int bits = detail::effective_bits(static_cast<DType>(table.dtype[row]), costs.float_as);
  const std::int64_t read = bytes_for(table.input_elements[row], bits);
  const std::int64_t written = whole ? read : bytes_for(table.output_elements[row], bits);
  table.bytes_read[row] = std::min(read, written);
  table.bytes_written[row] = written;
  table.view[row] = 0;
  if (!whole) return;
  table.op[row] = static_cast<std::uint16_t>(split);
  table.op_class[row] = static_cast<std::uint8_t>(op_class(split));
}

/// Gives nodes that cost no run anything a row that is a view: what moves nothing, and what was computed when the model
/// was loaded. What files compute of whole numbers and shapes PyTorch has computed in Python before it compiles; and
/// what no weight decides, such as a mask, its compiler writes into the kernel that reads it. Their bytes stay, since
/// the runtime holds what it computed. Where nothing is `strided` a runtime that loads files runs their transposes,
/// splits and slices, also those that PyTorch recorded as other strides.
void show(const OpGraph& graph, const Costs& costs, const Links& links, bool strided, bool folds, bool fuses,
          OperatorTable& table, std::vector<std::int32_t>& row_of) {
  std::map<std::int32_t, std::vector<NodeId>> shown, moved, parted;
  std::vector<std::size_t> left(table.op.size(), 0);  // nodes of each row
  const bool runs = folds && !strided;
  const bool loads = runs || (folds && fuses), compiles = fuses && !folds;  // a file that was exported, or a module
  const std::vector<bool> copies = loads ? detail::copies_for_pytorch(graph, links, strided) : std::vector<bool>();
  const std::vector<bool> weightless = compiles ? detail::folded_nodes(graph, false) : std::vector<bool>();
  std::vector<bool> rest(links.count());
  const std::vector<bool> splits = runs ? detail::splits_in_parts(graph, links, rest) : rest;
  for (NodeId n = 0; n < links.count(); ++n) {
    const std::int32_t row = row_of[n];
    if (row == kNone) continue;
    ++left[row];
    const bool is_view = table.view[row] != 0;
    const bool indices = fuses && !links.traced(n) && is_whole(static_cast<DType>(table.dtype[row]));
    const bool known = (links.folded()[n] && (folds || indices)) || (compiles && weightless[n]);
    const bool free = rest[n] || (runs && detail::turns_for_free(graph, links, n));
    const bool moves_nothing = free || (strided && detail::by_strides(graph, links, n)) || (loads && copies[n]);
    if (splits[n] && !known) {
      parted[row].push_back(n);
    } else if (is_view && runs && !known && !free && detail::shown_by_pytorch(graph, links, n)) {
      moved[row].push_back(n);
    } else if (!is_view && (moves_nothing || known)) {
      shown[row].push_back(n);
    }
  }
  const auto each = [&](const auto& rows, const auto& change) {
    for (const auto& [row, nodes] : rows) {
      const bool all = nodes.size() == left[row];
      left[row] -= nodes.size();
      change(apart(graph, nodes, all, table, row_of));
    }
  };
  each(shown, [&](std::int32_t row) { table.view[row] = 1; });
  each(moved, [&](std::int32_t row) { move(costs, table, row, table.op[row] == static_cast<std::uint16_t>(split)); });
  each(parted, [&](std::int32_t row) { move(costs, table, row, true); });
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

  /// Anchors change their operator and with it their FLOPs, parts go.
  void merge(const Fused& fused) {
    if (!remove(fused.anchor, fused.parts)) return;
    std::map<std::int32_t, double> counts;
    for (const NodeId n : fused.anchor) counts[row_of_[n]] += g_.repeat[n];
    std::map<std::int32_t, std::int32_t> merged;
    for (const auto& [row, count] : counts) {
      merged[row] = append(row, fused.op.value_or(static_cast<OpKind>(t_.op[row])), count);
      const int each = fused.op && t_.macs[row] == 0 ? detail::flops_per_output(*fused.op) : 0;
      if (each > 0) t_.flops.back() = (detail::Count(t_.output_elements[row]) * each).value();
    }
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

  /// What runs in 8 bits moves a byte an element and multiplies as the operators of 8 bits; what widened and narrowed
  /// numbers around it goes.
  void merge(const Quantized& fused) {
    std::vector<Part> parts;
    std::copy_if(fused.parts.begin(), fused.parts.end(), std::back_inserter(parts),
                 [&](const Part& part) { return untouched(part.node) && untouched(part.into); });
    std::map<std::pair<std::int32_t, std::int64_t>, std::vector<NodeId>> units;  // by row and elements of the weight
    for (NodeId n = 0; n < static_cast<NodeId>(fused.units.size()); ++n) {
      if (fused.units[n] && untouched(n)) units[{row_of_[n], stored_elements(n)}].push_back(n);
    }
    for (const auto& [of, nodes] : units) {
      const auto [row, weights] = of;
      double count = 0.0;
      for (const NodeId n : nodes) count += g_.repeat[n];
      t_.count[row] -= count;
      const std::int32_t added = append(row, in_8_bits(static_cast<OpKind>(t_.op[row])), count);
      const int wide = std::max(bits_of(static_cast<DType>(t_.dtype[row])) / 8, 1);
      t_.bytes_read.back() /= wide, t_.bytes_written.back() /= wide;
      t_.weight_bytes.back() = weights;
      for (const NodeId n : nodes) runs_in_[n] = added;
    }
    for (const Part& part : parts) t_.count[row_of_[part.node]] -= g_.repeat[part.node];
    vanish(parts);
  }

  /// Rows that compute shapes or scalars, which runtimes fold or leave to the host, and rows that do nothing.
  void drop_idle() {
    for (std::size_t r = 0; r < rows_; ++r) {
      const bool whole = is_whole(static_cast<DType>(t_.dtype[r]));
      const bool few = t_.output_elements[r] <= 1 || (whole && t_.output_elements[r] <= kMaxRank);
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

  /// Whether a node runs, and in no other pattern.
  bool untouched(NodeId n) const { return row_of_[n] != kNone && runs_in_[n] == row_of_[n]; }

  /// Of the weight of 8 bits that a product reads widened, else 0.
  std::int64_t stored_elements(NodeId n) const {
    const auto inputs = g_.node_inputs(n);
    if (inputs.size() < 2 || inputs[1] == kNone || !kProduct(static_cast<OpKind>(g_.op[n]))) return 0;
    const NodeId maker = g_.producer[inputs[1]];
    if (maker == kNone || g_.op[maker] != dequantize) return 0;
    const auto stored = g_.node_inputs(maker);
    return !stored.empty() && stored[0] != kNone && g_.is_constant(stored[0]) ? g_.elements(inputs[1]) : 0;
  }

  static OpKind in_8_bits(OpKind op) {
    if (op == conv) return quantized_conv;
    if (kProduct(op)) return quantized_matmul;
    return op_class(op) == OpClass::elementwise || op_class(op) == OpClass::activation ? quantized_elementwise : op;
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
    const std::int32_t added = append_like(t_, row);
    t_.op.back() = static_cast<std::uint16_t>(op);
    t_.op_class.back() = static_cast<std::uint8_t>(op_class(op));
    t_.count.back() = count;
    return added;
  }

  const OpGraph& g_;
  OperatorTable t_;
  std::vector<std::int32_t> row_of_;   // [N] as counted
  std::vector<std::int32_t> runs_in_;  // [N] as merged
  std::vector<NodeId> into_;           // [N] what a node vanished into
  std::size_t rows_;                   // of the table as counted; what follows was merged
};

}  // namespace

std::vector<std::uint8_t> fixed_nodes(const OpGraph& graph) {
  const std::vector<bool> found = detail::fixed(graph, [&](NodeId n) { return graph.op[n] != random; });
  return {found.begin(), found.end()};
}

std::vector<std::uint8_t> folded_nodes(const OpGraph& graph) {
  const Links links(graph);
  return {links.folded().begin(), links.folded().end()};
}

OperatorTable table_as_run(const OpGraph& graph, const Costs& costs, bool strided, bool folds, bool fuses,
                           Placement* places) {
  std::vector<std::int32_t> row_of;
  OperatorTable table = operator_table(graph, costs, &row_of);
  const Links links(graph);
  show(graph, costs, links, strided, folds, fuses, table, row_of);
  Edited edited(graph, std::move(table), std::move(row_of));
  const auto [swishes, sigmoids] = detail::hard_activations(links);
  for (const Fused& fused :
       {detail::layer_norms(links), detail::gelus(links, fuses), detail::silus(links, fuses), swishes, sigmoids,
        detail::linears(graph, links), detail::around_kernels(graph, links), detail::rolls(graph, links)}) {
    edited.merge(fused);
  }
  edited.merge(detail::attentions(graph, links, fuses, strided || !folds));
  if (folds) edited.merge(detail::quantized(graph, links));
  edited.drop_idle();
  return std::move(edited).finish(places);
}

OpGraph narrowed(const OpGraph& graph) {
  OpGraph held = graph;
  if (std::find(graph.op.begin(), graph.op.end(), dequantize) == graph.op.end()) return held;
  const auto take = [&](NodeId n, TensorId type_of) {
    const auto outputs = graph.node_outputs(n);
    if (type_of != kNone && !outputs.empty() && outputs[0] != kNone) {
      held.tensor_dtype[outputs[0]] = graph.tensor_dtype[type_of];
    }
  };
  const Links links(graph);
  for (const auto& [node, into] : detail::quantized(graph, links).parts) {
    held.attributes[node].view = 1;
    if (graph.op[node] == dequantize) take(node, links.tensor(node, 0));
    if (graph.op[node] != quantize) continue;
    const TensorId narrow = graph.node_outputs(node)[0];
    take(into, narrow);
    take(links.maker(node, 0), narrow);  // `into`, or the clip behind it
  }
  return held;
}

}  // namespace perfpass
