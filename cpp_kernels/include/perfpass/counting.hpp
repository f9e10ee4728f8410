// Everything that predictors read of graphs, counted in one go: many graphs in, columns out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "perfpass/error.hpp"
#include "perfpass/export.hpp"
#include "perfpass/features.hpp"
#include "perfpass/graph.hpp"
#include "perfpass/onnx_reader.hpp"

namespace perfpass {

/// The allocator between a runtime's tensors and the device.
enum class Allocator : std::uint8_t {
  none,             // the C library, which takes back at once
  caching,          // PyTorch's, on GPUs
  arena,            // onnxruntime's, beside the initializers
  storage_sharing,  // TVM's plan
};
/// Error(argument) for an unknown name: "none", "caching", "arena", "storage_sharing".
PERFPASS_API Allocator allocator_from_name(std::string_view name);

/// Bytes that the allocator takes from the device for one forward run, weights included; 0 for none. `weight_copies`:
/// copies of the weights that are kept (autocast); `planned_weight_bytes`: MemoryPlan::weight_bytes. Error(limit) where
/// the copies pass 2^62 bytes.
PERFPASS_API std::int64_t reserved_bytes(const OpGraph& graph, Allocator allocator, int weight_copies, DType float_as,
                                         std::int64_t planned_weight_bytes);

/// How graphs are counted; what depends on the runtime, its precision and the kind of device.
struct CountingOptions {
  DType float_as = DType::undefined;  // as in CostOptions
  bool strided = true;                // as in table_as_run
  bool folds = false;                 // as in table_as_run
  bool fuses = false;                 // as in table_as_run
  bool narrows = false;               // plan memory of the graph as `narrowed` has it
  std::int64_t alignment_bytes = 1;   // as in MemoryOptions
  Allocator allocator = Allocator::none;
  int weight_copies = 1;
  bool training = false;                     // count what a step holds in its backward pass, too
  bool autocast = false;                     // as in MemoryOptions, of that
  std::int64_t saved_alignment_bytes = 512;  // of that
};

/// A graph, or where to read one.
using GraphSource = std::variant<const OpGraph*, std::string, std::span<const std::uint8_t>>;
struct CountingItem {
  GraphSource source;      // a graph, the path of an ONNX file, or the bytes of one
  OnnxOptions options;     // for reading
  std::int64_t batch = 0;  // samples that the shapes hold; 0: the leading dimension of the first input
};

/// N graphs. An item that cannot be counted has no rows and a problem.
struct CountedGraphs {
  OperatorTable table;               // as run, of all graphs one after another
  std::vector<std::int64_t> offset;  // [N + 1] into the rows
  // Of each graph, [N]
  std::vector<std::int64_t> batch;
  std::vector<std::int64_t> weight_bytes, activation_bytes, reserved_bytes;
  std::vector<std::int64_t> backward_bytes, gradient_bytes;  // of training steps (SavedActivations), else 0
  std::vector<double> first_input_elements, input_elements;
  std::vector<std::int64_t> nodes;
  std::vector<std::uint8_t> unknown;       // whether operators without a cost model are among the nodes
  std::vector<std::uint8_t> counted_once;  // whether a body runs as often as only a run knows
  std::vector<std::uint8_t> assumed;       // whether sizes that values decide were assumed (kAssumedDetections)
  struct Problem {
    std::size_t item;
    ErrorCode code;
    std::string message;
  };
  std::vector<Problem> problems;  // in the order of the items
};

/// Reads and counts all items on `threads` threads (at least 1); the result does not depend on their number.
PERFPASS_API CountedGraphs count_graphs(std::span<const CountingItem> items, const CountingOptions& options,
                                        unsigned threads);

}  // namespace perfpass
