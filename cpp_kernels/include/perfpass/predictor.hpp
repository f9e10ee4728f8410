// A prediction without Python: one device and one way of running models on it, from a predictor bundle.
//
// `perfpass export-core` writes bundles (docs/guides/cpp.md); what they hold was fitted and is applied in Python by the
// same formulas, and tests hold both to the same figures. Every operator of the table as run is priced by what it has
// to do; the bounds say what is not known of such runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "perfpass/export.hpp"
#include "perfpass/graph.hpp"

namespace perfpass {

/// A median and the bounds that hold the measured value with probability Predictor::coverage.
struct Bounds {
  double median = 0.0, low = 0.0, high = 0.0;
};

/// How far measurements stand behind a prediction.
enum class Support : std::uint8_t { in_range, near, outside };

struct RunPrediction {
  std::int64_t batch = 0;
  Bounds latency_ms, throughput_per_s, power_w, energy_j;
  Bounds alive_bytes, reserved_bytes, peak_memory_bytes;  // tensors, the allocator's, in use on the device
  Support support = Support::outside;
  std::vector<std::string> reasons;
};

namespace detail {
struct Bundle;
}

/// Immutable: any number of threads may use one.
class PERFPASS_API Predictor {
 public:
  /// Error(format) for what is no bundle, Error(unsupported) for one of another version or of other operators.
  static Predictor from_bytes(std::span<const std::uint8_t> bytes);
  /// The same of a file; Error(io) where it cannot be read, Error(limit) for more than 1 MiB.
  static Predictor from_file(const std::string& path);

  /// `batch`: samples that the graph's shapes hold; 0: the leading dimension of its first input. Error(unsupported) for
  /// a graph whose load had to be assumed (OnnxOptions::detections states it).
  RunPrediction predict(const OpGraph& graph, std::int64_t batch = 0) const;

  const std::string& device() const noexcept;
  const std::string& runtime() const noexcept;
  const std::string& precision() const noexcept;
  const std::string& perfpass_version() const noexcept;  // that wrote the bundle
  double coverage() const noexcept;

 private:
  explicit Predictor(std::shared_ptr<const detail::Bundle> bundle) noexcept : bundle_(std::move(bundle)) {}
  std::shared_ptr<const detail::Bundle> bundle_;
};

}  // namespace perfpass
