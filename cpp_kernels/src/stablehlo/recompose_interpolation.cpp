// Resizing an image by interpolation between the four pixels around each point.
#include "stablehlo/recomposer.hpp"

namespace perfpass::stablehlo {

// a + w (b - a) with one number of w for every place of an axis, or one in all.
std::optional<Recomposer::Mix> Recomposer::mix(const FlatOp& sum) const {
  if (sum.code != Code::add || sum.in_count != 2 || sum.out_count != 1) return std::nullopt;
  for (const std::size_t i : {0U, 1U}) {
    const FlatOp* step = made(in(sum, i), Code::multiply);
    for (const std::size_t k : {0U, 1U}) {
      if (step == nullptr || step->in_count != 2) continue;
      const FlatOp* apart = made(in(*step, k), Code::subtract);
      if (apart == nullptr || apart->in_count != 2 || strip(in(*apart, 1)) != strip(in(sum, 1 - i))) continue;
      const Type& weights = g_.type(strip(in(*step, 1 - k)));
      const auto axes = std::count_if(weights.dims.begin(), weights.dims.end(), [](auto size) { return size != 1; });
      if (axes <= 1) return Mix{in(sum, 1 - i), in(*apart, 0), elements_of(weights)};
    }
  }
  return std::nullopt;
}

// PyTorch's decomposition of upsample_bilinear2d: rows mixed of gathered pixels, then columns of rows. A sampling grid
// (grid_sample) has weights of its own for every point, and stays as it is.
bool Recomposer::interpolation(FlatOp& op) {
  const auto whole = mix(op);
  if (!whole) return false;
  const std::vector<std::int64_t>& to = g_.type(op.out_begin).dims;
  if (to.size() != 4) return false;
  const bool rows_last = whole->weights == to[2];
  if (!rows_last && whole->weights != to[3]) return false;
  std::optional<Value> image;
  for (const Value row : {whole->first, whole->second}) {
    const FlatOp* sum = made(row, Code::add);
    const auto pixels = sum != nullptr ? mix(*sum) : std::nullopt;
    if (!pixels || pixels->weights != (rows_last ? to[3] : to[2])) return false;
    for (const Value pixel : {pixels->first, pixels->second}) {
      const FlatOp* gather = made(pixel, Code::gather);
      if (gather == nullptr || gather->in_count != 2) return false;
      const Value of = in(*gather, 0);
      if (image && strip(*image) != strip(of)) return false;
      image = of;
    }
  }
  const std::vector<std::int64_t>& from = g_.type(*image).dims;
  if (from.size() != 4 || from[0] != to[0] || from[1] != to[1]) return false;
  become(op, Code::resize_, *image);
  return true;
}

}  // namespace perfpass::stablehlo
