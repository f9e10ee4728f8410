#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "perfpass/stablehlo_reader.hpp"

namespace perfpass::bindings {
namespace {

std::string_view characters(const Buffer& buffer) {
  const auto bytes = buffer.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void register_stablehlo(nb::module_& m) {
  m.def(
      "read_stablehlo",
      [](nb::handle text, const std::map<std::string, std::vector<std::int64_t>>& input_shapes) {
        const Buffer borrowed(text);
        const nb::gil_scoped_release released;
        return read_stablehlo(characters(borrowed), input_shapes);
      },
      nb::arg("text"), nb::arg("input_shapes") = std::map<std::string, std::vector<std::int64_t>>{},
      "The graph of main of an MLIR text; whole shapes of inputs by name.");
  m.def(
      "stablehlo_inputs",
      [](nb::handle text) {
        const Buffer borrowed(text);
        std::vector<StablehloInput> inputs;
        {
          const nb::gil_scoped_release released;
          inputs = stablehlo_inputs(characters(borrowed));
        }
        nb::list rows;
        for (const StablehloInput& input : inputs) {
          rows.append(nb::make_tuple(input.name, dtype_name(input.dtype), input.shape, input.symbols));
        }
        return rows;
      },
      nb::arg("text"), "Name, type, shape (-1 where open) and symbols of every argument of main that is no parameter.");
}

}  // namespace perfpass::bindings
