#include "perfpass/dtype.hpp"

#include <array>

namespace perfpass {
namespace {

struct DTypeEntry {
  std::string_view name;
  int bits;
  bool floating;
};

constexpr std::array<DTypeEntry, static_cast<std::size_t>(DType::count_)> kDTypes = {{
    {"undefined", 0, false}, {"float32", 32, true}, {"float16", 16, true},    {"bfloat16", 16, true},
    {"float64", 64, true},   {"float8", 8, true},   {"float4", 4, true},      {"int8", 8, false},
    {"int16", 16, false},    {"int32", 32, false},  {"int64", 64, false},     {"uint8", 8, false},
    {"uint16", 16, false},   {"uint32", 32, false}, {"uint64", 64, false},    {"int4", 4, false},
    {"uint4", 4, false},     {"bool", 8, false},    {"complex64", 64, false}, {"complex128", 128, false},
    {"string", 64, false},
}};

const DTypeEntry& entry(DType dtype) noexcept {
  const auto i = static_cast<std::size_t>(dtype);
  return i < kDTypes.size() ? kDTypes[i] : kDTypes[0];
}

}  // namespace

int bits_of(DType dtype) noexcept { return entry(dtype).bits; }
bool is_floating(DType dtype) noexcept { return entry(dtype).floating; }
std::string_view dtype_name(DType dtype) noexcept { return entry(dtype).name; }

DType dtype_from_name(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return DType::undefined;
}

}  // namespace perfpass
