#include "rules.hpp"

#include <array>

#include "perfpass/error.hpp"
#include "perfpass/graph.hpp"

namespace perfpass::ir {
namespace {

template <std::size_t N>
std::size_t index_of(const std::array<std::string_view, N>& names, std::string_view name, const char* what) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return i;
  }
  throw Error(ErrorCode::argument, std::string(what) + " '" + std::string(name) + "' is not known to the walk");
}

}  // namespace

How how_from_name(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kNames = {"ints", "pads", "int", "axis", "equation"};
  return static_cast<How>(index_of(kNames, name, "attribute reading"));
}

Form form_from_name(std::string_view name) {
  static constexpr std::array<std::string_view, 13> kNames = {
      "",           "conv",      "conv_transpose", "pool",     "global_pool", "adaptive_pool", "first_output",
      "dense_pack", "attention", "no_node",        "call_tir", "packed",      "unsupported"};
  return static_cast<Form>(index_of(kNames, name, "form"));
}

std::size_t column_from_name(std::string_view name) {
  const std::string first = name == "pad" ? "pad_begin_0" : std::string(name) + "_0";
  const auto names = attribute_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name || names[i] == first) return i;
  }
  throw Error(ErrorCode::argument, "no node attribute named '" + std::string(name) + "'");
}

}  // namespace perfpass::ir
