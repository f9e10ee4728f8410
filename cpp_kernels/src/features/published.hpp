// What the published schemas share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "costs/node.hpp"

namespace perfpass::detail {

using Shape = std::span<const std::int64_t>;

inline float real(std::int64_t value) noexcept { return static_cast<float>(value); }

/// `width` leading dimensions, zeros after the last.
inline void write_shape(float* at, Shape shape, std::size_t width) noexcept {
  for (std::size_t i = 0; i < std::min(width, shape.size()); ++i) at[i] = real(shape[i]);
}

inline bool is_global_pool(const NodeView& node) noexcept {
  return node.op() == OpKind::global_avg_pool ||
         (node.op() == OpKind::avg_pool && node.attributes().kernel[0] == 0);  // adaptive pooling has no kernel
}

}  // namespace perfpass::detail
