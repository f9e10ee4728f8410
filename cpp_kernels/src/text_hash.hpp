// The hash of names: multiply and fold, eight bytes at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace perfpass {

/// The same text hashes differently from process to process (the seed is an address that the kernel randomises), so
/// that no file can be made whose names collide on purpose.
inline std::uint64_t hash_text(std::string_view text) noexcept {
  static const std::uint64_t seed = [] {
    const int here = 0;
    return reinterpret_cast<std::uintptr_t>(&here) * 0x9e3779b97f4a7c15ULL;
  }();
  const auto fold = [](std::uint64_t value) {
    value *= 0xd6e8feb86659fd93ULL;
    return value ^ (value >> 32);
  };
  std::uint64_t h = seed ^ text.size();
  const char* at = text.data();
  std::size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    h = fold(h ^ word);
  }
  if (left > 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, left);
    h = fold(h ^ word);
  }
  return fold(h);
}

}  // namespace perfpass
