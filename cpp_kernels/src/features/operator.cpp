// Schema `operator`: one row per node for graph networks. What each column is and why: docs/reference/schemas.md.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "features/rows.hpp"

namespace perfpass::detail {
namespace {

constexpr std::size_t kClasses = static_cast<std::size_t>(OpClass::count_);
constexpr std::array<std::string_view, 52> kAfterClass = {"operator",
                                                          "log_macs",
                                                          "log_flops",
                                                          "log_bytes_read",
                                                          "log_bytes_written",
                                                          "log_parameters",
                                                          "log_weight_bytes",
                                                          "log_intensity",
                                                          "log_gemm_b",
                                                          "log_gemm_m",
                                                          "log_gemm_n",
                                                          "log_gemm_k",
                                                          "log_input_elements",
                                                          "log_output_elements",
                                                          "input_rank",
                                                          "output_rank",
                                                          "log_output_dim_0",
                                                          "log_output_dim_1",
                                                          "log_output_dim_2",
                                                          "log_output_dim_3",
                                                          "log_output_dim_4",
                                                          "dtype_bits",
                                                          "dtype_floating",
                                                          "weight_bits",
                                                          "log_kernel_0",
                                                          "log_kernel_1",
                                                          "log_kernel_2",
                                                          "log_stride_0",
                                                          "log_stride_1",
                                                          "log_stride_2",
                                                          "log_dilation_0",
                                                          "log_dilation_1",
                                                          "log_dilation_2",
                                                          "padded",
                                                          "log_groups",
                                                          "depthwise",
                                                          "channels_last",
                                                          "log_heads",
                                                          "log_kv_heads",
                                                          "causal",
                                                          "log_hidden_size",
                                                          "directions",
                                                          "view",
                                                          "in_place",
                                                          "log_repeat",
                                                          "log_in_degree",
                                                          "log_out_degree",
                                                          "activations_in",
                                                          "weights_in",
                                                          "position",
                                                          "depth",
                                                          "from_input"};
using Row = std::array<float, kClasses + kAfterClass.size()>;
constexpr std::array<std::string_view, 10> kTotals = {
    "log_macs",         "log_flops", "log_bytes_read", "log_bytes_written", "log_parameters",
    "log_weight_bytes", "log_nodes", "log_edges",      "log_depth",         "log_batch"};

/// std::log1p of whole numbers with the last results kept: repeated blocks ask for the same few hundred over and over.
class Log1p {
 public:
  float operator()(std::int64_t value) noexcept {
    if (value <= 0) return 0.0F;
    const std::uint64_t slot = (static_cast<std::uint64_t>(value) * 0x9e3779b97f4a7c15ULL) >> (64 - kBits);
    Entry& entry = entries_[slot];
    if (entry.key != value) entry = {value, static_cast<float>(std::log1p(static_cast<double>(value)))};
    return entry.result;
  }

 private:
  static constexpr int kBits = 11;
  struct Entry {
    std::int64_t key = 0;
    float result = 0.0F;
  };
  std::array<Entry, std::size_t{1} << kBits> entries_{};
};

struct Topology {
  std::vector<std::int32_t> in_degree, out_degree, depth;  // [N]; depth is the longest path from a source, in edges
  std::int32_t max_depth = 0;
};

Topology topology_of(const OpGraph& g) {
  Topology t;
  for (auto* column : {&t.in_degree, &t.out_degree, &t.depth}) column->assign(g.node_count(), 0);
  for (std::size_t e = 0; e < g.edge_count(); ++e) {  // edges stand by consumer, and nodes in topological order
    const NodeId p = g.edge_producer[e], c = g.edge_consumer[e];
    ++t.out_degree[p];
    ++t.in_degree[c];
    t.depth[c] = std::max(t.depth[c], t.depth[p] + 1);
    t.max_depth = std::max(t.max_depth, t.depth[c]);
  }
  return t;
}

/// Writes a row from left to right, so that the order of the code is the order of the columns.
class RowWriter {
 public:
  RowWriter(float* row, Log1p& log) : at_(row), log_(log) {}
  void value(double x) noexcept { *at_++ = static_cast<float>(x); }
  void log(std::int64_t x) noexcept { *at_++ = log_(x); }
  void log_each(const std::int32_t (&values)[3]) noexcept {
    for (const std::int32_t v : values) log(v);
  }
  void zeros(std::size_t count) noexcept { at_ = std::fill_n(at_, count, 0.0F); }

