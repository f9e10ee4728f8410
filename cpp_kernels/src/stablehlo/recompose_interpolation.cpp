// Resizing an image by interpolation between the four pixels around each point.
#include "stablehlo/recomposer.hpp"

namespace perfpass::stablehlo {

// a + w (b - a) with one number of w for every place of an axis.
std::optional<Recomposer::Mix> Recomposer::mix(const FlatOp& sum) const {
  if (sum.code != Code::add || sum.in_count != 2 || sum.out_count != 1) return std::nullopt;
  const std::vector<std::int64_t>& out = g_.type(sum.out_begin).dims;
  for (const std::size_t i : {0U, 1U}) {
    const FlatOp* step = made(in(sum, i), Code::multiply);
    for (const std::size_t k : {0U, 1U}) {
      if (step == nullptr || step->in_count != 2) continue;
      const FlatOp* apart = made(in(*step, k), Code::subtract);
      if (apart == nullptr || apart->in_count != 2 || strip(in(*apart, 1)) != strip(in(sum, 1 - i))) continue;
      const std::int64_t weights = elements_of(g_.type(strip(in(*step, 1 - k))));
      const bool along_an_axis = std::find(out.begin(), out.end(), weights) != out.end();
      if (along_an_axis) return Mix{in(sum, 1 - i), in(*apart, 0)};
    }
  }
  return std::nullopt;
}

// PyTorch's decomposition of upsample_bilinear2d: rows mixed of gathered pixels, then columns of rows. A sampling grid
// (grid_sample) has weights of its own for every point, and stays as it is.
bool Recomposer::interpolation(FlatOp& op) {
  const auto whole = mix(op);
  if (!whole) return false;
  std::optional<Value> image;
  for (const Value row : {whole->first, whole->second}) {
    const FlatOp* sum = made(row, Code::add);
    const auto pixels = sum != nullptr ? mix(*sum) : std::nullopt;
    if (!pixels) return false;
    for (const Value pixel : {pixels->first, pixels->second}) {
      const FlatOp* gather = made(pixel, Code::gather);
      if (gather == nullptr || gather->in_count != 2) return false;
      const Value of = in(*gather, 0);
      if (image && strip(*image) != strip(of)) return false;
      image = of;
    }
  }
  const std::vector<std::int64_t>&from = g_.type(*image).dims, &to = g_.type(op.out_begin).dims;
  if (from.size() != 4 || to.size() != 4 || from[0] != to[0] || from[1] != to[1]) return false;
  become(op, Code::resize_, *image);
  return true;
}

}  // namespace perfpass::stablehlo
