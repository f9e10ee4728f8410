// Feature schemas over an OpGraph. Each is documented in docs/reference/schemas.md and has a NumPy twin in tests/.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "perfpass/cost.hpp"
#include "perfpass/export.hpp"
#include "perfpass/graph.hpp"

namespace perfpass {

enum class Schema : std::uint8_t { operator_, dippm, trappm, nnlqp };

struct FeatureMatrix {
  std::int64_t rows = 0;       // N
  std::int64_t columns = 0;    // F
  std::vector<float> values;   // row major, [N, F]
  std::vector<float> statics;  // [S]
};

/// Error(argument) for an unknown name. Names: "operator", "dippm", "trappm", "nnlqp".
PERFPASS_API Schema schema_from_name(std::string_view name);
PERFPASS_API int schema_version(Schema schema) noexcept;
PERFPASS_API std::span<const std::string_view> node_feature_names(Schema schema) noexcept;    // [F]
PERFPASS_API std::span<const std::string_view> static_feature_names(Schema schema) noexcept;  // [S]

PERFPASS_API FeatureMatrix node_features(const OpGraph& graph, const Costs& costs, Schema schema);

/// The graph as a multiset of operators: nodes with equal kind, types, sizes and per-execution costs share one row, in
/// order of first appearance. This is what the tree and roofline predictors read: some hundred rows even for an LLM.
/// Columns of length R; all but `count` are per execution.
struct OperatorTable {
  std::vector<std::uint16_t> op;
  std::vector<std::uint8_t> op_class;
  std::vector<std::uint8_t> dtype;  // of output 0
  std::vector<std::uint8_t> view;
  std::vector<double> count;  // sum of `repeat`
  std::vector<std::int64_t> macs, flops, bytes_read, bytes_written, weight_bytes;
  std::vector<std::int64_t> input_elements, output_elements;  // input 0, output 0
  // GEMM-equivalent sizes of convolutions, matrix products and attention (batch b of m x k by k x n); of a resize its
  // planes b (images times channels) and pixels m of the result; else 0
  std::vector<std::int64_t> b, m, n, k;
  std::vector<std::int32_t> kernel_area, stride, groups;  // convolution and pooling, else 0
  std::vector<std::uint8_t> constant;                     // 1: no input of the graph is read, so no batch changes it
  std::vector<NodeId> first_node;                         // an example node of the row
};

/// `row_of`, where asked for: [N] the row of each node, kNone for nodes that never run.
PERFPASS_API OperatorTable operator_table(const OpGraph& graph, const Costs& costs,
                                          std::vector<std::int32_t>* row_of = nullptr);

/// Calls `visit` with every column of the table, in the order of their declaration.
template <typename Table, typename Visit>
void for_each_column(Table& t, const Visit& visit) {
  visit(t.op), visit(t.op_class), visit(t.dtype), visit(t.view), visit(t.count);
  visit(t.macs), visit(t.flops), visit(t.bytes_read), visit(t.bytes_written), visit(t.weight_bytes);
  visit(t.input_elements), visit(t.output_elements), visit(t.b), visit(t.m), visit(t.n), visit(t.k);
  visit(t.kernel_area), visit(t.stride), visit(t.groups), visit(t.constant);
  visit(t.first_node);
}

}  // namespace perfpass
