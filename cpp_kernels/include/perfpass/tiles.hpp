// Matrix products in whole waves of tiles on a GPU (perfpass.predictors.inference.operators).
#pragma once

#include <vector>

#include "perfpass/export.hpp"

namespace perfpass {

/// What a library may choose from.
struct Tiling {
  struct Tile {
    double rows, columns;
    double vector_share, matrix_share;  // of the rate that vector and matrix units reach with it
  };
  std::vector<Tile> tiles;
  std::vector<double> splits;        // along k, ascending
  double convolution_splits = 1.0;   // the most of convolutions
  double prologue = 0.0, sms = 1.0;  // of k that filling the pipeline costs
};

/// FLOPs in whole waves of tiles over FLOPs, of `b` products of [m, k] by [k, n]; sizes under 1 count as 1. Nothing but
/// sums, products and roundings, so that it is the same to the last bit everywhere.
PERFPASS_API double whole_tiles(const Tiling& t, double b, double m, double n, double k, bool convolution,
                                bool on_matrix) noexcept;

}  // namespace perfpass
