#include <nanobind/stl/string_view.h>

#include "bindings.hpp"
#include "perfpass/memory.hpp"

namespace perfpass::bindings {
namespace {

template <auto Member>
nb::object column(nb::handle self) {
  const auto& values = nb::cast<const MemoryPlan&>(self).*Member;
  return view(values.data(), {values.size()}, self);
}

}  // namespace

void register_memory(nb::module_& m) {
  nb::class_<MemoryPlan>(m, "MemoryPlan")
      .def_ro("weight_bytes", &MemoryPlan::weight_bytes)
      .def_ro("input_bytes", &MemoryPlan::input_bytes)
      .def_ro("peak_activation_bytes", &MemoryPlan::peak_activation_bytes)
      .def_ro("peak_node", &MemoryPlan::peak_node)
      .def_prop_ro("peak_tensors", column<&MemoryPlan::peak_tensors>)
      .def_prop_ro("peak_producers", column<&MemoryPlan::peak_producers>)
      .def_prop_ro("peak_bytes", column<&MemoryPlan::peak_bytes>)
      .def_prop_ro("live_bytes", column<&MemoryPlan::live_bytes>);
  nb::class_<SavedActivations>(m, "SavedActivations")
      .def_ro("saved_bytes", &SavedActivations::saved_bytes)
      .def_ro("backward_bytes", &SavedActivations::backward_bytes)
      .def_ro("gradient_bytes", &SavedActivations::gradient_bytes)
      .def_prop_ro("tensors", [](nb::handle self) {
        const auto& values = nb::cast<const SavedActivations&>(self).tensors;
        return view(values.data(), {values.size()}, self);
      });
  m.def(
      "saved_activations",
      [](const OpGraph& graph, std::string_view float_as, std::int64_t alignment_bytes, bool autocast) {
        return saved_activations(graph, {floating_dtype(float_as), alignment_bytes, autocast});
      },
      nb::arg("graph"), nb::arg("float_as") = "", nb::arg("alignment_bytes") = 1, nb::arg("autocast") = false);
  m.def(
      "plan_memory",
      [](const OpGraph& graph, std::string_view float_as, std::int64_t alignment_bytes) {
        return plan_memory(graph, {floating_dtype(float_as), alignment_bytes});
      },
      nb::arg("graph"), nb::arg("float_as") = "", nb::arg("alignment_bytes") = 1);
}

}  // namespace perfpass::bindings
