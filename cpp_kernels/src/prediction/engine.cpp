// Time in an engine on a GPU: the formulas of perfpass.predictors.inference.operators and .engines, for one table.
#include <algorithm>
#include <cmath>
#include <utility>

#include "prediction/bundle.hpp"

namespace perfpass::detail {
namespace {

std::size_t family_of(const EngineTime& t, const Families& families, const OperatorTable& table, std::size_t r) {
  std::size_t found = families.of_operator[table.op[r]];
  if (table.op_class[r] == static_cast<std::uint8_t>(OpClass::convolution)) {
    if (table.groups[r] > 1) return table.n[r] <= 2 ? t.conv_depthwise : t.conv_grouped;
    if (is_flat(table.kernel_area[r])) return t.conv1d;
    return table.kernel_area[r] == 9 ? t.conv3x3 : t.conv;
  }
  if (found == t.matmul && table.weight_bytes[r] > 0) found = t.dense;
  return found == t.attention && families.vector_attention ? t.attention_vector : found;
}

bool has_steps(const OperatorTable& table, std::size_t r) {
  const auto op = static_cast<OpKind>(table.op[r]);
  return (op == OpKind::lstm || op == OpKind::gru || op == OpKind::rnn) && table.b[r] > 0;
}

/// Seconds that it takes to move bytes which the last-level cache holds in part.
double moving_s(const EngineTime& t, double bandwidth, double bytes) {
  const double resident = std::min(1.0, t.cache_bytes / std::max(bytes, 1.0));
  return bytes * (1.0 - resident * (1.0 - 1.0 / t.cache_speed)) / bandwidth;
}

/// Bytes of the recurrent weights, which every step reads: their share of the MACs is that of the weights.
double step_bytes(const OperatorTable& table, std::size_t r) {
  const double rows = static_cast<double>(table.b[r]) * static_cast<double>(table.m[r]);
  const double matrix = static_cast<double>(table.n[r]) * static_cast<double>(table.k[r]);
  return matrix * rows * static_cast<double>(table.weight_bytes[r]) / std::max(static_cast<double>(table.macs[r]), 1.0);
}

double tiled(const EngineTime& t, const OperatorTable& table, std::size_t r, bool on_matrix) {
  const auto number = [r](const std::vector<std::int64_t>& column) { return static_cast<double>(column[r]); };
  const bool convolution = table.op_class[r] == static_cast<std::uint8_t>(OpClass::convolution);
  return whole_tiles(t.tiling, number(table.b), number(table.m), number(table.n), number(table.k), convolution,
                     on_matrix);
}

/// Seconds of an attention run in parts, the most that a fused kernel takes: two products of half the FLOPs and bytes
/// each, of which the first writes the scores and the second reads them, and a softmax between.
double in_parts_s(const EngineTime& t, const OperatorTable& table, std::size_t r) {
  const auto number = [r](const std::vector<std::int64_t>& column) { return static_cast<double>(column[r]); };
  const double b = number(table.b), m = number(table.m), n = number(table.n), k = number(table.k);
  const double flops = number(table.flops) / 2.0, written = number(table.bytes_written);
  const double scores = b * m * n * written / std::max(number(table.output_elements), 1.0);
  const double moved = (number(table.bytes_read) + written) / 2.0 + scores;
  const double memory = std::max(moving_s(t, t.bandwidth[t.matmul], moved), t.least_s);
  double seconds = moving_s(t, t.bandwidth[t.softmax], 2.0 * scores);
  for (const auto& [columns, depth] : {std::pair{n, k}, std::pair{k, n}}) {
    const double tiles = whole_tiles(t.tiling, b, m, columns, depth, false, t.on_matrix[t.matmul] != 0);
    const double compute = std::max(flops / t.speed[t.matmul] * tiles, flops / t.fed[t.matmul]);
    seconds += smooth_maximum(compute, memory, t.smoothness);
  }
  return seconds;
}

/// Elements of the convolutions' outputs, sorted: what has as many is written with one of them.
std::vector<std::int64_t> convolved(const OperatorTable& table) {
  std::vector<std::int64_t> found;
  for (std::size_t r = 0; r < table.op.size(); ++r) {
    if (table.op_class[r] == static_cast<std::uint8_t>(OpClass::convolution)) found.push_back(table.output_elements[r]);
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

double smooth_maximum(double a, double b, double smoothness) noexcept {
  const double larger = std::max(a, b);
  return larger * std::pow(std::pow(a / larger, smoothness) + std::pow(b / larger, smoothness), 1.0 / smoothness);
}

bool is_flat(std::int32_t kernel_area) noexcept {
  const double area = kernel_area, side = std::sqrt(area), edge = std::cbrt(area);
  const bool square = std::abs(side - std::nearbyint(side)) < 1e-6 && side <= 7;
  return !square && (std::abs(edge - std::nearbyint(edge)) > 1e-6 || edge > 7);
}

PricedRun priced(const EngineTime& t, const Families& families, const OperatorTable& table) {
  const std::size_t size = table.op.size();
  std::vector<double> row(size), issued(size);
  std::vector<std::size_t> family(size);
  const std::vector<std::int64_t> sizes = convolved(table);
  double device_s = 0.0, issued_s = 0.0;
  for (std::size_t r = 0; r < size; ++r) {
    const std::size_t f = family[r] = family_of(t, families, table, r);
    const bool on_matrix = t.on_matrix[f] != 0;
    const bool generic =
        f == t.conv_depthwise && table.kernel_area[r] > t.generic_area && !is_flat(table.kernel_area[r]);
    const double reached = generic ? t.generic_depthwise : 1.0, flops = static_cast<double>(table.flops[r]);
    double compute = flops / (t.speed[f] * reached);
    const bool stepped = has_steps(table, r);
    if (t.product[f] && table.m[r] > 0 && f != t.conv_depthwise && !stepped) compute *= tiled(t, table, r, on_matrix);
    const bool fused = f == t.attention || f == t.attention_vector;
    if (fused) {
      compute *= 1.0 + t.attention_keys / std::max(static_cast<double>(table.n[r]), 16.0);
    }
    compute = std::max(compute, flops / (t.fed[f] * reached));
    const double read = static_cast<double>(table.bytes_read[r]), written = static_cast<double>(table.bytes_written[r]);
    double moved = read + written;
    const bool joined = t.joined[table.op[r]] && std::ranges::binary_search(sizes, table.output_elements[r]);
    if (joined) moved = std::max(moved - 2.0 * written, 0.0), compute = 0.0;
    moved *= t.kept[f];
    const double runs = table.view[r] != 0 || t.folded[table.op[r]] ? 0.0 : 1.0;
    double seconds = smooth_maximum(compute, std::max(moving_s(t, t.bandwidth[f], moved), t.least_s), t.smoothness);
    if (fused) seconds = std::min(seconds, in_parts_s(t, table, r));
    if (stepped) {
      const double reading_s = moving_s(t, t.step_bandwidth, step_bytes(table, r));
      const double in_turn = static_cast<double>(table.b[r]) * (t.step_s + reading_s);
      seconds = smooth_maximum(seconds, in_turn, t.smoothness);
    }
    seconds *= runs;
    const double times = runs * (joined ? t.joined_launches : 1.0) * table.count[r] * t.launched[f];
    row[r] = seconds * table.count[r] * t.factor[f] + times * t.launch_s;
    issued[r] = times * t.issue_s;
    device_s += row[r], issued_s += issued[r];
  }
  const double host_s = issued_s + t.call_s;
  const double total = smooth_maximum(device_s, host_s, t.smoothness);
  const double bound = 1.0 - 1.0 / (1.0 + std::pow(std::min(host_s / std::max(device_s, 1e-12), 1e6), t.smoothness));
  double rare = 0.0;
  for (std::size_t r = 0; r < size; ++r) {
    if (t.usual[family[r]]) continue;
    rare += ((1.0 - bound) * (row[r] / std::max(device_s, 1e-300)) + bound * (issued[r] / std::max(issued_s, 1e-300))) *
            total;
  }
  return {total, {{"host", std::min(host_s / total, 1.0)}, {"rare", std::min(rare / total, 1.0)}}, false};
}

}  // namespace perfpass::detail
