// The plain C face of the core: handles around its objects, and no exception past any function.
#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "perfpass/cost.hpp"
#include "perfpass/error.hpp"
#include "perfpass/features.hpp"
#include "perfpass/memory.hpp"
#include "perfpass/onnx_reader.hpp"
#include "perfpass/perfpass_core.h"
#include "perfpass/predictor.hpp"

struct perfpass_graph {
  perfpass::OpGraph graph;
};
struct perfpass_predictor {
  perfpass::Predictor predictor;
};

namespace {

using perfpass::Error;
using perfpass::ErrorCode;

static_assert(static_cast<int>(ErrorCode::io) + 1 == PERFPASS_ERROR_IO);
static_assert(static_cast<int>(ErrorCode::unsupported) + 1 == PERFPASS_ERROR_UNSUPPORTED);

/// `text` into `buffer` of `size` bytes, cut at a whole character.
void put(char* buffer, std::size_t size, std::string_view text) noexcept {
  std::size_t length = std::min(text.size(), size - 1);
  while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  std::memcpy(buffer, text.data(), length);
  buffer[length] = '\0';
}

perfpass_status fail(perfpass_error* error, perfpass_status status, const char* message) noexcept {
  if (error == nullptr || error->struct_size < offsetof(perfpass_error, message) + 2) return status;
  error->status = status;
  put(error->message, std::min(error->struct_size - offsetof(perfpass_error, message), sizeof(error->message)),
      message);
  return status;
}

template <typename Do>
perfpass_status guarded(perfpass_error* error, const Do& run) noexcept {
  try {
    run();
    return PERFPASS_OK;
  } catch (const Error& e) {
    return fail(error, static_cast<perfpass_status>(static_cast<int>(e.code()) + 1), e.what());
  } catch (const std::bad_alloc&) {
    return fail(error, PERFPASS_ERROR_MEMORY, "no memory left; free some, or give a smaller model");
  } catch (const std::exception& e) {
    return fail(error, PERFPASS_ERROR_INTERNAL, e.what());
  } catch (...) {
    return fail(error, PERFPASS_ERROR_INTERNAL, "an exception of no known kind");
  }
}

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::argument, message); }

template <typename T>
T& given(T* pointer, const char* name) {
  if (pointer == nullptr) refuse(std::string(name) + " is NULL");
  return *pointer;
}

/// `found` into what the caller has room for.
template <typename T>
void give(T* to, T found, const char* name) {
  const std::size_t size = given(to, name).struct_size;
  if (size < sizeof(std::size_t)) {
    refuse(std::string(name) + ".struct_size is " + std::to_string(size) + "; set it to sizeof, as PERFPASS_INIT does");
  }
  found.struct_size = size;
  std::memcpy(to, &found, std::min(size, sizeof(T)));
}

perfpass_text lent(std::string_view text) noexcept { return {text.data(), text.size()}; }

perfpass_bounds lent(const perfpass::Bounds& b) noexcept { return {b.median, b.low, b.high}; }

perfpass::DType float_as(const char* name) {
  if (name == nullptr) return perfpass::DType::undefined;
  const perfpass::DType found = perfpass::dtype_from_name(name);
  if (!perfpass::is_floating(found))
    refuse("float_as '" + std::string(name) + "' is no floating type; NULL keeps the file's");
  return found;
}

perfpass::OnnxOptions options_of(const perfpass_read_options* options) {
  perfpass::OnnxOptions found;
  if (options == nullptr) return found;
  perfpass_read_options own{};
  if (options->struct_size < sizeof(std::size_t)) refuse("options.struct_size is too small; set it to sizeof");
  std::memcpy(&own, options, std::min(options->struct_size, sizeof(own)));
  if (own.batch < 0 || own.detections < 0) refuse("options.batch and options.detections are 0 or more");
  found.batch = own.batch, found.detections = own.detections;
  for (std::size_t i = 0; i < own.dim_count; ++i) {
    const perfpass_dim& dim = (&given(own.dims, "options.dims"))[i];
    if (dim.size < 1) refuse("options.dims: a size is " + std::to_string(dim.size) + "; at least 1 is allowed");
    found.dims[&given(dim.name, "options.dims.name")] = dim.size;
  }
  for (std::size_t i = 0; i < own.input_shape_count; ++i) {
    const perfpass_input_shape& shape = (&given(own.input_shapes, "options.input_shapes"))[i];
    std::vector<std::int64_t> dims;
    for (std::size_t axis = 0; axis < shape.rank; ++axis) dims.push_back((&given(shape.dims, "shape.dims"))[axis]);
    if (std::any_of(dims.begin(), dims.end(), [](std::int64_t size) { return size < 1; })) {
      refuse("options.input_shapes: a size below 1");
    }
    found.input_shapes[&given(shape.name, "options.input_shapes.name")] = std::move(dims);
  }
  if (own.most_file_bytes != 0) found.limits.file_bytes = own.most_file_bytes;
  if (own.most_nodes != 0) found.limits.nodes = static_cast<std::size_t>(own.most_nodes);
  return found;
}

