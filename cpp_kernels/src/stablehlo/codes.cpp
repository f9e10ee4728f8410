#include "stablehlo/codes.hpp"

#include <string>
#include <unordered_map>

namespace perfpass::stablehlo {

Code code_of(std::string_view name) noexcept {
  static const auto* codes = [] {
    auto* map = new std::unordered_map<std::string_view, Code>;
    // Names that C++ keeps for itself end in an underscore here.
    const auto put = [&](std::string_view text, Code code) {
      if (text.ends_with('_')) text.remove_suffix(1);
      map->emplace(text, code);
    };
#define X(name) put(#name, Code::name);
    PERFPASS_STABLEHLO_OPERATORS(X)
#undef X
    return map;
  }();
  const auto found = codes->find(name);
  return found == codes->end() ? Code::other : found->second;
}

}  // namespace perfpass::stablehlo
