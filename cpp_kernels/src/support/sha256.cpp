#include "perfpass/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(_MSC_VER)
#define PERFPASS_SHA_NI 1
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace perfpass {
namespace {

constexpr std::size_t kBlock = 64;
using State = std::array<std::uint32_t, 8>;
using Blocks = void (*)(State& state, const std::uint8_t* data, std::size_t count);

// Fractions of the square roots of the first 8 primes, and of the cube roots of the first 64.
constexpr State kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
alignas(16) constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::uint8_t* p) noexcept {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | std::uint32_t{p[3]};
}

void plain_blocks(State& state, const std::uint8_t* data, std::size_t count) {
  for (; count != 0; --count, data += kBlock) {
    std::array<std::uint32_t, 64> w;
    for (std::size_t i = 0; i < 16; ++i) w[i] = big_endian(data + 4 * i);
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    // The eight words change places from round to round: here their names do, so that none is moved.
    const auto round = [&w](auto& a1, auto& b1, auto& c1, auto& d1, auto& e1, auto& f1, auto& g1, auto& h1,
                            std::size_t i) {
      h1 += (std::rotr(e1, 6) ^ std::rotr(e1, 11) ^ std::rotr(e1, 25)) + (g1 ^ (e1 & (f1 ^ g1))) + kRound[i] + w[i];
      d1 += h1;
      h1 += (std::rotr(a1, 2) ^ std::rotr(a1, 13) ^ std::rotr(a1, 22)) + ((a1 & b1) | (c1 & (a1 | b1)));
    };
    for (std::size_t i = 0; i < 64; i += 8) {
      round(a, b, c, d, e, f, g, h, i), round(h, a, b, c, d, e, f, g, i + 1);
      round(g, h, a, b, c, d, e, f, i + 2), round(f, g, h, a, b, c, d, e, i + 3);
      round(e, f, g, h, a, b, c, d, i + 4), round(d, e, f, g, h, a, b, c, i + 5);
      round(c, d, e, f, g, h, a, b, i + 6), round(b, c, d, e, f, g, h, a, i + 7);
    }
    const State added = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state[i] += added[i];
  }
}

#ifdef PERFPASS_SHA_NI

bool has_sha() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b >> 29 & 1) == 0) return false;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 19 & 1) != 0;  // SSE4.1
}

/// Four words of the schedule at a time, four rounds each (Intel, "New Instructions Supporting the Secure Hash
/// Algorithm on Intel Architecture Processors", 2013). The state lies as the instructions take it: a b e f, and c d g
/// h.
__attribute__((target("sha,sse4.1"))) void sha_blocks(State& state, const std::uint8_t* data, std::size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const auto at = [](auto* p) __attribute__((target("sha,sse4.1"))) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  };
  const __m128i badc = _mm_shuffle_epi32(at(state.data()), 0xB1), efgh = _mm_shuffle_epi32(at(state.data() + 4), 0x1B);
  __m128i abef = _mm_alignr_epi8(badc, efgh, 8), cdgh = _mm_blend_epi16(efgh, badc, 0xF0);
  for (; count != 0; --count, data += kBlock) {
    const __m128i before_abef = abef, before_cdgh = cdgh;
    __m128i w[4];
    for (int i = 0; i < 16; ++i) {
      __m128i& now = w[i % 4];
      if (i < 4) {
        now = _mm_shuffle_epi8(at(data + 16 * i), swap);
      } else {
        const __m128i last = w[(i + 3) % 4], middle = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
        now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), middle), last);
      }
      const __m128i added = _mm_add_epi32(now, at(kRound.data() + 4 * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, added);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(added, 0x0E));
    }
    abef = _mm_add_epi32(abef, before_abef), cdgh = _mm_add_epi32(cdgh, before_cdgh);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data()), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data() + 4), _mm_alignr_epi8(dchg, feba, 8));
}

#endif

Sha256 hashed(std::span<const std::uint8_t> bytes, Blocks blocks) noexcept {
  State state = kStart;
  const std::size_t whole = bytes.size() / kBlock, rest = bytes.size() % kBlock;
  blocks(state, bytes.data(), whole);
  // What is left, a one, zeros, and the number of bits in the last eight bytes.
  std::array<std::uint8_t, 2 * kBlock> tail{};
  std::ranges::copy(bytes.last(rest), tail.begin());
  tail[rest] = 0x80;
  const std::size_t end = rest + 9 > kBlock ? 2 * kBlock : kBlock;
  for (std::size_t i = 0; i < 8; ++i)
    tail[end - 1 - i] = static_cast<std::uint8_t>(std::uint64_t{bytes.size()} * 8 >> 8 * i);
  blocks(state, tail.data(), end / kBlock);
  Sha256 found;
  for (std::size_t i = 0; i < found.size(); ++i)
    found[i] = static_cast<std::uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return found;
}

}  // namespace

Sha256 sha256(std::span<const std::uint8_t> bytes) noexcept {
#ifdef PERFPASS_SHA_NI
  static const bool known = has_sha();
  if (known) return hashed(bytes, sha_blocks);
#endif
  return hashed(bytes, plain_blocks);
}

Sha256 sha256_plain(std::span<const std::uint8_t> bytes) noexcept { return hashed(bytes, plain_blocks); }

}  // namespace perfpass
