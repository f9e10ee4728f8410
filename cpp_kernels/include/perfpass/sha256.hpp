// SHA-256 of bytes (FIPS 180-4): what artefacts are checked by, without loading a library of ciphers.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "perfpass/export.hpp"

namespace perfpass {

using Sha256 = std::array<std::uint8_t, 32>;

/// With the processor's own instructions for it where it has them (x86-64).
PERFPASS_API Sha256 sha256(std::span<const std::uint8_t> bytes) noexcept;

/// The same with none but the usual ones.
PERFPASS_API Sha256 sha256_plain(std::span<const std::uint8_t> bytes) noexcept;

}  // namespace perfpass
