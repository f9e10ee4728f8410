// Nearest neighbours among known points, by brute force: the same answer for one query and for many.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "perfpass/export.hpp"

namespace perfpass {

class PERFPASS_API Neighbours {
 public:
  /// `points`: [count, columns] row major. Error(argument) where there is none, or a size does not fit.
  Neighbours(std::span<const float> points, std::size_t count, std::size_t columns);

  /// `queries`: [rows, columns]. Returns [rows] Euclidean distances to the nearest point. Error(argument) for another
  /// number of columns.
  std::vector<double> distances(std::span<const float> queries, std::size_t rows, std::size_t columns,
                                unsigned threads = 1) const;

 private:
  std::size_t columns_, stride_;
  std::vector<float> points_;  // rows padded with zeros to whole blocks
};

}  // namespace perfpass
