#include <algorithm>
#include <cmath>
#include <string>

#include "costs/node.hpp"
#include "perfpass/cost.hpp"
#include "perfpass/error.hpp"

namespace perfpass {

namespace detail {

std::vector<std::int64_t> tensor_elements(const OpGraph& graph) {
  std::vector<std::int64_t> elements(graph.tensor_count());
  for (std::size_t t = 0; t < elements.size(); ++t) elements[t] = graph.elements(static_cast<TensorId>(t));
  return elements;
}

TensorId weight_behind(const OpGraph& graph, TensorId t) noexcept {
  const TensorId shown = t;
  while (t != kNone && graph.producer[t] != kNone) {
    const NodeId maker = graph.producer[t];
    const bool shows = graph.attributes[maker].view != 0 || graph.op[maker] == OpKind::transpose;
    if (!shows || graph.node_inputs(maker).empty()) return kNone;
    t = graph.node_inputs(maker)[0];
  }
  return t != kNone && t != shown && graph.tensor_role[t] == TensorRole::weight ? t : kNone;
}

void require_costs(const OpGraph& graph, const Costs& costs) {
  for (const auto* column :
       {&costs.macs, &costs.flops, &costs.bytes_read, &costs.bytes_written, &costs.parameters, &costs.weight_bytes}) {
    if (column->size() != graph.node_count()) {
      throw Error(ErrorCode::argument, "costs of " + std::to_string(column->size()) + " nodes for a graph of " +
                                           std::to_string(graph.node_count()) + "; count them on this very graph");
    }
  }
}

std::string NodeView::label() const {
  const std::string_view name = g.strings.at(g.node_name[id]).substr(0, 200);
  std::string text;
  if (name.empty()) {
    text.append(std::to_string(id));
  } else {
    text.append(1, '\'').append(name).append(1, '\'');
  }
  return text.append(" (").append(g.strings.at(g.source_op[id]).substr(0, 200)).append(1, ')');
}

bool is_fused_embedding(const NodeView& node) noexcept {
  const TensorId ids = node.input(0);
  return node.op() == OpKind::embedding && ids != kNone && !node.g.is_constant(ids) &&
         !is_floating(node.g.tensor_dtype[ids]) && node.inputs().size() > 2;
}

}  // namespace detail

namespace {

using detail::Count;
using detail::NodeView;

class Counter {
 public:
  Counter(const OpGraph& graph, const CostOptions& options)
      : g_(graph),
        float_as_(options.float_as),
        elements_(detail::tensor_elements(graph)),
        bytes_(graph.tensor_count()),
        last_reader_(graph.tensor_count(), kNone),
        counted_(graph.tensor_count(), 0),
        owner_(graph.tensor_count(), kNone),
        first_reader_(graph.tensor_count(), kNone) {
    for (std::size_t t = 0; t < bytes_.size(); ++t) {
      bytes_[t] = bytes_for(elements_[t], detail::effective_bits(g_.tensor_dtype[t], float_as_));
    }
  }

  Costs count() {
    const std::size_t n = g_.node_count();
    Costs costs;
    costs.float_as = float_as_;
    for (auto* column :
         {&costs.macs, &costs.flops, &costs.bytes_read, &costs.bytes_written, &costs.parameters, &costs.weight_bytes}) {
      column->resize(n);
    }
    for (NodeId id = 0; id < static_cast<NodeId>(n); ++id) claim_weights({g_, elements_, id});
    for (NodeId id = 0; id < static_cast<NodeId>(n); ++id) {
      const NodeView node{g_, elements_, id};
      count_parameters(node, costs);
      const bool view = node.attributes().view != 0;
      const StatedCosts stated = stated_of(id);
      const auto counted = [&](std::int64_t said, const auto& count) {
        return view ? Count(0) : said == kUnstated ? count() : Count(said);
      };
      const Count macs = counted(stated.macs, [&] { return detail::node_macs(node); });
      const Count flops = counted(stated.flops, [&] { return detail::node_flops(node, macs); });
      const Count reads = counted(in_width(node, stated.bytes_read), [&] { return read(node); });
      const Count writes = counted(in_width(node, stated.bytes_written), [&] { return written(node); });
      costs.macs[id] = repeated(node, macs, "MACs");
      costs.flops[id] = repeated(node, flops, "FLOPs");
      costs.bytes_read[id] = repeated(node, reads, "bytes read");
      costs.bytes_written[id] = repeated(node, writes, "bytes written");
    }
    return costs;
  }

 private:
  std::int64_t repeated(const NodeView& node, Count once, const char* what) const {
    const bool is_once = g_.repeat[node.id] == 1.0 && once.value() <= detail::kMaxCount;
    return is_once ? once.value() : multiplied(node, once, what);
  }

