// What each operator of StableHLO is called here, and whether it works element by element (its broadcasts cost
// nothing).
#pragma once

#include "perfpass/operators.hpp"
#include "stablehlo/codes.hpp"

namespace perfpass::stablehlo {

struct Meaning {
  OpKind kind = OpKind::unknown;
  bool elementwise = false;
};

/// Operators whose kind depends on more than their name (reduce, convolution, ...) are `unknown` here.
Meaning meaning_of(Code code) noexcept;

}  // namespace perfpass::stablehlo
