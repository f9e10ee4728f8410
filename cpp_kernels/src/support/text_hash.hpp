// The hash of names: a multiplication to 128 bits folded into 64, sixteen bytes at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "support/text_word.hpp"

namespace perfpass {

/// The same text hashes differently from process to process (the seed is an address that the kernel randomises), so
/// that no file can be made whose names collide on purpose.
inline std::uint64_t hash_text(std::string_view text) noexcept {
  __extension__ using Wide = unsigned __int128;
  static const std::uint64_t seed = [] {
    const int here = 0;
    return reinterpret_cast<std::uintptr_t>(&here) * 0x9e3779b97f4a7c15ULL;
  }();
  const auto mix = [](std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a ^ 0xd6e8feb86659fd93ULL) * (b ^ 0xa3b195354a39b70dULL);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  std::uint64_t h = seed ^ text.size();
  const char* at = text.data();
  std::size_t left = text.size();
  // The seed is in both factors: a word that made one of them zero would make all else count for nothing.
  for (; left > 16; at += 16, left -= 16) h = mix(text_word(at, 8) ^ h, text_word(at + 8, 8) ^ seed);
  const std::size_t first = std::min<std::size_t>(left, 8);
  return mix(mix(text_word(at, first) ^ h, text_word(at + first, left - first) ^ seed), seed);
}

/// Of tables whose keys are texts of a file: the standard library's hash is the same everywhere, and names that collide
/// are easily made for it.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept { return hash_text(text); }
};

}  // namespace perfpass
