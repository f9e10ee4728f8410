#include "onnx/contents.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace perfpass::onnx {
namespace {

// Floating and 8-bit constants decide shapes only as scales of Resize or bounds of Range; larger ones are weights.
constexpr std::int64_t kMaxRealConstant = 64;

double half_to_double(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double value = 0.0;
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

double bfloat_to_double(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// Elements stored as T, as the wider type of `into`: what most constants are, without a question per element.
template <typename T, typename Wide>
void widen(std::span<const std::uint8_t> data, std::span<Wide> into) noexcept {
  for (std::size_t i = 0; i < into.size(); ++i) {
    T element;
    std::memcpy(&element, data.data() + i * sizeof(T), sizeof(T));
    into[i] = static_cast<Wide>(element);
  }
}

}  // namespace

std::int64_t most_contents(DType dtype, const OnnxLimits& limits) noexcept {
  const auto most = static_cast<std::int64_t>(limits.shape_constant);
  switch (dtype) {
    case DType::int64:
    case DType::int32:
    case DType::uint32:
    case DType::uint64:
    case DType::boolean:
      return most;
    case DType::float32:
    case DType::float64:
    case DType::float16:
    case DType::bfloat16:
    case DType::int16:
    case DType::uint16:
    case DType::int8:
    case DType::uint8:
      return std::min(most, kMaxRealConstant);
    default:
      return -1;
  }
}

std::uint64_t element_bits(DType dtype, std::span<const std::uint8_t> element) noexcept {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element.data(), element.size());
  const auto extend = [&](int width) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << (64 - width)) >> (64 - width));
  };
  if (dtype == DType::int32) return extend(32);
  if (dtype == DType::int16) return extend(16);
  if (dtype == DType::int8) return extend(8);
  return bits;
}

double real_element(DType dtype, std::uint64_t bits) noexcept {
  switch (dtype) {
    case DType::float64:
      return std::bit_cast<double>(bits);
    case DType::float16:
      return half_to_double(static_cast<std::uint16_t>(bits));
    case DType::bfloat16:
      return bfloat_to_double(static_cast<std::uint16_t>(bits));
    default:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  }
}

void set_contents(Constant& constant, std::span<const std::uint8_t> data, std::size_t elements,
                  std::pmr::memory_resource& arena) {
  const std::size_t width = static_cast<std::size_t>(bits_of(constant.dtype)) / 8;
  void* memory = arena.allocate(std::max<std::size_t>(1, elements) * sizeof(std::int64_t), alignof(std::int64_t));
  const auto bits = [&](std::size_t i) { return element_bits(constant.dtype, data.subspan(i * width, width)); };
  if (is_floating(constant.dtype)) {
    const std::span<double> reals(static_cast<double*>(memory), elements);
    if (constant.dtype == DType::float32) {
      widen<float>(data, reals);
    } else {
      for (std::size_t i = 0; i < elements; ++i) reals[i] = real_element(constant.dtype, bits(i));
    }
    constant.reals = reals;
  } else {
    const std::span<std::int64_t> integers(static_cast<std::int64_t*>(memory), elements);
    if (constant.dtype == DType::int64) {
      widen<std::int64_t>(data, integers);
    } else if (constant.dtype == DType::int32) {
      widen<std::int32_t>(data, integers);
    } else {
      for (std::size_t i = 0; i < elements; ++i) integers[i] = static_cast<std::int64_t>(bits(i));
    }
    constant.integers = integers;
  }
  constant.has_values = true;
}

}  // namespace perfpass::onnx