const perfpass::OpGraph& of(const perfpass_graph* graph) { return given(graph, "graph").graph; }

std::span<const std::uint8_t> bytes_of(const void* bytes, std::size_t size) {
  if (bytes == nullptr && size != 0) refuse("bytes is NULL");
  return {static_cast<const std::uint8_t*>(bytes), size};
}

void copy(const std::vector<std::int64_t>& column, std::int64_t* to) {
  if (to != nullptr) std::copy(column.begin(), column.end(), to);
}

}  // namespace

uint32_t perfpass_abi(void) { return PERFPASS_CORE_ABI; }

const char* perfpass_version(void) { return PERFPASS_VERSION; }

perfpass_status perfpass_read_onnx_file(const char* path, const perfpass_read_options* options, perfpass_graph** graph,
                                        perfpass_error* error) {
  return guarded(error, [&] {
    given(graph, "graph") = nullptr;
    *graph = new perfpass_graph{perfpass::read_onnx_file(&given(path, "path"), options_of(options))};
  });
}

perfpass_status perfpass_read_onnx_bytes(const void* bytes, size_t size, const perfpass_read_options* options,
                                         perfpass_graph** graph, perfpass_error* error) {
  return guarded(error, [&] {
    given(graph, "graph") = nullptr;
    *graph = new perfpass_graph{perfpass::read_onnx_bytes(bytes_of(bytes, size), options_of(options))};
  });
}

void perfpass_graph_free(perfpass_graph* graph) { delete graph; }

perfpass_status perfpass_graph_measure(const perfpass_graph* graph, perfpass_graph_size* size, perfpass_error* error) {
  return guarded(error, [&] {
    const perfpass::OpGraph& g = of(graph);
    perfpass_graph_size found{};
    found.nodes = static_cast<int64_t>(g.node_count());
    found.tensors = static_cast<int64_t>(g.tensor_count());
    found.edges = static_cast<int64_t>(g.edge_count());
    found.inputs = static_cast<int64_t>(g.graph_inputs.size());
    found.outputs = static_cast<int64_t>(g.graph_outputs.size());
    found.unknown_operators = std::count(g.op.begin(), g.op.end(), perfpass::OpKind::unknown);
    found.notes = static_cast<int64_t>(g.notes.size());
    give(size, found, "size");
  });
}

perfpass_status perfpass_graph_note(const perfpass_graph* graph, size_t index, perfpass_text* text,
                                    perfpass_error* error) {
  return guarded(error, [&] {
    const auto& notes = of(graph).notes;
    if (index >= notes.size()) refuse("note " + std::to_string(index) + " of " + std::to_string(notes.size()));
    given(text, "text") = lent(notes[index].text);
  });
}

perfpass_status perfpass_graph_node(const perfpass_graph* graph, size_t index, perfpass_node* node,
                                    perfpass_error* error) {
  return guarded(error, [&] {
    const perfpass::OpGraph& g = of(graph);
    if (index >= g.node_count()) refuse("node " + std::to_string(index) + " of " + std::to_string(g.node_count()));
    perfpass_node found{};
    found.op = lent(perfpass::op_name(g.op[index]));
    found.source_op = lent(g.strings.at(g.source_op[index]));
    found.name = lent(g.strings.at(g.node_name[index]));
    found.repeat = g.repeat[index];
    give(node, found, "node");
  });
}

perfpass_status perfpass_graph_costs(const perfpass_graph* graph, const char* as, perfpass_costs* totals,
                                     perfpass_error* error) {
  return guarded(error, [&] {
    const perfpass::CostTotals all = perfpass::totals(perfpass::count_costs(of(graph), {float_as(as)}));
    perfpass_costs found{};
    found.macs = all.macs, found.flops = all.flops, found.bytes_read = all.bytes_read;
    found.bytes_written = all.bytes_written, found.parameters = all.parameters, found.weight_bytes = all.weight_bytes;
    give(totals, found, "totals");
  });
}

