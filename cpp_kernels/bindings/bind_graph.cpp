#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings.hpp"
#include "perfpass/error.hpp"
#include "perfpass/graph.hpp"

namespace perfpass::bindings {
namespace {

constexpr std::size_t kAttributeColumns = sizeof(NodeAttributes) / sizeof(std::int32_t);

template <auto Member>
nb::object column(nb::handle self) {
  const auto& values = nb::cast<const OpGraph&>(self).*Member;
  using T = typename std::decay_t<decltype(values)>::value_type;
  if constexpr (std::is_enum_v<T>) {
    using U = std::underlying_type_t<T>;
    return view(reinterpret_cast<const U*>(values.data()), {values.size()}, self);
  } else {
    return view(values.data(), {values.size()}, self);
  }
}

using Array64 = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig>;

/// The same graph with other sizes: `dims` replaces the concatenated dimensions, all else stays.
OpGraph with_dims(const OpGraph& graph, const Array64& dims) {
  if (dims.size() != graph.dims.size()) {
    throw Error(ErrorCode::argument, "with_dims got " + std::to_string(dims.size()) + " dimensions; the graph has " +
                                         std::to_string(graph.dims.size()));
  }
  OpGraph copy = graph;
  std::copy(dims.data(), dims.data() + dims.size(), copy.dims.begin());
  for (TensorId t = 0; t < static_cast<TensorId>(copy.tensor_count()); ++t) checked_elements(copy.shape(t));
  return copy;
}

/// The same graph, some of its nodes told anew: (node, operator, attributes, costs) each.
OpGraph with_stated(const OpGraph& graph, const nb::list& nodes) {
  OpGraph copy = graph;
  for (const nb::handle each : nodes) {
    const auto [node, op, attributes, costs] = nb::cast<std::tuple<NodeId, std::string, nb::dict, nb::tuple>>(each);
    if (node < 0 || node >= static_cast<NodeId>(copy.node_count())) {
      throw Error(ErrorCode::argument,
                  "with_stated names node " + std::to_string(node) + " of " + std::to_string(copy.node_count()));
    }
    copy.op[node] = op_from_name(op);
    copy.attributes[node] = attributes_from_dict(attributes);
    copy.stated[node] = costs_from_tuple(costs);
  }
  return copy;
}

nb::list texts(std::span<const Note> notes, bool counted_once_alone) {
  nb::list found;
  for (const Note& note : notes) {
    if (note.counted_once || !counted_once_alone) found.append(note.text);
  }
  return found;
}

nb::tuple tuple_of(std::span<const std::int64_t> values) {
  auto found = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (std::size_t i = 0; i < values.size(); ++i) {
    PyTuple_SetItem(found.ptr(), static_cast<Py_ssize_t>(i), nb::int_(values[i]).release().ptr());
  }
  return found;
}

/// As the errors of Python show it: a number of thousands of digits has no repr.
std::string shown(nb::handle value) {
  return nb::cast<std::string>(nb::module_::import_("perfpass.text").attr("shown_value")(value));
}

[[noreturn]] void no_sizes(std::string_view name, nb::handle shape) {
  for (const nb::handle size : shape) {
    std::int64_t held;
    if (!nb::try_cast(size, held)) {
      throw Error(ErrorCode::limit, "tensor '" + std::string(name.substr(0, 80)) + "': a dimension of " + shown(size) +
                                        "; whole numbers below 2^48 are read");
    }
  }
  throw Error(ErrorCode::argument,
              "tensor '" + std::string(name.substr(0, 80)) + "': its name, type and role are texts");
}

using Numbers = std::vector<TensorId>;

/// What a reader has drafted (importers/draft.py): the tensors that something reads or writes, in their order, then the
/// nodes. The numbers of tensors in the graph, by their numbers in the draft; -1 of those that nothing uses.
Numbers add_draft(GraphBuilder& builder, const nb::list& tensors, const nb::list& nodes, const Numbers& ends) {
  const std::size_t count = nb::len(tensors);
  Numbers number(count, -1);
  std::vector<std::pair<Numbers, Numbers>> ids;
  ids.reserve(nb::len(nodes));
  constexpr TensorId kUsed = -2;
  const auto use = [&](const Numbers& read) {
    for (const TensorId one : read) {
      if (one >= static_cast<TensorId>(count)) throw nb::index_error("no such tensor");
      if (one >= 0) number[one] = kUsed;
    }
  };
  const nb::str name = nb::str("name"), inputs = nb::str("inputs"), outputs = nb::str("outputs");
  for (const nb::handle node : nodes) {
    const auto& [read, written] =
        ids.emplace_back(nb::cast<Numbers>(node.attr(inputs)), nb::cast<Numbers>(node.attr(outputs)));
    use(read);
    use(written);
  }
  use(ends);
  const nb::str dtype = nb::str("dtype"), shape = nb::str("shape"), role = nb::str("role");
  for (std::size_t i = 0; i < count; ++i) {
    if (number[i] != kUsed) continue;
    const nb::object tensor = tensors[i];
    const auto called = nb::cast<std::string>(tensor.attr(name));
    const nb::object held = tensor.attr(shape);
    std::vector<std::int64_t> sizes;
    if (!nb::try_cast(held, sizes)) no_sizes(called, held);
    number[i] = builder.add_tensor(called, dtype_from_name(nb::cast<std::string>(tensor.attr(dtype))), sizes,
                                   role_from_name(nb::cast<std::string>(tensor.attr(role))));
  }
  const nb::str kind = nb::str("kind"), source = nb::str("source"), attributes = nb::str("attributes"),
                repeat = nb::str("repeat");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const nb::object node = nodes[i];
    for (Numbers* one : {&ids[i].first, &ids[i].second}) {
      for (TensorId& t : *one) t = t < 0 ? -1 : number[t];
    }
    builder.add_node(op_from_name(nb::cast<std::string>(node.attr(kind))), nb::cast<std::string>(node.attr(source)),
                     nb::cast<std::string>(node.attr(name)),
                     attributes_from_dict(nb::cast<nb::dict>(node.attr(attributes))), ids[i].first, ids[i].second,
                     nb::cast<double>(node.attr(repeat)));
  }
  return number;
}

}  // namespace

