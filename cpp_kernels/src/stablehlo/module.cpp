#include "stablehlo/module.hpp"

#include "perfpass/error.hpp"
#include "support/text.hpp"

namespace perfpass::stablehlo {

std::string_view Module::location_name(std::string_view location) const {
  for (int hops = 0; hops < 8 && !location.empty(); ++hops) {
    if (location.front() == '"') {
      const std::size_t end = location.substr(0, kLongestName).find('"', 1);
      if (end == std::string_view::npos || location.substr(end + 1).starts_with(":")) return {};  // "file.py":12:3
      return location.substr(1, end - 1);
    }
    if (location.front() != '#') return {};
    const auto found = location_by_alias.find(location);
    if (found == location_by_alias.end()) return {};
    location = found->second;
  }
  return {};
}

const Function& Module::main() const {
  const Function* only = nullptr;
  std::size_t candidates = 0;
  std::string names;
  for (const Function& f : functions) {
    if (!f.has_body) continue;
    if (f.name == "main") return f;
    if (!f.is_public) continue;
    only = &f;
    if (++candidates <= 5) names += (names.empty() ? "" : ", ") + escaped(f.name.substr(0, 60));
  }
  if (candidates == 1) return *only;
  throw Error(ErrorCode::format, "the module has " + std::to_string(candidates) + " public functions" +
                                     (names.empty() ? "" : " (" + names + ")") +
                                     " and none is called main; export one function");
}

}  // namespace perfpass::stablehlo
