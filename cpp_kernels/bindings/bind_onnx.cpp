#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "perfpass/error.hpp"
#include "perfpass/flatbuffer_readers.hpp"
#include "perfpass/onnx_reader.hpp"

namespace perfpass::bindings {
namespace {

using Dims = std::map<std::string, std::int64_t>;
using Shapes = std::map<std::string, std::vector<std::int64_t>>;

/// What a Python object says of unknown operators: ``outputs(name, inputs, attributes, count)``, a list of (dtype,
/// shape) or None, and ``lowered(name, inputs, outputs, attributes)``, (operator, attributes, costs) or None.
class PythonOperators : public StatedOperators {
 public:
  explicit PythonOperators(nb::object operators) : operators_(std::move(operators)) {}

  std::vector<TensorType> outputs(const SourceNode& node) override {
    const nb::gil_scoped_acquire held;
    const nb::object said = operators_.attr("outputs")(node.name, tensors(node.inputs), attributes(node), node.outputs);
    std::vector<TensorType> found;
    if (said.is_none()) return found;
    for (const auto& [dtype, shape] : nb::cast<std::vector<std::pair<std::string, std::vector<std::int64_t>>>>(said)) {
      found.push_back({dtype_from_name(dtype), shape, true});
    }
    return found;
  }

  std::optional<Lowered> lowered(const SourceNode& node, const std::vector<TensorType>& outputs) override {
    const nb::gil_scoped_acquire held;
    const nb::object said =
        operators_.attr("lowered")(node.name, tensors(node.inputs), tensors(outputs), attributes(node));
    if (said.is_none()) return std::nullopt;
    const auto [op, columns, costs] = nb::cast<std::tuple<std::string, nb::dict, nb::tuple>>(said);
    return Lowered{op_from_name(op), attributes_from_dict(columns), costs_from_tuple(costs)};
  }

 private:
  static nb::list tensors(const std::vector<TensorType>& types) {
    nb::list found;
    for (const TensorType& type : types) {
      found.append(type.present ? nb::object(nb::make_tuple(dtype_name(type.dtype), type.shape)) : nb::none());
    }
    return found;
  }
  static nb::dict attributes(const SourceNode& node) {
    nb::dict found;
    for (const auto& [name, value] : node.attributes) {
      std::visit([&](const auto& v) { found[name.c_str()] = nb::cast(v); }, value);
    }
    return found;
  }

  nb::object operators_;
};

OnnxOptions make_options(Dims dims, Shapes input_shapes, std::int64_t batch, const OnnxLimits& limits,
                         std::int64_t detections) {
  return {.dims = std::move(dims),
          .input_shapes = std::move(input_shapes),
          .batch = batch,
          .detections = detections,
          .limits = limits};
}

}  // namespace

void register_onnx(nb::module_& m) {
  nb::class_<OnnxLimits>(m, "OnnxLimits")
      .def(nb::init<>())
      .def_rw("file_bytes", &OnnxLimits::file_bytes)
      .def_rw("nesting", &OnnxLimits::nesting)
      .def_rw("string_bytes", &OnnxLimits::string_bytes)
      .def_rw("nodes", &OnnxLimits::nodes)
      .def_rw("shape_constant", &OnnxLimits::shape_constant)
      .def_rw("whole_file", &OnnxLimits::whole_file);

  m.def(
      "read_onnx_file",
      [](const nb::bytes& path, Dims dims, Shapes input_shapes, std::int64_t batch, const OnnxLimits& limits,
         std::int64_t detections, const nb::object& operators) {
        OnnxOptions options = make_options(std::move(dims), std::move(input_shapes), batch, limits, detections);
        PythonOperators stated(operators);
        if (!operators.is_none()) options.stated = &stated;
        const std::string name(path.c_str(), path.size());  // as the file system has it, not always UTF-8
        const nb::gil_scoped_release released;
        return read_onnx_file(name, options);
      },
      nb::arg("path"), nb::arg("dims") = Dims{}, nb::arg("input_shapes") = Shapes{}, nb::arg("batch") = 0,
      nb::arg("limits") = OnnxLimits{}, nb::arg("detections") = 0, nb::arg("operators") = nb::none());
  m.def(
      "read_onnx_bytes",
      [](nb::handle buffer, Dims dims, Shapes input_shapes, std::int64_t batch, const OnnxLimits& limits,
         std::int64_t detections, const nb::object& operators) {
        const Buffer borrowed(buffer);
        OnnxOptions options = make_options(std::move(dims), std::move(input_shapes), batch, limits, detections);
        PythonOperators stated(operators);
        if (!operators.is_none()) options.stated = &stated;
        const nb::gil_scoped_release released;
        return read_onnx_bytes(borrowed.bytes(), options);
      },
      nb::arg("buffer"), nb::arg("dims") = Dims{}, nb::arg("input_shapes") = Shapes{}, nb::arg("batch") = 0,
      nb::arg("limits") = OnnxLimits{}, nb::arg("detections") = 0, nb::arg("operators") = nb::none());
  m.attr("ASSUMED_DETECTIONS") = kAssumedDetections;

  const auto listing = [](const std::vector<OnnxInput>& inputs) {
    nb::list rows;
    for (const OnnxInput& input : inputs) {
      rows.append(nb::make_tuple(input.name, dtype_name(input.dtype), input.has_shape, input.shape, input.symbols));
    }
    return rows;
  };
  m.def(
      "onnx_inputs_file",
      [listing](const nb::bytes& path, const OnnxLimits& limits) {
        const std::string name(path.c_str(), path.size());
        std::vector<OnnxInput> inputs;
        {
          const nb::gil_scoped_release released;
          inputs = onnx_inputs_file(name, limits);
        }
        return listing(inputs);
      },
      nb::arg("path"), nb::arg("limits") = OnnxLimits{});

  nb::enum_<FlatBufferFormat>(m, "FlatBufferFormat")
      .value("TFLITE", FlatBufferFormat::tflite)
      .value("ORT", FlatBufferFormat::ort)
      .value("EXECUTORCH", FlatBufferFormat::executorch);
  m.def(
      "read_flatbuffer_file",
      [](FlatBufferFormat format, const nb::bytes& path, Dims dims, Shapes input_shapes, std::int64_t batch,
         const OnnxLimits& limits, std::int64_t detections) {
        const OnnxOptions options = make_options(std::move(dims), std::move(input_shapes), batch, limits, detections);
        const std::string name(path.c_str(), path.size());
        const nb::gil_scoped_release released;
        return read_flatbuffer_file(format, name, options);
      },
      nb::arg("format"), nb::arg("path"), nb::arg("dims") = Dims{}, nb::arg("input_shapes") = Shapes{},
      nb::arg("batch") = 0, nb::arg("limits") = OnnxLimits{}, nb::arg("detections") = 0);
  m.def(
      "flatbuffer_inputs_file",
      [listing](FlatBufferFormat format, const nb::bytes& path, const OnnxLimits& limits) {
        const std::string name(path.c_str(), path.size());
        std::vector<OnnxInput> inputs;
        {
          const nb::gil_scoped_release released;
          inputs = flatbuffer_inputs_file(format, name, limits);
        }
        return listing(inputs);
      },
      nb::arg("format"), nb::arg("path"), nb::arg("limits") = OnnxLimits{});
}

}  // namespace perfpass::bindings
