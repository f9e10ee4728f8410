// Up to eight bytes of a text as one number, without a call: names are short, and every name is hashed and looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace perfpass {

/// `length` bytes, 8 at most, the first one lowest; what is past them is zero. The parts overlap where they must.
inline std::uint64_t text_word(const char* at, std::size_t length) noexcept {
  const auto part = [&]<typename T>(T value, std::size_t from) {
    std::memcpy(&value, at + from, sizeof value);
    return std::uint64_t{value} << (8 * from);
  };
  if (length == 8) return part(std::uint64_t{}, 0);
  if (length >= 4) return part(std::uint32_t{}, 0) | part(std::uint32_t{}, length - 4);
  if (length >= 2) return part(std::uint16_t{}, 0) | part(std::uint16_t{}, length - 2);
  return length == 1 ? part(std::uint8_t{}, 0) : 0;
}

}  // namespace perfpass
