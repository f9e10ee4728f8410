// Fuzz target of the StableHLO reader: any text gives a graph or one perfpass::Error, never anything else, at the
// shapes that it fixes and at others (replay.hpp says how it runs).
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "perfpass/cost.hpp"
#include "perfpass/error.hpp"
#include "perfpass/stablehlo_reader.hpp"
#include "replay.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  perfpass::StablehloLimits limits;
  limits.nodes = 20'000;
  try {
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const perfpass::StablehloInput& input : perfpass::stablehlo_inputs(text, limits)) {
      std::vector<std::int64_t> shape = input.shape;
      for (std::int64_t& dim : shape) dim = dim < 0 ? 3 : dim;
      shapes.emplace(input.name, std::move(shape));
    }
    perfpass::count_costs(perfpass::read_stablehlo(text, shapes, limits));
  } catch (const perfpass::Error&) {  // any typed error is an answer
  }
  return 0;
}