 private:
  float* at_;
  Log1p& log_;
};

/// Whether a node has none of the attributes from kernel_0 to directions, as most have not.
bool is_bare(const NodeAttributes& a) {
  std::int32_t any =
      a.groups | a.channels_last | a.num_heads | a.num_kv_heads | a.causal | a.hidden_size | a.directions;
  for (std::size_t i = 0; i < 3; ++i) any |= a.kernel[i] | a.stride[i] | a.dilation[i] | a.pad_begin[i] | a.pad_end[i];
  return any == 0;
}

void write_attributes(const NodeView& node, const GemmSizes& gemm, RowWriter& write) {
  constexpr std::size_t kColumns = 18;
  const NodeAttributes& a = node.attributes();
  if (is_bare(a)) return write.zeros(kColumns);
  write.log_each(a.kernel);
  write.log_each(a.stride);
  write.log_each(a.dilation);
  const auto positive = [](std::int32_t p) { return p > 0; };
  write.value(std::any_of(std::begin(a.pad_begin), std::end(a.pad_begin), positive) ||
              std::any_of(std::begin(a.pad_end), std::end(a.pad_end), positive));
  write.log(a.groups);
  write.value(a.groups > 1 && gemm.k > 0 && gemm.k == kernel_area(node));
  write.value(a.channels_last != 0);
  write.log(a.num_heads);
  write.log(a.num_kv_heads);
  write.value(a.causal != 0);
  write.log(a.hidden_size);
  write.value(a.directions);
}

void fill_row(const FeatureSource& source, const Topology& topology, NodeId id, Row& row, Log1p& log) {
  const NodeView node = source.node(id);
  const OpGraph& g = source.graph;
  const Costs& costs = source.costs;
  const NodeAttributes& a = node.attributes();
  std::fill_n(row.begin(), kClasses, 0.0F);
  row[static_cast<std::size_t>(op_class(node.op()))] = 1.0F;

  RowWriter write(row.data() + kClasses, log);
  write.value(static_cast<double>(node.op()));
  for (const auto* column :
       {&costs.macs, &costs.flops, &costs.bytes_read, &costs.bytes_written, &costs.parameters, &costs.weight_bytes}) {
    write.log((*column)[id]);
  }
  // FLOPs per byte in sixteenths: whole numbers keep the logarithm cache useful and lose nothing that matters.
  const double bytes = static_cast<double>(costs.bytes_read[id]) + static_cast<double>(costs.bytes_written[id]);
  write.log(bytes > 0 ? std::llrint(16.0 * static_cast<double>(costs.flops[id]) / bytes) : 0);
  const GemmSizes gemm = gemm_sizes(node);
  for (const std::int64_t size : {gemm.b, gemm.m, gemm.n, gemm.k}) write.log(size);

  const TensorId in = node.input(0), out = node.output(0);
  const auto out_shape = node.shape(out);
  write.log(node.elements(in));
  write.log(node.elements(out));
  write.value(static_cast<double>(node.shape(in).size()));
  write.value(static_cast<double>(out_shape.size()));
  for (std::size_t i = 0; i < 5; ++i) write.log(i < out_shape.size() ? out_shape[i] : 0);
  const DType dtype = out == kNone ? DType::undefined : g.tensor_dtype[out];
  write.value(bits_of(dtype) / 32.0);
  write.value(is_floating(dtype));
  write.value(a.weight_bits / 32.0);

  write_attributes(node, gemm, write);
  write.value(a.view != 0);
  write.value(a.in_place != 0);
  if (g.repeat[id] == 1.0) {  // nearly every node
    write.log(1);
  } else {
    write.value(std::log1p(std::max(0.0, g.repeat[id])));
  }

  int activations = 0, weights = 0;
  bool from_input = false;
  for (const TensorId t : node.inputs()) {
    if (t == kNone) continue;
    const TensorRole role = g.tensor_role[t];
    activations += role == TensorRole::activation;
    weights += role == TensorRole::weight;
    from_input = from_input || role == TensorRole::input;
  }
  write.log(topology.in_degree[id]);
  write.log(topology.out_degree[id]);
  write.value(activations);
  write.value(weights);
  write.value(static_cast<double>(id) / static_cast<double>(g.node_count()));
  write.value(topology.max_depth > 0 ? static_cast<double>(topology.depth[id]) / topology.max_depth : 0.0);
  write.value(from_input);
}

/// Names that begin with a prefix and the names of the operator classes; the views live as long as the program.
std::vector<std::string> per_class(std::string_view prefix) {
  std::vector<std::string> names;
  names.reserve(kClasses);
  for (std::size_t c = 0; c < kClasses; ++c) {
    names.push_back(std::string(prefix).append(op_class_name(static_cast<OpClass>(c))));
  }
  return names;
}

}  // namespace

std::span<const std::string_view> operator_node_names() {
  static const std::vector<std::string> classes = per_class("class_");
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all(classes.begin(), classes.end());
    all.insert(all.end(), kAfterClass.begin(), kAfterClass.end());
    return all;
  }();
  return names;
}

std::span<const std::string_view> operator_static_names() {
  static const std::vector<std::string> counts = per_class("log_count_"), shares = per_class("byte_share_");
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all(kTotals.begin(), kTotals.end());
    all.insert(all.end(), counts.begin(), counts.end());
    all.insert(all.end(), shares.begin(), shares.end());
    return all;
  }();
  return names;
}

void fill_operator(const FeatureSource& source, FeatureMatrix& matrix) {
  const OpGraph& g = source.graph;
  const Topology topology = topology_of(g);
  Log1p log;
  Row row;
  std::array<std::int64_t, kClasses> count{};
  std::array<double, kClasses> bytes{};
  double all_bytes = 0.0;
  for (NodeId id = 0; id < static_cast<NodeId>(matrix.rows); ++id) {
    fill_row(source, topology, id, row, log);
    matrix.values.insert(matrix.values.end(), row.begin(), row.end());
    const auto cls = static_cast<std::size_t>(op_class(g.op[id]));
    const double moved =
        static_cast<double>(source.costs.bytes_read[id]) + static_cast<double>(source.costs.bytes_written[id]);
    ++count[cls];
    bytes[cls] += moved;
    all_bytes += moved;
  }
  const CostTotals sum = totals(source.costs);
  float* at = matrix.statics.data();
  for (const std::int64_t total :
       {sum.macs, sum.flops, sum.bytes_read, sum.bytes_written, sum.parameters, sum.weight_bytes, matrix.rows,
        static_cast<std::int64_t>(g.edge_count()), static_cast<std::int64_t>(topology.max_depth), batch_of(g)}) {
    *at++ = log(total);
  }
  for (const std::int64_t n : count) *at++ = log(n);
  for (const double b : bytes) *at++ = static_cast<float>(all_bytes > 0 ? b / all_bytes : 0.0);
}

}  // namespace perfpass::detail
