// The hash of names: a multiplication to 128 bits folded into 64, sixteen bytes at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

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
  const auto word = [](const char* at) {
    std::uint64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  const auto half = [](const char* at) {
    std::uint32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  const auto byte = [](const char* at) { return static_cast<std::uint8_t>(*at); };
  const std::size_t size = text.size();
  const char* at = text.data();
  const char* const end = at + size;
  std::uint64_t h = seed ^ size;
  for (; end - at > 16; at += 16) h = mix(word(at) ^ h, word(at + 8));
  // The last sixteen bytes, or all there are: two reads that overlap, since a copy of unknown length is a call.
  std::uint64_t first = 0, last = 0;
  if (size >= 16) {
    first = word(end - 16), last = word(end - 8);
  } else if (size >= 8) {
    first = word(at), last = word(end - 8);
  } else if (size >= 4) {
    first = half(at), last = half(end - 4);
  } else if (size > 0) {
    first = byte(at), last = byte(at + size / 2) | byte(end - 1) << 8;
  }
  return mix(mix(first ^ h, last), seed);
}

}  // namespace perfpass