perfpass_status perfpass_graph_node_costs(const perfpass_graph* graph, const char* as, size_t length, int64_t* macs,
                                          int64_t* flops, int64_t* bytes_read, int64_t* bytes_written,
                                          int64_t* parameters, perfpass_error* error) {
  return guarded(error, [&] {
    const perfpass::OpGraph& g = of(graph);
    if (length != g.node_count()) {
      refuse("arrays of " + std::to_string(length) + "; the graph has " + std::to_string(g.node_count()) + " nodes");
    }
    const perfpass::Costs found = perfpass::count_costs(g, {float_as(as)});
    copy(found.macs, macs), copy(found.flops, flops), copy(found.bytes_read, bytes_read);
    copy(found.bytes_written, bytes_written), copy(found.parameters, parameters);
  });
}

perfpass_status perfpass_graph_memory(const perfpass_graph* graph, const char* as, int64_t alignment_bytes,
                                      perfpass_memory* memory, perfpass_error* error) {
  return guarded(error, [&] {
    const perfpass::MemoryPlan plan = perfpass::plan_memory(of(graph), {float_as(as), alignment_bytes});
    perfpass_memory found{};
    found.weight_bytes = plan.weight_bytes, found.input_bytes = plan.input_bytes;
    found.peak_activation_bytes = plan.peak_activation_bytes, found.peak_node = plan.peak_node;
    give(memory, found, "memory");
  });
}

perfpass_status perfpass_graph_features(const perfpass_graph* graph, const char* schema, float* values, size_t capacity,
                                        size_t* rows, size_t* columns, perfpass_error* error) {
  return guarded(error, [&] {
    const perfpass::OpGraph& g = of(graph);
    const perfpass::Schema kind = perfpass::schema_from_name(&given(schema, "schema"));
    const perfpass::FeatureMatrix found = perfpass::node_features(g, perfpass::count_costs(g), kind);
    given(rows, "rows") = static_cast<std::size_t>(found.rows);
    given(columns, "columns") = static_cast<std::size_t>(found.columns);
    if (values == nullptr) return;
    if (capacity < found.values.size()) {
      refuse("values has room for " + std::to_string(capacity) + " floats; " + std::to_string(found.values.size()) +
             " are needed");
    }
    std::copy(found.values.begin(), found.values.end(), values);
  });
}

perfpass_status perfpass_predictor_read_file(const char* path, perfpass_predictor** predictor, perfpass_error* error) {
  return guarded(error, [&] {
    given(predictor, "predictor") = nullptr;
    *predictor = new perfpass_predictor{perfpass::Predictor::from_file(&given(path, "path"))};
  });
}

perfpass_status perfpass_predictor_read_bytes(const void* bytes, size_t size, perfpass_predictor** predictor,
                                              perfpass_error* error) {
  return guarded(error, [&] {
    given(predictor, "predictor") = nullptr;
    *predictor = new perfpass_predictor{perfpass::Predictor::from_bytes(bytes_of(bytes, size))};
  });
}

void perfpass_predictor_free(perfpass_predictor* predictor) { delete predictor; }

perfpass_status perfpass_predictor_describe(const perfpass_predictor* predictor, perfpass_predictor_about* about,
                                            perfpass_error* error) {
  return guarded(error, [&] {
    const perfpass::Predictor& p = given(predictor, "predictor").predictor;
    perfpass_predictor_about found{};
    found.device = lent(p.device()), found.runtime = lent(p.runtime()), found.precision = lent(p.precision());
    found.perfpass = lent(p.perfpass_version()), found.coverage = p.coverage();
    give(about, found, "about");
  });
}

perfpass_status perfpass_predict(const perfpass_predictor* predictor, const perfpass_graph* graph, int64_t batch,
                                 perfpass_prediction* prediction, perfpass_error* error) {
  return guarded(error, [&] {
    const perfpass::RunPrediction p = given(predictor, "predictor").predictor.predict(of(graph), batch);
    perfpass_prediction found{};
    found.batch = p.batch;
    found.latency_ms = lent(p.latency_ms), found.throughput_per_s = lent(p.throughput_per_s);
    found.power_w = lent(p.power_w), found.energy_j = lent(p.energy_j), found.alive_bytes = lent(p.alive_bytes);
    found.reserved_bytes = lent(p.reserved_bytes), found.peak_memory_bytes = lent(p.peak_memory_bytes);
    found.support = static_cast<int32_t>(p.support);
    std::string reasons;
    for (const std::string& reason : p.reasons) reasons += (reasons.empty() ? "" : "\n") + reason;
    put(found.reasons, sizeof(found.reasons), reasons);
    give(prediction, found, "prediction");
  });
}