  [[gnu::noinline]] std::int64_t multiplied(const NodeView& node, Count once, const char* what) const {
    const double repeat = g_.repeat[node.id];
    if (!(repeat >= 0.0)) {
      throw Error(ErrorCode::argument,
                  "node " + node.label() + " repeats " + std::to_string(repeat) + " times; repeat must be 0 or more");
    }
    const bool whole = repeat == std::floor(repeat) && repeat < 0x1p62;
    // The product in double only decides about fractional counts and about excess; whole counts stay exact.
    const Count count = whole ? once * static_cast<std::int64_t>(repeat) : Count(0);
    const double estimate = static_cast<double>(once.value()) * repeat;
    if (count.value() > detail::kMaxCount || estimate > 0x1p62) {
      throw Error(ErrorCode::limit,
                  "node " + node.label() + " has more than 2^62 " + what + "; check its shapes and repetitions");
    }
    return whole ? count.value() : std::llrint(estimate);
  }

  StatedCosts stated_of(NodeId id) const {
    if (g_.stated.empty()) return {};
    const auto it = g_.stated.find(id);
    return it == g_.stated.end() ? StatedCosts{} : it->second;
  }

  /// Bytes that were stated for the node's own types, in the types that are counted: as its tensors grow or shrink.
  std::int64_t in_width(const NodeView& node, std::int64_t bytes) const {
    if (bytes == kUnstated || float_as_ == DType::undefined) return bytes;
    double own = 0.0, counted = 0.0;
    for (const auto& tensors : {node.inputs(), node.outputs()}) {
      for (const TensorId t : tensors) {
        if (t == kNone) continue;
        own += static_cast<double>(bytes_for(elements_[t], bits_of(g_.tensor_dtype[t])));
        counted += static_cast<double>(bytes_[t]);
      }
    }
    return own > 0.0 ? std::llrint(static_cast<double>(bytes) * counted / own) : bytes;
  }

  static bool is_product(const NodeView& node) noexcept {
    return node.attributes().view == 0 && (node.op() == OpKind::matmul || node.op() == OpKind::dense);
  }

  /// A weight that a product reads through views belongs to the product, not to the first of the views; so does one that
  /// a transpose shows before a product reads it as it is, as StableHLO has them.
  void claim_weights(const NodeView& node) {
    for (const TensorId t : node.inputs()) {
      if (t == kNone) continue;
      const NodeId first = first_reader_[t] == kNone ? first_reader_[t] = node.id : first_reader_[t];
      if (!is_product(node)) continue;
      const bool turned = g_.op[first] == OpKind::transpose && g_.tensor_role[t] == TensorRole::weight;
      const TensorId weight = turned ? t : detail::weight_behind(g_, t);
      if (weight != kNone && owner_[weight] == kNone) owner_[weight] = node.id;
    }
  }

  /// Bytes of the inputs from slot `first` on, each tensor once. A product reads a weight once, however often it is
  /// shown.
  Count read_from(const NodeView& node, std::size_t first) {
    Count bytes = 0;
    for (std::size_t i = first; i < node.inputs().size(); ++i) {
      const TensorId t = node.inputs()[i];
      if (t == kNone || last_reader_[t] == node.id) continue;
      last_reader_[t] = node.id;
      const TensorId weight = is_product(node) ? detail::weight_behind(g_, t) : kNone;
      bytes += weight == kNone ? bytes_[t] : std::min(bytes_[t], bytes_[weight]);
    }
    return bytes;
  }

  /// What a gather returns, at the width at which its table is stored.
  Count returned(const NodeView& node) const {
    const TensorId data = node.input(0);
    if (data == kNone) return 0;
    const int stored = node.attributes().weight_bits;
    const int bits = stored > 0 ? stored : detail::effective_bits(g_.tensor_dtype[data], float_as_);
    Count bytes = 0;
    for (const TensorId t : node.outputs()) {
      if (t != kNone) bytes += bytes_for(elements_[t], std::min(bits, 128));
    }
    return bytes;
  }

  /// Rows of every table, and the ids, scale and shift whole.
  Count read_fused_embedding(const NodeView& node) {
    Count bytes = 0;
    for (const TensorId t : node.inputs()) {
      if (t == kNone || last_reader_[t] == node.id) continue;
      last_reader_[t] = node.id;
      const bool table = g_.is_constant(t) && g_.shape(t).size() == 2;
      const int bits = detail::effective_bits(g_.tensor_dtype[t], float_as_);
      bytes += table ? bytes_for(node.elements(node.output(0)), bits) : bytes_[t];
    }
    return bytes;
  }

  static bool overwrites(const NodeView& node) {
    return node.attributes().in_place != 0 && (node.op() == OpKind::scatter || node.op() == OpKind::copy) &&
           node.inputs().size() >= 2;
  }

