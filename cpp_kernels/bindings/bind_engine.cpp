#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "perfpass/engine_layers.hpp"

namespace perfpass::bindings {
namespace {

nb::list described(std::span<const EngineTensor> tensors) {
  nb::list rows;
  for (const EngineTensor& tensor : tensors) rows.append(nb::make_tuple(dtype_name(tensor.dtype), tensor.shape));
  return rows;
}

/// (kind, source, attributes, [(part, type, shape)] of its weights).
EngineLayer layer_from(const nb::tuple& row) {
  EngineLayer made;
  made.op = op_from_name(nb::cast<std::string_view>(row[0]));
  made.source = nb::cast<std::string>(row[1]);
  made.attributes = attributes_from_dict(nb::cast<nb::dict>(row[2]));
  for (const nb::handle one : nb::cast<nb::list>(row[3])) {
    const auto weight = nb::cast<nb::tuple>(one);
    made.weights.push_back(
        {nb::cast<std::string>(weight[0]),
         {dtype_from_name(nb::cast<std::string_view>(weight[1])), nb::cast<std::vector<std::int64_t>>(weight[2])}});
  }
  return made;
}

}  // namespace

void register_engine(nb::module_& m) {
  m.def(
      "read_engine_layers",
      [](nb::handle text, const std::vector<std::string>& members, const nb::callable& dtype,
         const nb::callable& layer) -> nb::object {
        const Buffer borrowed(text);
        const auto bytes = borrowed.bytes();
        EngineMeaning meaning;
        meaning.members = members;
        meaning.dtype = [&](std::string_view format) {
          return dtype_from_name(nb::cast<std::string_view>(dtype(format)));
        };
        meaning.layer = [&](const std::string& said, std::span<const EngineTensor> read,
                            std::span<const EngineTensor> written) -> std::optional<EngineLayer> {
          return layer_from(nb::cast<nb::tuple>(layer(said, described(read), described(written))));
        };
        std::optional<OpGraph> graph =
            read_engine_layers({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, meaning);
        return graph ? nb::cast(std::move(*graph)) : nb::none();
      },
      nb::arg("text"), nb::arg("members"), nb::arg("dtype"), nb::arg("layer"),
      "The graph of an engine's layers, lowered once for every signature, or None for a text that is to be parsed. "
      "`dtype` gives the type of a format, `layer` (kind, source, attributes, [(part, type, shape)] of weights) of an "
      "object of those members and the (type, shape) of what the layer reads and writes.");
}

}  // namespace perfpass::bindings
