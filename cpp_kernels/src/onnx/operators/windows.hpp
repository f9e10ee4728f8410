// Sliding windows of convolutions and poolings.
#pragma once

#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {

enum class Padding : std::uint8_t { given, same_upper, same_lower, valid };

/// Entries of attributes fit in 32 bits, so that sums and products of two of them cannot wrap around.
struct Window {
  std::size_t rank = 0;
  Padding padding = Padding::given;
  std::int64_t kernel[kMaxRank] = {}, stride[kMaxRank] = {}, dilation[kMaxRank] = {};
  std::int64_t begin[kMaxRank] = {}, end[kMaxRank] = {};

  /// Positions from the first to the last element that the dilated kernel reads.
  std::int64_t reach(std::size_t i) const noexcept { return (kernel[i] - 1) * dilation[i] + 1; }
};

/// Entry i of a per-axis attribute, or the fallback where the file leaves the attribute out.
std::int64_t window_entry(const InferContext& c, Text name, std::size_t i, std::int64_t fallback, std::int64_t low);
/// From the attributes strides, dilations, pads and auto_pad; automatic padding is 0 until it is resolved.
Window window_of(const InferContext& c, Dims kernel);
/// Padding of axis i under SAME_UPPER or SAME_LOWER: ceil(extent / stride) positions come out.
void resolve_padding(Window& w, std::size_t i, std::int64_t extent) noexcept;
void write_window(InferContext& c, const Window& w) noexcept;

}  // namespace perfpass::onnx
