#include "perfpass/stablehlo_reader.hpp"
#include "stablehlo/flat.hpp"

namespace perfpass {

std::vector<StablehloInput> stablehlo_inputs(std::string_view text, const StablehloLimits& limits) {
  stablehlo::FlatGraph graph = stablehlo::flatten(stablehlo::parse(text, limits), {}, limits, true);
  stablehlo::drop_identities(graph);
  stablehlo::find_weights(graph);
  std::vector<StablehloInput> inputs;
  for (const stablehlo::MainArgument& argument : graph.arguments) {
    if (argument.is_weight) continue;
    const stablehlo::Type& type = graph.type(argument.value);
    inputs.push_back({argument.name, type.dtype, type.dims, argument.symbols});
  }
  return inputs;
}

OpGraph read_stablehlo(std::string_view text, const std::map<std::string, std::vector<std::int64_t>>& input_shapes,
                       const StablehloLimits& limits) {
  stablehlo::FlatGraph graph = stablehlo::flatten(stablehlo::parse(text, limits), input_shapes, limits, false);
  stablehlo::drop_identities(graph);
  stablehlo::find_weights(graph);
  stablehlo::recompose(graph);
  return stablehlo::lower(graph);
}

}  // namespace perfpass
