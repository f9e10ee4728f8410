#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "bindings.hpp"
#include "perfpass/cost.hpp"
#include "perfpass/error.hpp"

namespace perfpass::bindings {
namespace {

template <auto Member>
nb::object column(nb::handle self) {
  const auto& values = nb::cast<const Costs&>(self).*Member;
  return view(values.data(), {values.size()}, self);
}

}  // namespace

DType floating_dtype(std::string_view name) {
  if (name.empty()) return DType::undefined;
  const DType dtype = dtype_from_name(name);
  if (!is_floating(dtype)) {
    throw Error(ErrorCode::argument, "float_as is '" + std::string(name) +
                                         "'; allowed are float64, float32, float16, bfloat16, float8 and float4");
  }
  return dtype;
}

void register_cost(nb::module_& m) {
  nb::class_<Costs>(m, "Costs")
      .def_prop_ro("macs", column<&Costs::macs>)
      .def_prop_ro("flops", column<&Costs::flops>)
      .def_prop_ro("bytes_read", column<&Costs::bytes_read>)
      .def_prop_ro("bytes_written", column<&Costs::bytes_written>)
      .def_prop_ro("parameters", column<&Costs::parameters>)
      .def_prop_ro("weight_bytes", column<&Costs::weight_bytes>)
      .def("totals", [](const Costs& costs) {
        const CostTotals sum = totals(costs);
        nb::dict result;
        result["macs"] = sum.macs;
        result["flops"] = sum.flops;
        result["bytes_read"] = sum.bytes_read;
        result["bytes_written"] = sum.bytes_written;
        result["parameters"] = sum.parameters;
        result["weight_bytes"] = sum.weight_bytes;
        return result;
      });
  m.def(
      "count_costs",
      [](const OpGraph& graph, std::string_view float_as) { return count_costs(graph, {floating_dtype(float_as)}); },
      nb::arg("graph"), nb::arg("float_as") = "");
}

}  // namespace perfpass::bindings
