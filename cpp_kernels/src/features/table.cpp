// The operator table: equal nodes counted together.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "costs/node.hpp"
#include "perfpass/features.hpp"

namespace perfpass {
namespace {

/// All columns of a row but `count` and `first_node`, so that rows compare and hash as plain integers.
using Row = std::array<std::int64_t, 18>;

std::uint64_t hash(const Row& row) noexcept {
  std::uint64_t h = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio: an odd multiplier that spreads low bits
  for (const std::int64_t value : row) {
    h = (std::rotl(h, 23) ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15ULL;
  }
  return h ^ (h >> 32);
}

std::int64_t per_execution(std::int64_t total, double repeat) noexcept {
  if (repeat == 1.0) return total;
  if (repeat == std::floor(repeat) && repeat < 0x1p62) return total / static_cast<std::int64_t>(repeat);
  return std::llrint(static_cast<double>(total) / repeat);
}

/// Whether each node reads an input of the graph, itself or through others; nodes stand in topological order.
std::vector<std::uint8_t> reads_input(const OpGraph& graph) {
  std::vector<std::uint8_t> reads(graph.node_count(), 0);
  for (NodeId id = 0; id < static_cast<NodeId>(reads.size()); ++id) {
    for (const TensorId t : graph.node_inputs(id)) {
      if (t == kNone || reads[id] != 0) continue;
      const NodeId maker = graph.producer[t];
      reads[id] = maker == kNone ? !graph.is_constant(t) : reads[maker];
    }
  }
  return reads;
}

/// Of a resize of [N, C, ...]: b planes of m pixels each, by whose number PyTorch's kernels start threads.
detail::GemmSizes planes(const detail::NodeView& node) {
  const TensorId out = node.output(0);
  if (out == kNone || node.elements(out) < 1 || node.shape(out).size() < 3) return {};
  const std::int64_t count = node.shape(out)[0] * node.shape(out)[1];
  return {count, node.elements(out) / count, 0, 0};
}

Row make_row(const detail::NodeView& node, const Costs& costs, bool constant) {
  const OpGraph& g = node.g;
  const NodeId id = node.id;
  const double repeat = g.repeat[id];
  const TensorId out = node.output(0);
  const OpClass cls = op_class(g.op[id]);
  const bool spatial = cls == OpClass::convolution || cls == OpClass::pooling;
  const detail::GemmSizes gemm = cls == OpClass::recurrent    ? detail::step_sizes(node)
                                 : g.op[id] == OpKind::resize ? planes(node)
                                                              : detail::gemm_sizes(node);
  return {static_cast<std::int64_t>(g.op[id]),
          out == kNone ? 0 : static_cast<std::int64_t>(g.tensor_dtype[out]),
          node.attributes().view != 0,
          per_execution(costs.macs[id], repeat),
          per_execution(costs.flops[id], repeat),
          per_execution(costs.bytes_read[id], repeat),
          per_execution(costs.bytes_written[id], repeat),
          costs.weight_bytes[id],
          node.elements(node.input(0)),
          node.elements(out),
          gemm.b,
          gemm.m,
          gemm.n,
          gemm.k,
          spatial ? detail::kernel_area(node) : 0,
          spatial ? node.attributes().stride[0] : 0,
          spatial ? node.attributes().groups : 0,
          constant};
}

void append(OperatorTable& table, const Row& row, NodeId first) {
  table.op.push_back(static_cast<std::uint16_t>(row[0]));
  table.op_class.push_back(static_cast<std::uint8_t>(op_class(static_cast<OpKind>(row[0]))));
  table.dtype.push_back(static_cast<std::uint8_t>(row[1]));
  table.view.push_back(static_cast<std::uint8_t>(row[2]));
  table.macs.push_back(row[3]);
  table.flops.push_back(row[4]);
  table.bytes_read.push_back(row[5]);
  table.bytes_written.push_back(row[6]);
  table.weight_bytes.push_back(row[7]);
  table.input_elements.push_back(row[8]);
  table.output_elements.push_back(row[9]);
  table.b.push_back(row[10]);
  table.m.push_back(row[11]);
  table.n.push_back(row[12]);
  table.k.push_back(row[13]);
  table.kernel_area.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(row[14], INT32_MAX)));
  table.stride.push_back(static_cast<std::int32_t>(row[15]));
  table.groups.push_back(static_cast<std::int32_t>(row[16]));
  table.constant.push_back(static_cast<std::uint8_t>(row[17]));
  table.count.push_back(0.0);
  table.first_node.push_back(first);
}

}  // namespace

OperatorTable operator_table(const OpGraph& graph, const Costs& costs, std::vector<std::int32_t>* row_of) {
  const auto n = static_cast<NodeId>(graph.node_count());
  detail::require_costs(graph, costs);
  const std::vector<std::int64_t> elements = detail::tensor_elements(graph);
  if (row_of != nullptr) row_of->assign(static_cast<std::size_t>(n), kNone);
  const std::vector<std::uint8_t> reads = reads_input(graph);
  OperatorTable table;
  std::vector<Row> rows;
  std::vector<std::int32_t> slots(std::bit_ceil(2 * static_cast<std::size_t>(n) + 1), kNone);  // open addressing
  for (NodeId id = 0; id < n; ++id) {
    if (graph.repeat[id] == 0.0) continue;  // never runs
    const Row row = make_row({graph, elements, id}, costs, reads[id] == 0);
    std::size_t slot = hash(row) & (slots.size() - 1);
    while (slots[slot] != kNone && rows[slots[slot]] != row) slot = (slot + 1) & (slots.size() - 1);
    if (slots[slot] == kNone) {
      slots[slot] = static_cast<std::int32_t>(rows.size());
      rows.push_back(row);
      append(table, row, id);
    }
    table.count[slots[slot]] += graph.repeat[id];
    if (row_of != nullptr) (*row_of)[id] = slots[slot];
  }
  return table;
}

}  // namespace perfpass
