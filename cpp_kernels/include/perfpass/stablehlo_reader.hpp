// StableHLO modules as MLIR text (pretty or generic form; mhlo and chlo operators too) to OpGraphs: a bounded parser.
//
// Constants are not read, except small integers that decide shapes and single numbers that tell a ReLU from a maximum.
// Grammar: the MLIR language reference and the StableHLO specification.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "perfpass/export.hpp"
#include "perfpass/graph.hpp"

namespace perfpass {

struct StablehloLimits {
  std::size_t text_bytes = std::size_t{1} << 30;
  int nesting = 64;                 // regions within one another, calls within one another
  std::size_t nodes = 1'000'000;    // after inlining calls
  std::size_t known_elements = 64;  // of an integer tensor whose values are followed
};

/// One argument of main that is no parameter, as the text declares it.
struct StablehloInput {
  std::string name;
  DType dtype = DType::undefined;
  std::vector<std::int64_t> shape;   // -1 where open
  std::vector<std::string> symbols;  // per axis: the name that jax.export has for it, else empty
};

/// The inputs; arguments that stand where operators have their parameters are none (src/stablehlo/roles.cpp).
PERFPASS_API std::vector<StablehloInput> stablehlo_inputs(std::string_view text, const StablehloLimits& limits = {});

/// The graph of main. `input_shapes`: whole shapes of inputs by name; they have to fill every open dimension and to
/// agree with what the text fixes. Error(format), Error(limit), Error(shape), Error(argument), Error(unsupported).
PERFPASS_API OpGraph read_stablehlo(std::string_view text,
                                    const std::map<std::string, std::vector<std::int64_t>>& input_shapes = {},
                                    const StablehloLimits& limits = {});

}  // namespace perfpass