  Count read(const NodeView& node) {
    switch (node.op()) {
      case OpKind::embedding:
        if (detail::is_fused_embedding(node)) return read_fused_embedding(node);
        [[fallthrough]];
      case OpKind::gather:
      case OpKind::slice:
      case OpKind::split:
      case OpKind::compress:
        return returned(node) + read_from(node, 1);
      case OpKind::scatter:
      case OpKind::copy:
        return read_from(node, overwrites(node) ? 1 : 0);
      case OpKind::constant:
      case OpKind::fill:
      case OpKind::range:
      case OpKind::random:
      case OpKind::shape_of:
      case OpKind::eye:
      case OpKind::window:  // generators read at most a shape
      case OpKind::conditional:
      case OpKind::loop:
      case OpKind::scan:
      case OpKind::sequence:
      case OpKind::text:
        return 0;  // control passes references; the nodes of its body are counted
      default:
        return read_from(node, 0);
    }
  }

  Count written(const NodeView& node) const {
    switch (node.op()) {
      case OpKind::constant:
      case OpKind::conditional:
      case OpKind::loop:
      case OpKind::scan:
      case OpKind::sequence:
      case OpKind::text:
        return 0;
      case OpKind::scatter:
      case OpKind::copy:
        if (overwrites(node)) {  // only the updates, which come last
          const TensorId updates = node.inputs().back();
          return updates == kNone ? 0 : bytes_[updates];
        }
        break;
      default:
        break;
    }
    Count bytes = 0;
    for (const TensorId t : node.outputs()) {
      if (t != kNone) bytes += bytes_[t];
    }
    return bytes;
  }

  /// Logical elements of a weight: packed low-bit weights hold several per stored element.
  std::int64_t logical_elements(const NodeView& node, std::size_t slot, TensorId t) const {
    const int bits = node.attributes().weight_bits;
    if (node.op() == OpKind::matmul_nbits) {
      const auto x = node.shape(node.input(0)), y = node.shape(node.output(0));
      // The stored blocks are padded to whole blocks and bytes: the sizes of the product say what they stand for.
      if (slot == 1 && !x.empty() && !y.empty()) return (Count(x.back()) * y.back()).value();
      if (slot == 3 && bits_of(g_.tensor_dtype[t]) == 8) return node.elements(node.input(2));  // one per scale
      return elements_[t];
    }
    const int stored = bits_of(g_.tensor_dtype[t]);
    const bool packed = bits > 0 && bits < stored && !is_floating(g_.tensor_dtype[t]) && g_.shape(t).size() >= 2;
    return packed ? (Count(elements_[t]) * stored).value() / bits : elements_[t];
  }

  void count_parameters(const NodeView& node, Costs& costs) {
    Count parameters = 0, bytes = 0;
    for (std::size_t i = 0; i < node.inputs().size(); ++i) {
      TensorId t = node.inputs()[i];
      if (is_product(node) && detail::weight_behind(g_, t) != kNone) t = detail::weight_behind(g_, t);
      if (t == kNone || g_.tensor_role[t] != TensorRole::weight || counted_[t]) continue;
      if (owner_[t] != kNone && owner_[t] != node.id) continue;
      counted_[t] = 1;
      parameters += logical_elements(node, i, t);
      bytes += bytes_[t];
    }
    if (parameters.value() > detail::kMaxCount || bytes.value() > detail::kMaxCount) {
      throw Error(ErrorCode::limit, "node " + node.label() + " has more than 2^62 parameters or weight bytes");
    }
    costs.parameters[node.id] = parameters.value();
    costs.weight_bytes[node.id] = bytes.value();
  }

  const OpGraph& g_;
  DType float_as_;
  std::vector<std::int64_t> elements_;  // [T]
  std::vector<std::int64_t> bytes_;     // [T]
  std::vector<NodeId> last_reader_;     // [T], so that a tensor read twice by one node counts once
  std::vector<std::uint8_t> counted_;   // [T], parameters already given to a node
  std::vector<NodeId> owner_;           // [T], the product that reads a weight, through views or behind a transpose
  std::vector<NodeId> first_reader_;    // [T]
};

}  // namespace

Costs count_costs(const OpGraph& graph, const CostOptions& options) {
  if (options.float_as != DType::undefined && !is_floating(options.float_as)) {
    throw Error(ErrorCode::argument, "float_as is " + std::string(dtype_name(options.float_as)) +
                                         "; only floating types can stand for floating tensors");
  }
  return Counter(graph, options).count();
}

CostTotals totals(const Costs& costs) {
  const auto sum = [](const std::vector<std::int64_t>& column, const char* what) {
    Count total = 0;
    for (const std::int64_t value : column) total += value;
    if (total.value() > detail::kMaxCount) {
      throw Error(ErrorCode::limit, std::string("the graph has more than 2^62 ") + what + "; check its shapes");
    }
    return total.value();
  };
  return {sum(costs.macs, "MACs"),
          sum(costs.flops, "FLOPs"),
          sum(costs.bytes_read, "bytes read"),
          sum(costs.bytes_written, "bytes written"),
          sum(costs.parameters, "parameters"),
          sum(costs.weight_bytes, "weight bytes")};
}

}  // namespace perfpass
