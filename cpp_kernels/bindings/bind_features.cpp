#include <nanobind/stl/string_view.h>

#include "bindings.hpp"
#include "perfpass/features.hpp"
#include "perfpass/fusion.hpp"

namespace perfpass::bindings {
namespace {

template <auto Member>
nb::object column(nb::handle self) {
  const auto& values = nb::cast<const OperatorTable&>(self).*Member;
  return view(values.data(), {values.size()}, self);
}

nb::tuple names(std::span<const std::string_view> texts) {
  nb::list result;
  for (const std::string_view text : texts) result.append(nb::cast(text));
  return nb::tuple(result);
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
      .def_prop_ro("constant", column<&OperatorTable::constant>)
      .def_prop_ro("first_node", column<&OperatorTable::first_node>);
  m.def(
      "operator_table", [](const OpGraph& graph, const Costs& costs) { return operator_table(graph, costs); },
      nb::arg("graph"), nb::arg("costs"));
  m.def(
      "table_as_run",
      [](const OpGraph& graph, const Costs& costs, bool strided, bool folds, bool fuses) {
        return table_as_run(graph, costs, strided, folds, fuses);
      },
      nb::arg("graph"), nb::arg("costs"), nb::arg("strided"), nb::arg("folds"), nb::arg("fuses"));
  m.def("fixed_nodes", [](const OpGraph& graph) { return own(fixed_nodes(graph)); }, nb::arg("graph"));
  m.def("folded_nodes", [](const OpGraph& graph) { return own(folded_nodes(graph)); }, nb::arg("graph"));
  m.def("narrowed", &narrowed, nb::arg("graph"));
  m.def(
      "rows_as_run",
      [](const OpGraph& graph, const Costs& costs, bool strided, bool folds, bool fuses) {
        Placement places;
        table_as_run(graph, costs, strided, folds, fuses, &places);
        return nb::make_tuple(own(std::move(places.row)), own(std::move(places.into)));
      },
      nb::arg("graph"), nb::arg("costs"), nb::arg("strided"), nb::arg("folds"), nb::arg("fuses"));
  m.def(
      "node_features",
      [](const OpGraph& graph, const Costs& costs, std::string_view schema) {
        FeatureMatrix matrix = node_features(graph, costs, schema_from_name(schema));
        const auto rows = static_cast<std::size_t>(matrix.rows), columns = static_cast<std::size_t>(matrix.columns);
        return nb::make_tuple(own(std::move(matrix.values), {rows, columns}), own(std::move(matrix.statics)));
      },
      nb::arg("graph"), nb::arg("costs"), nb::arg("schema"));
  m.def(
      "node_feature_names", [](std::string_view schema) { return names(node_feature_names(schema_from_name(schema))); },
      nb::arg("schema"));
  m.def(
      "static_feature_names",
      [](std::string_view schema) { return names(static_feature_names(schema_from_name(schema))); }, nb::arg("schema"));
  m.def(
      "schema_version", [](std::string_view schema) { return schema_version(schema_from_name(schema)); },
      nb::arg("schema"));
}

}  // namespace perfpass::bindings
