// Element types and their width in bits.
#pragma once

#include <cstdint>
#include <string_view>

#include "perfpass/export.hpp"

namespace perfpass {

enum class DType : std::uint8_t {
  undefined = 0,
  float32,
  float16,
  bfloat16,
  float64,
  float8,  // every 8-bit floating format (E4M3, E5M2 and their variants)
  float4,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  int4,
  uint4,
  boolean,
  complex64,
  complex128,
  string,
  count_,
};

/// Width of one element in bits; 0 for undefined, 64 for string (a pointer: the text itself is not counted).
PERFPASS_API int bits_of(DType dtype) noexcept;
PERFPASS_API bool is_floating(DType dtype) noexcept;
/// Names as NumPy writes them where NumPy has the type ("float32", "int64", "bool").
PERFPASS_API std::string_view dtype_name(DType dtype) noexcept;
/// The reverse of dtype_name; undefined for an unknown name.
PERFPASS_API DType dtype_from_name(std::string_view name) noexcept;

/// Bytes that `elements` elements occupy, sub-byte types packed and rounded up.
constexpr std::int64_t bytes_for(std::int64_t elements, int bits) noexcept {
  // Split so that elements * bits cannot overflow for any tensor that fits in 2^60 bytes.
  return (elements / 8) * bits + ((elements % 8) * bits + 7) / 8;
}

}  // namespace perfpass