TensorRole role_from_name(std::string_view name) {
  if (name == "activation") return TensorRole::activation;
  if (name == "input") return TensorRole::input;
  if (name == "weight") return TensorRole::weight;
  if (name == "literal") return TensorRole::literal;
  throw Error(ErrorCode::argument,
              "tensor role '" + std::string(name) + "'; allowed are activation, input, weight and literal");
}

NodeAttributes attributes_from_dict(const nb::dict& values) {
  NodeAttributes attributes;
  auto* columns = reinterpret_cast<std::int32_t*>(&attributes);
  const auto names = attribute_names();
  for (auto [key, value] : values) {
    const auto name = nb::cast<std::string_view>(key);
    std::size_t i = 0;
    while (i < names.size() && names[i] != name) ++i;
    if (i == names.size()) throw Error(ErrorCode::argument, "no node attribute named '" + std::string(name) + "'");
    if (!nb::try_cast(value, columns[i])) {
      throw Error(ErrorCode::limit, "attribute " + std::string(name) + " of an operator is " + shown(value) +
                                        "; whole numbers of 32 bits are read");
    }
  }
  return attributes;
}

StatedCosts costs_from_tuple(const nb::tuple& values) {
  const auto [macs, flops, read, written] =
      nb::cast<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>>(values);
  for (const std::int64_t each : {macs, flops, read, written}) {
    if (each < kUnstated) throw Error(ErrorCode::argument, "stated costs are 0 or more, or -1 where nothing is stated");
  }
  return {macs, flops, read, written};
}

