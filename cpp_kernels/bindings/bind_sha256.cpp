#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "perfpass/sha256.hpp"

namespace perfpass::bindings {
namespace {

std::string in_hexadecimal(const Sha256& digest) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest) text += {digits[byte >> 4], digits[byte & 15]};
  return text;
}

}  // namespace

void register_sha256(nb::module_& m) {
  m.def(
      "sha256",
      [](nb::handle content) {
        const Buffer buffer(content);
        const nb::gil_scoped_release released;
        return in_hexadecimal(sha256(buffer.bytes()));
      },
      nb::arg("content"), "SHA-256 of any object with a contiguous buffer, in hexadecimal digits.");
}

}  // namespace perfpass::bindings
