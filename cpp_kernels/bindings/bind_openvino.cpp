#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "perfpass/openvino_document.hpp"

namespace perfpass::bindings {
namespace {

nb::object text_of(std::string_view text) {
  PyObject* made = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "strict");
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::object text_of(const XmlText& text) { return text.escaped ? text_of(decode(text)) : text_of(text.raw); }

/// Texts of which a document has few: each becomes one object.
class Few {
 public:
  nb::object of(const XmlText& text) {
    const auto [known, is_new] = known_.try_emplace(text.raw);
    if (is_new) known->second = text_of(text);
    return known->second;
  }

 private:
  std::unordered_map<std::string_view, nb::object> known_;
};

/// The names of a tensor, between commas.
nb::object names_of(const XmlText& text) {
  const std::string written = decode(text);
  nb::list found;
  for (std::size_t at = 0; at < written.size();) {
    const std::size_t end = std::min(written.find(',', at), written.size());
    if (end > at) found.append(text_of(std::string_view(written).substr(at, end - at)));
    at = end + 1;
  }
  return nb::tuple(found);
}

std::vector<nb::object> lists_of(const std::vector<std::vector<std::int64_t>>& rows, bool as_tuple) {
  std::vector<nb::object> made;
  made.reserve(rows.size());
  for (const auto& row : rows) {
    nb::list numbers;
    for (const std::int64_t one : row) numbers.append(one);
    made.push_back(as_tuple ? nb::object(nb::tuple(numbers)) : nb::object(numbers));
  }
  return made;
}

/// {(reader, its port): (writer, its port)} and whether every layer stands behind those that it reads; None of edges
/// that contradict one another or the layers.
nb::object sources_of(const OpenvinoDocument& document, bool& ordered) {
  std::unordered_map<std::int64_t, std::size_t> place;
  for (std::size_t i = 0; i < document.layers.size(); ++i) {
    if (!place.emplace(document.layers[i].number, i).second) return nb::none();
  }
  nb::dict sources;
  std::size_t count = 0;
  for (const OpenvinoEdge& edge : document.edges) {
    const auto reader = place.find(edge.reader), writer = place.find(edge.writer);
    if (reader == place.end() || writer == place.end()) return nb::none();
    ordered = ordered && writer->second < reader->second;
    sources[nb::make_tuple(edge.reader, edge.reader_port)] = nb::make_tuple(edge.writer, edge.writer_port);
    if (nb::len(sources) != ++count) return nb::none();
  }
  return sources;
}

nb::object layers_of(nb::bytes content, const nb::object& layer, const nb::object& port) {
  const std::string_view text(static_cast<const char*>(content.data()), content.size());
  const std::optional<OpenvinoDocument> read = plain_openvino(text);
  if (!read) return nb::none();
  bool ordered = true;
  const nb::object sources = sources_of(*read, ordered);
  if (sources.is_none()) return nb::none();
  const std::vector<nb::object> inputs = lists_of(read->inputs, false), shapes = lists_of(read->shapes, true);
  std::vector<nb::object> data;
  Few few;
  for (const auto& attributes : read->data) {
    nb::dict made;
    for (const auto& [name, value] : attributes) made[few.of({name, false})] = text_of(value);
    data.push_back(made);
  }
  const nb::tuple unnamed;
  nb::list layers;
  for (const OpenvinoLayer& one : read->layers) {
    nb::list outputs;
    for (std::size_t i = one.first_output; i < one.last_output; ++i) {
      const OpenvinoPort& output = read->ports[i];
      const nb::object names = output.names.raw.empty() ? nb::object(unnamed) : names_of(output.names);
      outputs.append(port(output.number, few.of(output.precision), shapes[output.shape], names));
    }
    layers.append(layer(one.number, text_of(one.name), few.of(one.kind), few.of(one.opset),
                        one.data == OpenvinoLayer::kNone ? nb::dict() : data[one.data],
                        one.inputs == OpenvinoLayer::kNone ? nb::list() : inputs[one.inputs], outputs, nb::dict(),
                        nb::dict()));
  }
  return nb::make_tuple(layers, sources, ordered);
}

}  // namespace

void register_openvino(nb::module_& m) {
  m.def(
      "openvino_layers", &layers_of, nb::arg("content"), nb::arg("layer"), nb::arg("port"),
      "The layers of a plain document of OpenVINO in UTF-8, {(reader, input port): (writer, output port)} and whether "
      "the layers stand in the order of data flow; None of anything unusual. Layers written alike share their data.");
}

}  // namespace perfpass::bindings