void register_graph(nb::module_& m) {
  nb::class_<OpGraph>(m, "Graph")
      .def_prop_ro("node_count", &OpGraph::node_count)
      .def_prop_ro("tensor_count", &OpGraph::tensor_count)
      .def_prop_ro("edge_count", &OpGraph::edge_count)
      .def_prop_ro("op", column<&OpGraph::op>)
      .def_prop_ro("source_op", column<&OpGraph::source_op>)
      .def_prop_ro("node_name", column<&OpGraph::node_name>)
      .def_prop_ro("attributes",
                   [](nb::handle self) {
                     const auto& values = nb::cast<const OpGraph&>(self).attributes;
                     return view(reinterpret_cast<const std::int32_t*>(values.data()),
                                 {values.size(), kAttributeColumns}, self);
                   })
      .def_prop_ro("repeat", column<&OpGraph::repeat>)
      .def_prop_ro("input_offset", column<&OpGraph::input_offset>)
      .def_prop_ro("inputs", column<&OpGraph::inputs>)
      .def_prop_ro("output_offset", column<&OpGraph::output_offset>)
      .def_prop_ro("outputs", column<&OpGraph::outputs>)
      .def_prop_ro("tensor_dtype", column<&OpGraph::tensor_dtype>)
      .def_prop_ro("tensor_role", column<&OpGraph::tensor_role>)
      .def_prop_ro("producer", column<&OpGraph::producer>)
      .def_prop_ro("tensor_name", column<&OpGraph::tensor_name>)
      .def_prop_ro("shape_offset", column<&OpGraph::shape_offset>)
      .def_prop_ro("dims", column<&OpGraph::dims>)
      .def_prop_ro("edge_producer", column<&OpGraph::edge_producer>)
      .def_prop_ro("edge_consumer", column<&OpGraph::edge_consumer>)
      .def_prop_ro("edge_tensor", column<&OpGraph::edge_tensor>)
      .def_prop_ro("graph_inputs", column<&OpGraph::graph_inputs>)
      .def_prop_ro("graph_outputs", column<&OpGraph::graph_outputs>)
      .def_prop_ro("notes", [](const OpGraph& g) { return texts(g.notes, false); })
      .def_prop_ro("counted_once", [](const OpGraph& g) { return texts(g.notes, true); })
      .def_prop_ro("string_count", [](const OpGraph& g) { return g.strings.size(); })
      .def("string", [](const OpGraph& g, std::int32_t id) { return std::string(g.strings.at(id)); })
      .def("shape",
           [](const OpGraph& g, TensorId tensor) {
             if (tensor < 0 || tensor >= static_cast<TensorId>(g.tensor_count()))
               throw nb::index_error("no such tensor");
             return tuple_of(g.shape(tensor));
           })
      .def("name_of", [](const OpGraph& g, NodeId node) { return std::string(g.strings.at(g.node_name.at(node))); })
      .def("source_op_name",
           [](const OpGraph& g, NodeId node) { return std::string(g.strings.at(g.source_op.at(node))); })
      .def_prop_ro("stated",
                   [](const OpGraph& g) {
                     nb::dict found;
                     for (const auto& [node, c] : g.stated) {
                       found[nb::int_(node)] = nb::make_tuple(c.macs, c.flops, c.bytes_read, c.bytes_written);
                     }
                     return found;
                   })
      .def("with_stated", &with_stated, nb::arg("nodes"))
      .def("with_dims", &with_dims, nb::arg("dims"));

  nb::class_<GraphBuilder>(m, "GraphBuilder")
      .def(nb::init<>())
      .def(
          "add_tensor",
          [](GraphBuilder& b, std::string_view name, std::string_view dtype, const std::vector<std::int64_t>& shape,
             std::string_view role) { return b.add_tensor(name, dtype_from_name(dtype), shape, role_from_name(role)); },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"), nb::arg("role"))
      .def(  // sizes that 64 bits do not hold
          "add_tensor",
          [](GraphBuilder&, std::string_view name, std::string_view, const nb::sequence& shape,
             std::string_view) -> TensorId { no_sizes(name, shape); },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"), nb::arg("role"))
      .def(
          "add_node",
          [](GraphBuilder& b, std::string_view op, std::string_view source_op, std::string_view name,
             const nb::dict& attributes, const std::vector<TensorId>& inputs, const std::vector<TensorId>& outputs,
             double repeat) {
            return b.add_node(op_from_name(op), source_op, name, attributes_from_dict(attributes), inputs, outputs,
                              repeat);
          },
          nb::arg("op"), nb::arg("source_op"), nb::arg("name"), nb::arg("attributes"), nb::arg("inputs"),
          nb::arg("outputs"), nb::arg("repeat") = 1.0)
      .def(
          "state", [](GraphBuilder& b, NodeId node, const nb::tuple& costs) { b.state(node, costs_from_tuple(costs)); },
          nb::arg("node"), nb::arg("costs"))
      .def("add_draft", &add_draft, nb::arg("tensors"), nb::arg("nodes"), nb::arg("ends"),
           "Adds the tensors of a draft that its nodes or its ends use, then its nodes; the tensors' numbers, -1 "
           "unused.")
      .def("add_note", &GraphBuilder::add_note, nb::arg("text"), nb::arg("counted_once") = false)
      .def(
          "add_notes", [](GraphBuilder& b, const OpGraph& of) { b.add_notes(of.notes); }, nb::arg("of"),
          "The notes of a graph that this one is made of, but for those that it has.")
      .def(
          "finish",
          [](GraphBuilder& b, const std::vector<TensorId>& inputs, const std::vector<TensorId>& outputs) {
            return std::move(b).finish(inputs, outputs);
          },
          nb::arg("graph_inputs"), nb::arg("graph_outputs"));

  nb::list attributes, operators, operator_classes, class_names, dtypes, dtype_bits;
  for (const auto name : attribute_names()) attributes.append(nb::cast(name));
  for (std::uint16_t i = 0; i < static_cast<std::uint16_t>(OpKind::count_); ++i) {
    operators.append(nb::cast(op_name(static_cast<OpKind>(i))));
    operator_classes.append(nb::int_(static_cast<int>(op_class(static_cast<OpKind>(i)))));
  }
  for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(OpClass::count_); ++i) {
    class_names.append(nb::cast(op_class_name(static_cast<OpClass>(i))));
  }
  for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(DType::count_); ++i) {
    dtypes.append(nb::cast(dtype_name(static_cast<DType>(i))));
    dtype_bits.append(nb::int_(bits_of(static_cast<DType>(i))));
  }
  m.attr("ATTRIBUTES") = nb::tuple(attributes);
  m.attr("OPERATORS") = nb::tuple(operators);
  m.attr("OPERATOR_CLASS_OF") = nb::tuple(operator_classes);
  m.attr("OPERATOR_CLASSES") = nb::tuple(class_names);
  m.attr("DTYPES") = nb::tuple(dtypes);
  m.attr("DTYPE_BITS") = nb::tuple(dtype_bits);
}

}  // namespace perfpass::bindings
