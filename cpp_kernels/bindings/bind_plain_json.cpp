#include <string_view>

#include "bindings.hpp"
#include "perfpass/plain_json.hpp"

namespace perfpass::bindings {

void register_plain_json(nb::module_& m) {
  m.def(
      "is_plain_json",
      [](nb::bytes content) {
        return is_plain_json(std::string_view(static_cast<const char*>(content.data()), content.size()));
      },
      nb::arg("content"),
      "Whether bytes are JSON at most 32 deep, without a key twice, an escape in a key, half a character as an escape, "
      "a whole number over 64 bits or one that is not finite; of anything unusual False.");
}

}  // namespace perfpass::bindings
