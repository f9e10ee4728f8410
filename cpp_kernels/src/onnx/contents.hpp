// Contents of small constants as files store them: which are read, and from bits to numbers.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>

#include "onnx/model.hpp"

namespace perfpass::onnx {

/// The largest constant of a type whose contents are read, in elements; negative where none is.
std::int64_t most_contents(DType dtype, const OnnxLimits& limits) noexcept;

/// The bits of one stored element (little-endian), extended by its sign where the type has one.
std::uint64_t element_bits(DType dtype, std::span<const std::uint8_t> element) noexcept;

/// The value of a floating type's bits.
double real_element(DType dtype, std::uint64_t bits) noexcept;

/// Fills the contents of a constant from `data`, which holds `elements` of them one after the other.
void set_contents(Constant& constant, std::span<const std::uint8_t> data, std::size_t elements,
                  std::pmr::memory_resource& arena);

/// What exporters write for "unknown" where the name of a dimension belongs: two such dimensions are not one.
inline bool is_placeholder(Text name) noexcept { return name == "-1" || name.find_first_not_of("? ") == Text::npos; }

}  // namespace perfpass::onnx
