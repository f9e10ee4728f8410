#include "perfpass/predictor.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <system_error>

#include "perfpass/counting.hpp"
#include "perfpass/error.hpp"
#include "perfpass/onnx_reader.hpp"
#include "prediction/bundle.hpp"
#include "support/descriptor.hpp"

namespace perfpass {
namespace {

using namespace detail;

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr double kMiB = 1048576.0;
constexpr auto kConvolution = static_cast<std::uint8_t>(OpClass::convolution);

Bounds around(double median, double low, double high) {
  return {median, median * std::exp(low), median * std::exp(high)};
}
Bounds over(double numerator, const Bounds& b) { return {numerator / b.median, numerator / b.high, numerator / b.low}; }

/// Logarithms of the bounds: squares of the causes' half-widths add, each times its lack.
std::pair<double, double> log_bounds(const Bundle& bundle, const PricedRun& run) {
  double low = 0.0, high = 0.0;
  for (const Cause& cause : bundle.causes) {
    double lack = cause.lack;
    for (const auto& [name, value] : run.lacks) {
      if (cause.name == name) lack = value;
    }
    lack = std::max(lack, 0.0);
    low += lack * (cause.low * cause.low), high += lack * (cause.high * cause.high);
  }
  return {-std::sqrt(low), std::sqrt(high)};
}

Bounds power_of(const Power& power, const OperatorTable& table, double seconds) {
  double flops = 0.0, traffic = 0.0;
  for (std::size_t r = 0; r < table.op.size(); ++r) {
    flops += static_cast<double>(table.flops[r]) * table.count[r];
    traffic +=
        (static_cast<double>(table.bytes_read[r]) + static_cast<double>(table.bytes_written[r])) * table.count[r];
  }
  const double compute = flops / (power.peak_flops * seconds), memory = traffic / (power.bandwidth * seconds);
  const double busy = std::min(1.0, std::hypot(compute / power.compute_share, memory / power.memory_share));
  return {power.idle_w + (power.limit_w - power.idle_w) * busy, power.idle_w, power.limit_w};
}

/// Joules; the errors of time and power are taken as independent.
Bounds energy_of(const Bounds& latency_ms, const Bounds& power_w) {
  const auto spread = [&](double time, double power) {
    return std::hypot(std::log(time / latency_ms.median), std::log(power / power_w.median));
  };
  return around(power_w.median * latency_ms.median * 1e-3, -spread(latency_ms.low, power_w.low),
                spread(latency_ms.high, power_w.high));
}

/// The largest workspace of Winograd's algorithm (perfpass.predictors.memory.allocation.winograd_bytes).
double winograd_bytes(const OperatorTable& table) {
  constexpr double kTile = 16.0, kFilter = 9.0, kTransformed = 36.0;
  double most = 0.0;
  for (std::size_t r = 0; r < table.op.size(); ++r) {
    if (table.op_class[r] != kConvolution || table.kernel_area[r] != 9 || table.stride[r] != 1 ||
        table.groups[r] != 1) {
      continue;
    }
    const auto outputs = static_cast<double>(table.output_elements[r]);
    const double width = static_cast<double>(table.bytes_written[r]) / std::max(outputs, 1.0);
    const double tiles = width * (static_cast<double>(table.input_elements[r]) + outputs) / kTile;
    most = std::max(most, kTransformed * (tiles + static_cast<double>(table.weight_bytes[r]) / kFilter));
  }
  return most;
}

/// What ONNX Runtime holds on a CPU beside weights and arena (perfpass.predictors.memory.allocation.opened_bytes).
double opened_bytes(const OperatorTable& table, double arena) {
  constexpr double kLayouts = 2.0;
  double packed = 0.0, largest = 0.0, folded = 0.0;
  for (std::size_t r = 0; r < table.op.size(); ++r) {
    if (table.op_class[r] == kConvolution) {
      const auto weights = static_cast<double>(table.weight_bytes[r]);
      packed += weights * table.count[r], largest = std::max(largest, weights);
    }
    if ((table.constant[r] & 1) != 0) folded += static_cast<double>(table.bytes_written[r]) * table.count[r];
  }
  return packed + folded + std::max(kLayouts * largest, folded + arena) - arena;
}

void add_memory(RunPrediction& found, const Bundle& bundle, const CountedGraphs& counted) {
  const double copies = bundle.counting.weight_copies;
  const double weights = static_cast<double>(counted.weight_bytes[0]) * copies;
  const auto activations = static_cast<double>(counted.activation_bytes[0]);
  auto reserved = static_cast<double>(counted.reserved_bytes[0]);
  if (const auto* process = std::get_if<HostMemory>(&bundle.memory)) {
    if (process->packs) reserved += opened_bytes(counted.table, reserved - weights);
    const double beside = std::max(0.0, reserved - weights - activations);
    const double peak = process->runtime + process->weights * weights + process->activations * activations +
                        process->allocator * beside;
    const double spread = std::max(peak - process->runtime, 0.0) + process->floor;
    const double planned = weights + activations;
    const double held = std::max(std::min(reserved, peak), planned);
    found.peak_memory_bytes = {peak, std::max(0.0, peak + process->low * spread), peak + process->high * spread};
    found.alive_bytes = {planned, weights + process->least_alive * activations, planned};
    found.reserved_bytes = {held, planned, held};
    return;
  }
  const auto& device = std::get<DeviceMemory>(bundle.memory);
  if (device.searches) {
    const double searched = winograd_bytes(counted.table);
    const double grown = (std::exp2(std::ceil(std::log2((activations + searched) / kMiB + 1.0))) - 1.0) * kMiB;
    if (searched > 0) reserved += std::max(grown - (reserved - weights), 0.0);
  }
  const double held = std::max(reserved - weights, activations);
  const auto of = [&](double share) { return weights + std::max(share * held, activations); };
  const auto& [low, middle, high] = device.share;
  found.alive_bytes = {weights + activations, weights + device.least_alive * activations,
                       weights + std::max(high, 1.0) * activations};
  found.reserved_bytes = {of(middle), of(low), of(high)};
  found.peak_memory_bytes = {found.reserved_bytes.median + device.beside[1],
                             found.reserved_bytes.low + device.beside[0], found.reserved_bytes.high + device.beside[2]};
}

void add_support(RunPrediction& found, const Bundle& bundle, const PricedRun& run, bool unknown,
                 std::span<const Note> notes) {
  int level = bundle.level;
  found.reasons.push_back(bundle.said);
  if (run.eight_bits) {
    level = std::max(level, 1);
    found.reasons.emplace_back("products with weights in 8 bits: known by single ones alone");
  }
  const double width = found.latency_ms.high / std::max(found.latency_ms.low, 1e-300);
  int by_width = 0;
  for (const double bound : bundle.level_widths) by_width += bound < width ? 1 : 0;
  level = std::max(level, by_width);
  if (unknown) {
    level = std::max(level, 1);
    found.reasons.emplace_back("operators without a cost model are among the nodes");
  }
  for (const Note& note : notes) {
    if (!note.counted_once) continue;
    level = 2;
    found.reasons.push_back(note.text);
  }
  if (found.peak_memory_bytes.low > bundle.memory_bytes) {
    level = 2;
    found.reasons.emplace_back("it does not fit: the figures are those of the device with enough memory");
  }
  found.support = static_cast<Support>(level);
}

}  // namespace

Predictor Predictor::from_bytes(std::span<const std::uint8_t> bytes) {
  if (bytes.size() > kMostBytes) {
    throw Error(ErrorCode::limit, "predictor bundle: " + std::to_string(bytes.size()) + " bytes; allowed are " +
                                      std::to_string(kMostBytes));
  }
  return Predictor(std::make_shared<const Bundle>(read_bundle(bytes)));
}

Predictor Predictor::from_file(const std::string& path) {
  const Descriptor file(path);
  FileStatus status;
  if (file.value() < 0 || !examine(file.value(), status)) {
    throw Error(ErrorCode::io, path + ": " + std::generic_category().message(errno));
  }
  if (status.other_kind != nullptr) throw Error(ErrorCode::io, path + ": " + status.other_kind + ", not a file");
  if (status.size > kMostBytes) {
    throw Error(ErrorCode::limit, path + ": " + std::to_string(status.size) +
                                      " bytes; a predictor bundle has at most " + std::to_string(kMostBytes));
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(status.size));
  const std::ptrdiff_t read = read_at(file.value(), bytes.data(), bytes.size(), 0);
  if (read < 0) throw Error(ErrorCode::io, path + ": " + std::generic_category().message(errno));
  return from_bytes(std::span(bytes).first(static_cast<std::size_t>(read)));
}

RunPrediction Predictor::predict(const OpGraph& graph, std::int64_t batch) const {
  if (batch < 0 || batch > (1 << 20)) {
    throw Error(ErrorCode::argument,
                "batch " + std::to_string(batch) + "; allowed are 1 to 1048576, and 0 for the graph's");
  }
  for (const auto& [note, counted_once] : graph.notes) {
    if (note.starts_with(kAssumedDetections)) {
      throw Error(ErrorCode::unsupported, note +
                                              "; state them with OnnxOptions::detections, or predict in Python, where "
                                              "the interval holds the usual numbers");
    }
  }
  const CountingItem item{&graph, {}, batch};
  const CountedGraphs counted = count_graphs(std::span(&item, 1), bundle_->counting, 1);
  if (!counted.problems.empty()) throw Error(counted.problems[0].code, counted.problems[0].message);

  RunPrediction found;
  found.batch = counted.batch[0];
  const auto* engine = std::get_if<EngineTime>(&bundle_->time);
  const PricedRun run = engine != nullptr
                            ? priced(*engine, bundle_->families, counted.table)
                            : priced(std::get<CpuTime>(bundle_->time), bundle_->families, counted.table, found.batch);
  const auto [low, high] = log_bounds(*bundle_, run);
  found.latency_ms = around(1e3 * run.seconds, low, high);
  found.throughput_per_s = over(static_cast<double>(found.batch) * 1e3, found.latency_ms);
  found.power_w = power_of(bundle_->power, counted.table, found.latency_ms.median * 1e-3);
  found.energy_j = energy_of(found.latency_ms, found.power_w);
  add_memory(found, *bundle_, counted);
  add_support(found, *bundle_, run, counted.unknown[0] != 0, graph.notes);
  return found;
}

const std::string& Predictor::device() const noexcept { return bundle_->device; }
const std::string& Predictor::runtime() const noexcept { return bundle_->runtime; }
const std::string& Predictor::precision() const noexcept { return bundle_->precision; }
const std::string& Predictor::perfpass_version() const noexcept { return bundle_->version; }
double Predictor::coverage() const noexcept { return bundle_->coverage; }

}  // namespace perfpass
