// SHA-256 by the standard's examples, and both ways of computing it against each other.
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "perfpass/sha256.hpp"

namespace perfpass {
namespace {

std::string shown(const Sha256& digest) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest) text += {digits[byte >> 4], digits[byte & 15]};
  return text;
}

std::span<const std::uint8_t> bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

TEST(sha256_of_the_standards_own_examples) {
  // FIPS 180-4's examples, and the digest of nothing.
  CHECK_EQUAL(shown(sha256(bytes(""))),
              std::string("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
  CHECK_EQUAL(shown(sha256(bytes("abc"))),
              std::string("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
  CHECK_EQUAL(shown(sha256(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
              std::string("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));
}

TEST(sha256_is_the_same_with_and_without_the_processors_instructions) {
  std::vector<std::uint8_t> content(300);
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::uint8_t>(37 * i + i / 7);
  for (std::size_t size = 0; size <= content.size(); ++size) {
    const std::span<const std::uint8_t> part(content.data(), size);
    CHECK(sha256(part) == sha256_plain(part));
  }
}

}  // namespace
}  // namespace perfpass
