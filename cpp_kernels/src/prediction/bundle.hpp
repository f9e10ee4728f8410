// A predictor bundle as it is read: all that depends on the device, the runtime and the precision, as numbers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "perfpass/counting.hpp"
#include "perfpass/features.hpp"
#include "perfpass/predictor.hpp"
#include "perfpass/tiles.hpp"

namespace perfpass::detail {

/// Low, middle, high.
using Three = std::array<double, 3>;
using PerFamily = std::vector<double>;  // [families]
using Flags = std::vector<std::uint8_t>;

/// Families of operators that share constants, and how a row of the table finds its own.
struct Families {
  std::vector<std::string> names;
  std::vector<std::size_t> of_operator;       // [operators], but for convolutions
  bool vector_attention = false;              // attention runs on vector units: a family of its own
  std::size_t index(const char* name) const;  // Error(format) for one that the bundle lacks
};

/// perfpass.predictors.inference.engines: an engine on a GPU.
struct EngineTime {
  std::size_t conv, conv1d, conv3x3, conv_grouped, conv_depthwise, dense, matmul, softmax, attention, attention_vector;
  PerFamily speed, fed;                         // FLOP/s of whole tiles, and of the FLOPs that are asked
  PerFamily bandwidth, kept, factor, launched;  // byte/s, share of bytes, of time, of launches
  Flags on_matrix, product, usual;
  Flags folded, joined;    // [operators] never launched; written with the convolution before them
  double joined_launches;  // share of what is written so that is launched all the same
  Tiling tiling;
  double attention_keys, generic_depthwise, generic_area;
  double cache_bytes, cache_speed, least_s, step_s, step_bandwidth, launch_s, issue_s, call_s, smoothness;
};

/// perfpass.predictors.inference.cpu_operators: a runtime on a CPU in single precision.
struct CpuTime {
  std::size_t conv, conv1d, conv1d_ragged, conv3x3, conv_grouped, conv_depthwise, dense, matmul, attention,
      attention_vector, vector, function, dense_8bit, conv_transpose;
  PerFamily rate;  // logarithm of the share of the peak
  Flags streamed, convolution, pointwise, tiled, strided, unscheduled;
  Flags functions, folded, narrowed;  // [operators]
  bool ragged_rows, pixels;
  double tensors, elementwise, weights, memory, packing, issue, call, sets, inner, tile, ragged, cores, sync;  // constants
  double flops, clock_hz, memory_bytes_s, core_memory_bytes_s, cache_bytes, log_cores;
  double least_s, smoothness, function_flops;
  double sets_bytes, line_bytes, ways, lanes;
};

/// What is not known of a run, and how wide it makes the bounds (perfpass.predictors.learned.spread).
struct Cause {
  std::string name;
  double low, high, lack;
};

/// Power by use of the roofs (perfpass.predictors.inference.analytic.power_w).
struct Power {
  double peak_flops, bandwidth, compute_share, memory_share, idle_w, limit_w;
};

/// What lies beside the plan on a device (perfpass.predictors.memory.process).
struct DeviceMemory {
  Three share, beside;
  double least_alive;
  bool searches;  // the runtime tries the workspaces of convolutions
};

/// Peak of a whole process on a CPU (perfpass.predictors.memory.host).
struct HostMemory {
  double runtime, weights, activations, allocator, low, high, floor, least_alive;
  bool packs;  // convolutions are packed when the model is opened
};

struct Bundle {
  std::string device, runtime, precision, version, said;
  double coverage = 0.0, memory_bytes = 0.0;
  int level = 2;
  std::vector<double> level_widths;
  CountingOptions counting;
  Families families;
  std::vector<Cause> causes;
  Power power{};
  std::variant<EngineTime, CpuTime> time;
  std::variant<DeviceMemory, HostMemory> memory;
};

/// Error(format), Error(unsupported).
Bundle read_bundle(std::span<const std::uint8_t> bytes);

/// Seconds of a run and what its bounds depend on, by the name of the cause.
struct PricedRun {
  double seconds = 0.0;
  std::vector<std::pair<const char*, double>> lacks;
  bool eight_bits = false;
};
PricedRun priced(const EngineTime& time, const Families& families, const OperatorTable& table);
PricedRun priced(const CpuTime& time, const Families& families, const OperatorTable& table, std::int64_t batch);

/// A little above the larger: both overlap, but not perfectly.
double smooth_maximum(double a, double b, double smoothness) noexcept;
/// Of one dimension: of no square, or of more than 7 taps a side, and of no cube.
bool is_flat(std::int32_t kernel_area) noexcept;

}  // namespace perfpass::detail
