// Python's way into the native Relay walk; tvm_perfpass.relay is what people import.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../shared/from_python.hpp"
#include "perfpass/error.hpp"
#include "walk.hpp"

namespace nb = nanobind;
using namespace perfpass;

namespace {

using perfpass::ir::handle;

class Walker {
 public:
  Walker(const std::string& library, const nb::dict& rules) : tvm_(library), rules_(ir::rules_from_python(rules)) {}

  void calibrate(const std::map<std::string, std::vector<std::uintptr_t>>& probes) {
    std::map<std::string, std::vector<ir::Handle>> handles;
    for (const auto& [key, addresses] : probes) {
      for (const std::uintptr_t address : addresses) handles[key].push_back(handle(address));
    }
    tvm_.calibrate(handles);
  }

  nb::tuple walk(std::uintptr_t main, const std::vector<std::pair<std::uintptr_t, std::uintptr_t>>& functions,
                 const nb::object& parameters) {
    relay::Module module;
    module.main = handle(main);
    for (const auto& [variable, function] : functions) module.functions[handle(variable)] = handle(function);
    module.infer_weights = parameters.is_none();
    if (!module.infer_weights) module.parameters = nb::cast<std::vector<std::string>>(parameters);
    relay::WalkResult result = relay::walk(tvm_, rules_, module, workspace_);
    return ir::walk_to_python(std::move(result));
  }

  std::vector<std::string> calibrated() const { return tvm_.calibrated(); }
  void forget_layout() { tvm_.forget_layout(); }

 private:
  relay::Tvm tvm_;
  relay::RuleTable rules_;
  relay::Workspace workspace_;
};

}  // namespace

NB_MODULE(_relay, m) {
  m.doc() = "The native Relay walk; use tvm_perfpass.relay instead.";
  // Registers the Graph class that walks return, and the translation of the core's errors.
  nb::module_::import_("perfpass._core");
  nb::exception<relay::AbiError>(m, "AbiError");
  nb::class_<Walker>(m, "Walker")
      .def(nb::init<const std::string&, const nb::dict&>(), nb::arg("library"), nb::arg("rules"))
      .def("calibrate", &Walker::calibrate, nb::arg("probes"))
      .def("forget_layout", &Walker::forget_layout)
      .def_prop_ro("calibrated", &Walker::calibrated)
      .def("walk", &Walker::walk, nb::arg("main"), nb::arg("functions"), nb::arg("parameters").none());
}
