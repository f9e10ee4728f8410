#include "perfpass/neighbours.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "perfpass/error.hpp"
#include "support/parallel.hpp"

namespace perfpass {
namespace {

constexpr std::size_t kLanes = 8;  // partial sums that a compiler keeps in vector registers
constexpr std::size_t kRowsAtOnce = 64;

/// Squared distance of two padded rows; may stop at anything over `limit`.
float squared_distance(const float* a, const float* b, std::size_t stride, float limit) noexcept {
  float all = 0.0F;
  for (std::size_t start = 0; start < stride && all <= limit; start += 2 * kLanes) {
    std::array<float, kLanes> sums{};
    for (std::size_t block = start; block < start + 2 * kLanes; block += kLanes) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        const float gap = a[block + i] - b[block + i];
        sums[i] += gap * gap;
      }
    }
    all += ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  }
  return all;
}

}  // namespace

Neighbours::Neighbours(std::span<const float> points, std::size_t count, std::size_t columns)
    : columns_(columns), stride_((columns + 2 * kLanes - 1) / (2 * kLanes) * (2 * kLanes)) {
  if (count == 0 || columns == 0 || points.size() != count * columns) {
    throw Error(ErrorCode::argument, "neighbours: got " + std::to_string(count) + " points of " +
                                         std::to_string(columns) + " columns; at least one of each is needed");
  }
  points_.assign(count * stride_, 0.0F);
  for (std::size_t row = 0; row < count; ++row) {
    std::copy_n(points.data() + row * columns, columns, points_.data() + row * stride_);
  }
}

std::vector<double> Neighbours::distances(std::span<const float> queries, std::size_t rows, std::size_t columns,
                                          unsigned threads) const {
  if (columns != columns_ || queries.size() != rows * columns) {
    throw Error(ErrorCode::argument, "neighbours: got rows of " + std::to_string(columns) +
                                         " columns; the points have " + std::to_string(columns_));
  }
  std::vector<double> found(rows);
  detail::in_parallel((rows + kRowsAtOnce - 1) / kRowsAtOnce, threads, [&](std::size_t part) {
    std::vector<float> query(stride_, 0.0F);
    for (std::size_t row = part * kRowsAtOnce; row < std::min(rows, (part + 1) * kRowsAtOnce); ++row) {
      std::copy_n(queries.data() + row * columns, columns, query.data());
      float best = std::numeric_limits<float>::infinity();
      for (std::size_t at = 0; at < points_.size(); at += stride_) {
        const float squared = squared_distance(query.data(), points_.data() + at, stride_, best);
        if (!(squared >= best)) best = squared;  // a query that is not a number stays so
      }
      found[row] = std::sqrt(static_cast<double>(best));
    }
  });
  return found;
}

}  // namespace perfpass
