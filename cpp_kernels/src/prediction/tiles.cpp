#include "perfpass/tiles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace perfpass {

double whole_tiles(const Tiling& t, double b, double m, double n, double k, bool convolution, bool on_matrix) noexcept {
  b = std::max(b, 1.0), m = std::max(m, 1.0), n = std::max(n, 1.0), k = std::max(k, 1.0);
  const double most = convolution ? t.convolution_splits : t.splits.back();
  double best = std::numeric_limits<double>::infinity();
  for (const Tiling::Tile& tile : t.tiles) {
    const double tiles = b * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    const double share = on_matrix ? tile.matrix_share : tile.vector_share;
    for (const double split : t.splits) {
      if (split > most) continue;
      const double depth = k / split + t.prologue;
      best = std::min(best, std::ceil(tiles * split / t.sms) * t.sms * tile.rows * tile.columns * depth / share);
    }
  }
  return best / (b * m * n * k);
}

}  // namespace perfpass
