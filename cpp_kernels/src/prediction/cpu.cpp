// Time on a CPU in single precision: the formulas of perfpass.predictors.inference.cpu_operators, for one table.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "prediction/bundle.hpp"

namespace perfpass::detail {
namespace {

constexpr auto kTransposed = static_cast<std::uint16_t>(OpKind::conv_transpose);
constexpr auto kEightBits = static_cast<std::uint16_t>(OpKind::quantized_matmul);
constexpr auto kElementwise = static_cast<std::uint16_t>(OpKind::quantized_elementwise);
constexpr auto kConvolved = static_cast<std::uint16_t>(OpKind::quantized_conv);

bool near_whole(double value) { return std::abs(value - std::nearbyint(value)) < 1e-6; }

/// That of a row alone, before what surrounds it is seen.
std::size_t plain_family(const CpuTime& t, const Families& families, const OperatorTable& table, std::size_t r) {
  const std::size_t found = families.of_operator[table.op[r]];
  if (table.op_class[r] == static_cast<std::uint8_t>(OpClass::convolution)) {
    if (table.groups[r] > 1) return table.n[r] <= 2 ? t.conv_depthwise : t.conv_grouped;
    if (is_flat(table.kernel_area[r])) return t.conv1d;
    return table.kernel_area[r] == 9 ? t.conv3x3 : t.conv;
  }
  if (found == t.matmul && table.weight_bytes[r] > 0) return t.dense;
  return found == t.attention && families.vector_attention ? t.attention_vector : found;
}

/// [R] families; convolutions count as of one dimension where no kernel of the graph is a square of an odd side.
std::vector<std::size_t> families_of(const CpuTime& t, const Families& families, const OperatorTable& table,
                                     std::int64_t batch) {
  const std::size_t size = table.op.size();
  std::vector<std::size_t> found(size);
  std::vector<std::uint8_t> convolution(size);
  bool square = false, odd_length = false, taps = false;
  for (std::size_t r = 0; r < size; ++r) {
    found[r] = plain_family(t, families, table, r);
    convolution[r] = t.convolution[found[r]] && found[r] != t.conv_depthwise && found[r] != t.conv_grouped;
    if (!convolution[r] || table.op[r] == kTransposed) continue;
    const double side = std::sqrt(static_cast<double>(table.kernel_area[r]));
    const bool odd = table.kernel_area[r] % 2 == 1, whole = near_whole(side);
    square |= whole && side > 1 && odd;
    odd_length |= !whole && odd;
    taps |= side > 1;
  }
  const bool flat = !square && (odd_length || !taps);
  for (std::size_t r = 0; r < size; ++r) {
    if (convolution[r]) found[r] = flat ? t.conv1d : found[r] == t.conv1d ? t.conv : found[r];
    const bool single =
        static_cast<double>(table.b[r]) * static_cast<double>(table.m[r]) <= static_cast<double>(batch) ||
        table.n[r] <= 1;
    if ((found[r] == t.dense || found[r] == t.matmul) && single) found[r] = t.vector;
    if (t.functions[table.op[r]]) found[r] = t.function;
    const std::int64_t samples = std::max<std::int64_t>(table.m[r] / std::max<std::int64_t>(batch, 1), 1);
    if (t.ragged_rows && found[r] == t.conv1d && (samples & (samples - 1)) > 0) found[r] = t.conv1d_ragged;
    if (t.narrowed[table.op[r]] && found[r] != t.conv_depthwise) found[r] = t.dense_8bit;
    if (table.op[r] == kTransposed) found[r] = t.conv_transpose;
  }
  return found;
}

/// Lines of a column over those that the first cache has for it, where loops without a schedule walk columns.
struct Strided {
  bool is = false;
  double over = 0.0;
};
Strided strided(const CpuTime& t, const OperatorTable& table, std::size_t r, std::size_t family, double rows) {
  Strided found{t.strided[family] != 0, 0.0};
  std::int64_t stride = table.n[r];
  auto length = static_cast<double>(table.k[r]);
  if (t.pixels) {
    const bool of_pixels = t.convolution[family] != 0;
    found.is = found.is || of_pixels || family == t.vector;
    if (of_pixels) {
      stride = static_cast<std::int64_t>(rows);
      length /= std::sqrt(static_cast<double>(std::max(table.kernel_area[r], 1)));
    }
  }
  const auto span = static_cast<std::int64_t>(t.sets_bytes);
  const auto common = static_cast<double>(std::gcd(4 * std::max<std::int64_t>(stride, 1), span));
  found.over = length / (t.sets_bytes / std::max(common, t.line_bytes) * t.ways);
  return found;
}

/// Logarithm of the lanes of TVM's default tiles over those in use, and whether a tile is an odd vector.
struct Tile {
  double unused = 0.0;
  bool ragged = false;
};
Tile tile_of(const CpuTime& t, const OperatorTable& table, std::size_t r, std::size_t family, double rows) {
  if (family == t.conv1d || family == t.conv1d_ragged) {
    const double held = (family == t.conv1d ? 32 : 4) * t.lanes;
    return {std::log(std::max(rows / held, 1.0)), false};
  }
  const auto lanes = static_cast<std::int64_t>(t.lanes);
  const std::int64_t columns = std::max<std::int64_t>(table.n[r], 1);
  std::int64_t found = family == t.vector ? 2 * lanes : lanes;
  while (columns % found != 0) --found;
  const auto width = static_cast<double>(found);
  return {std::log(std::ceil(width / t.lanes) * t.lanes / width), found > lanes && (found & (found - 1)) > 0};
}

/// Share that a cache does not hold of `ratio` times its size.
double missed(double ratio) { return ratio * ratio / (1.0 + ratio * ratio); }

constexpr double kLn2 = 0.6931471805599453;

/// Logarithm of the cores on which `alone` seconds of one take least.
double cores_that_help(const CpuTime& t, double alone) {
  const double gained = std::max(1.0 - t.cores, 1e-3);
  return std::clamp((std::log(gained * kLn2 * alone) - t.sync) / gained, 0.0, t.log_cores);
}

}  // namespace

PricedRun priced(const CpuTime& t, const Families& families, const OperatorTable& table, std::int64_t batch) {
  const std::size_t size = table.op.size();
  const std::vector<std::size_t> family = families_of(t, families, table, batch);
  std::vector<double> times(size), weights(size);
  double streamed = 0.0;
  PricedRun found;
  for (std::size_t r = 0; r < size; ++r) {
    times[r] = table.view[r] != 0 || t.folded[table.op[r]] ? 0.0 : table.count[r];
    weights[r] =
        t.streamed[family[r]] ? static_cast<double>(std::min(table.weight_bytes[r], table.bytes_read[r])) : 0.0;
    streamed += weights[r] * times[r];
    found.eight_bits |= table.op[r] == kEightBits || table.op[r] == kConvolved;
  }
  double sum = 0.0, issued = 0.0, unscheduled = 0.0;
  for (std::size_t r = 0; r < size; ++r) {
    const std::size_t f = family[r];
    const double moved =
        static_cast<double>(table.bytes_read[r]) + static_cast<double>(table.bytes_written[r]) - weights[r];
    const double rows = static_cast<double>(table.m[r]) / static_cast<double>(std::max<std::int64_t>(batch, 1));
    double slow = 0.0;
    if (const Strided column = strided(t, table, r, f, rows); column.is) {
      const double over2 = column.over * column.over, over4 = over2 * over2;
      slow += t.sets * (0.5 * std::log1p(over2)) + t.inner * (over4 / (1.0 + over4));
    }
    if (t.tiled[f]) {
      const Tile tile = tile_of(t, table, r, f, rows);
      slow += t.tile * tile.unused + t.ragged * (tile.ragged ? 1.0 : 0.0);
    }
    const double flops = f == t.function ? t.function_flops * static_cast<double>(table.output_elements[r])
                                         : static_cast<double>(table.flops[r]);
    const double compute = flops / t.flops * std::exp(slow) / std::exp(t.rate[f]);
    const double widened = table.op[r] == kElementwise ? 4.0 : 1.0;  // to 32 bits in registers
    const double tensors = t.pointwise[f] ? 0.0 : moved / t.clock_hz,
                 elementwise = t.pointwise[f] ? moved * widened / t.clock_hz : 0.0;
    const double from_memory = weights[r] * missed(streamed / t.cache_bytes) + moved * missed(moved / t.cache_bytes);
    const double bytes = tensors / std::exp(t.tensors) + elementwise / std::exp(t.elementwise) +
                         weights[r] / t.clock_hz / std::exp(t.weights) +
                         from_memory / t.core_memory_bytes_s / std::exp(t.memory);
    const double alone = smooth_maximum(compute, std::max(bytes, t.least_s), t.smoothness);
    const double used = cores_that_help(t, alone);
    const double spread = alone * std::exp((t.cores - 1.0) * used) + std::exp(t.sync) * used / kLn2;
    const double shared = from_memory / t.memory_bytes_s / std::exp(t.memory);
    const double packing = (t.convolution[f] ? weights[r] : 0.0) / t.memory_bytes_s * times[r] * std::exp(t.packing);
    const double issue = times[r] * std::exp(t.issue);
    const double row = smooth_maximum(spread, shared, t.smoothness) * times[r] + packing + issue;
    sum += row, issued += issue;
    if (t.unscheduled[f]) unscheduled += row;
  }
  const double call = std::exp(t.call);
  found.seconds = sum + call;
  found.lacks = {{"host", (issued + call) / found.seconds}, {"unscheduled", unscheduled / found.seconds}};
  return found;
}

}  // namespace perfpass::detail
