#include "bindings.hpp"
#include "perfpass/features.hpp"

namespace perfpass::bindings {
namespace {

template <auto Member>
nb::object column(nb::handle self) {
  const auto& values = nb::cast<const OperatorTable&>(self).*Member;
  return view(values.data(), {values.size()}, self);
}

}  // namespace

void register_features(nb::module_& m) {
  nb::class_<OperatorTable>(m, "OperatorTable")
      .def_prop_ro("rows", [](const OperatorTable& table) { return table.op.size(); })
      .def_prop_ro("op", column<&OperatorTable::op>)
      .def_prop_ro("op_class", column<&OperatorTable::op_class>)
      .def_prop_ro("dtype", column<&OperatorTable::dtype>)
      .def_prop_ro("view", column<&OperatorTable::view>)
      .def_prop_ro("count", column<&OperatorTable::count>)
      .def_prop_ro("macs", column<&OperatorTable::macs>)
      .def_prop_ro("flops", column<&OperatorTable::flops>)
      .def_prop_ro("bytes_read", column<&OperatorTable::bytes_read>)
      .def_prop_ro("bytes_written", column<&OperatorTable::bytes_written>)
      .def_prop_ro("weight_bytes", column<&OperatorTable::weight_bytes>)
      .def_prop_ro("input_elements", column<&OperatorTable::input_elements>)
      .def_prop_ro("output_elements", column<&OperatorTable::output_elements>)
      .def_prop_ro("b", column<&OperatorTable::b>)
      .def_prop_ro("m", column<&OperatorTable::m>)
      .def_prop_ro("n", column<&OperatorTable::n>)
      .def_prop_ro("k", column<&OperatorTable::k>)
      .def_prop_ro("kernel_area", column<&OperatorTable::kernel_area>)
      .def_prop_ro("stride", column<&OperatorTable::stride>)
      .def_prop_ro("groups", column<&OperatorTable::groups>)
      .def_prop_ro("first_node", column<&OperatorTable::first_node>);
  m.def("operator_table", &operator_table, nb::arg("graph"), nb::arg("costs"));
}

}  // namespace perfpass::bindings
