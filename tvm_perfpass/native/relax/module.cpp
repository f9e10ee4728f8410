// Python's way into the native Relax walk; tvm_perfpass.relax is what people import.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "../shared/from_python.hpp"
#include "perfpass/error.hpp"
#include "walk.hpp"

namespace nb = nanobind;
using namespace perfpass;

namespace {

using perfpass::ir::handle;
using Address = std::uintptr_t;
using KernelRow =
    std::tuple<Address, std::string, std::string, std::vector<std::size_t>, std::vector<Address>, std::vector<Address>>;

std::vector<ir::Handle> handles(const std::vector<Address>& addresses) {
  std::vector<ir::Handle> out;
  for (const Address address : addresses) out.push_back(handle(address));
  return out;
}

class Walker {
 public:
  Walker(const std::string& library, const nb::dict& rules) : tvm_(library), rules_(ir::rules_from_python(rules)) {}

  nb::tuple walk(Address main, const std::vector<std::pair<Address, Address>>& functions,
                 const std::vector<KernelRow>& kernels, const nb::object& parameters,
                 const std::vector<std::pair<Address, std::int64_t>>& sizes) {
    relax::Module module;
    module.main = handle(main);
    for (const auto& [variable, function] : functions) module.functions[handle(variable)] = handle(function);
    for (const auto& [variable, name, op, order, shapes, extents] : kernels) {
      module.kernels[handle(variable)] = {name, op_from_name(op), order, handles(shapes), handles(extents)};
    }
    module.infer_weights = parameters.is_none();
    if (!module.infer_weights) module.parameters = nb::cast<std::vector<std::string>>(parameters);
    for (const auto& [variable, size] : sizes) module.sizes.emplace_back(handle(variable), size);
    return ir::walk_to_python(relax::walk(tvm_, rules_, module, workspace_));
  }

  std::int32_t offset_of(const std::string& type_key, const std::string& field) const {
    return tvm_.offset_of(type_key, field);
  }

 private:
  relax::Reflection tvm_;
  ir::RuleTable rules_;
  relax::Workspace workspace_;
};

}  // namespace

NB_MODULE(_relax, m) {
  m.doc() = "The native Relax walk; use tvm_perfpass.relax instead.";
  // Registers the Graph class that walks return, and the translation of the core's errors.
  nb::module_::import_("perfpass._core");
  nb::exception<relax::AbiError>(m, "AbiError");
  nb::class_<Walker>(m, "Walker")
      .def(nb::init<const std::string&, const nb::dict&>(), nb::arg("library"), nb::arg("rules"))
      .def("offset_of", &Walker::offset_of, nb::arg("type_key"), nb::arg("field"))
      .def("walk", &Walker::walk, nb::arg("main"), nb::arg("functions"), nb::arg("kernels"),
           nb::arg("parameters").none(), nb::arg("sizes"));
}
