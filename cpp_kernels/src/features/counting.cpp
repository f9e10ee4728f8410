#include "perfpass/counting.hpp"

#include <algorithm>
#include <optional>

#include "costs/node.hpp"
#include "perfpass/allocators.hpp"
#include "perfpass/cost.hpp"
#include "perfpass/fusion.hpp"
#include "perfpass/memory.hpp"
#include "perfpass/onnx_reader.hpp"
#include "support/parallel.hpp"

namespace perfpass {
namespace {

/// One counted graph, before it is joined with the others.
struct Counted {
  OperatorTable table;
  std::int64_t batch = 0, weight_bytes = 0, activation_bytes = 0, reserved_bytes = 0;
  std::int64_t backward_bytes = 0, gradient_bytes = 0, nodes = 0;
  double first_input_elements = 0.0, input_elements = 0.0;
  bool unknown = false, counted_once = false, assumed = false;
};

std::int64_t leading_dim(const OpGraph& graph) {
  for (const TensorId t : graph.graph_inputs) {
    const auto shape = graph.shape(t);
    if (!shape.empty()) return std::max<std::int64_t>(1, shape[0]);
  }
  return 1;
}

Counted count(const OpGraph& graph, std::int64_t batch, const CountingOptions& options) {
  Counted found;
  const Costs costs = count_costs(graph, {options.float_as});
  found.table = table_as_run(graph, costs, options.strided, options.folds, options.fuses);
  std::optional<OpGraph> narrow;
  if (options.narrows) narrow = narrowed(graph);
  const OpGraph& held = narrow ? *narrow : graph;
  const MemoryPlan plan = plan_memory(held, {options.float_as, options.alignment_bytes});
  found.batch = batch > 0 ? batch : leading_dim(graph);
  found.weight_bytes = plan.weight_bytes;
  found.activation_bytes = plan.peak_activation_bytes;
  found.nodes = static_cast<std::int64_t>(graph.node_count());
  for (const TensorId t : graph.graph_inputs) {
    const auto elements = static_cast<double>(graph.elements(t));
    if (t == graph.graph_inputs.front()) found.first_input_elements = elements;
    found.input_elements += elements;
  }
  found.unknown =
      !graph.stated.empty() || std::find(graph.op.begin(), graph.op.end(), OpKind::unknown) != graph.op.end();
  found.counted_once = graph.counts_once();
  found.assumed = std::any_of(graph.notes.begin(), graph.notes.end(),
                              [](const Note& note) { return note.text.starts_with(kAssumedDetections); });
  if (options.training) {
    const SavedActivations step =
        saved_activations(graph, {options.float_as, options.saved_alignment_bytes, options.autocast});
    found.backward_bytes = step.backward_bytes;
    found.gradient_bytes = step.gradient_bytes;
  } else {
    found.reserved_bytes =
        reserved_bytes(held, options.allocator, options.weight_copies, options.float_as, plan.weight_bytes);
  }
  return found;
}

Counted count(const CountingItem& item, const CountingOptions& options) {
  if (const auto* const* graph = std::get_if<const OpGraph*>(&item.source)) return count(**graph, item.batch, options);
  if (const auto* path = std::get_if<std::string>(&item.source)) {
    return count(read_onnx_file(*path, item.options), item.batch, options);
  }
  return count(read_onnx_bytes(std::get<std::span<const std::uint8_t>>(item.source), item.options), item.batch,
               options);
}

struct Outcome {
  Counted counted;
  std::optional<Error> problem;
};

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

void append(OperatorTable& all, const OperatorTable& some) {
  append(all.op, some.op), append(all.op_class, some.op_class), append(all.dtype, some.dtype);
  append(all.view, some.view), append(all.count, some.count), append(all.macs, some.macs);
  append(all.flops, some.flops), append(all.bytes_read, some.bytes_read);
  append(all.bytes_written, some.bytes_written), append(all.weight_bytes, some.weight_bytes);
  append(all.input_elements, some.input_elements), append(all.output_elements, some.output_elements);
  append(all.b, some.b), append(all.m, some.m), append(all.n, some.n), append(all.k, some.k);
  append(all.kernel_area, some.kernel_area), append(all.stride, some.stride), append(all.groups, some.groups);
  append(all.constant, some.constant), append(all.first_node, some.first_node);
}

}  // namespace

Allocator allocator_from_name(std::string_view name) {
  if (name == "none") return Allocator::none;
  if (name == "caching") return Allocator::caching;
  if (name == "arena") return Allocator::arena;
  if (name == "storage_sharing") return Allocator::storage_sharing;
  throw Error(ErrorCode::argument,
              "allocator '" + std::string(name) + "'; allowed are none, caching, arena and storage_sharing");
}

std::int64_t reserved_bytes(const OpGraph& graph, Allocator allocator, int weight_copies, DType float_as,
                            std::int64_t planned_weight_bytes) {
  const std::int64_t planned = (detail::Count(planned_weight_bytes) * weight_copies).value();
  if (planned_weight_bytes < 0 || weight_copies < 1 || planned > detail::kMaxCount) {
    throw Error(ErrorCode::limit, std::to_string(weight_copies) + " copies of " + std::to_string(planned_weight_bytes) +
                                      " bytes of weights; allowed are 2^62 bytes in all");
  }
  if (allocator == Allocator::none) return 0;
  MemoryEvents events = memory_events(graph, float_as);
  if (allocator == Allocator::storage_sharing) {
    return simulate_storage_sharing({events.block, events.bytes, events.use}).peak_reserved;
  }
  // Weights stand first and are never freed; those of the plan are as large, or larger by their alignment.
  constexpr auto kWeights = static_cast<std::uint8_t>(MemoryUse::weights);
  const auto weights = static_cast<std::size_t>(
      std::find_if(events.use.begin(), events.use.end(), [](std::uint8_t use) { return use != kWeights; }) -
      events.use.begin());
  if (allocator == Allocator::caching) {
    for (std::size_t e = 0; e < weights; ++e) events.bytes[e] *= weight_copies;
    return simulate_caching({events.block, events.bytes, events.use}).peak_reserved;
  }
  const auto rest = [&](const auto& column) { return std::span(column).subspan(weights); };
  return planned + simulate_arena({rest(events.block), rest(events.bytes), rest(events.use)}).peak_reserved;
}

CountedGraphs count_graphs(std::span<const CountingItem> items, const CountingOptions& options, unsigned threads) {
  std::vector<Outcome> outcomes(items.size());
  detail::in_parallel(items.size(), threads, [&](std::size_t i) {
    try {
      outcomes[i].counted = count(items[i], options);
    } catch (const Error& error) {
      outcomes[i].problem = error;
    }
  });
  CountedGraphs all;
  all.offset.push_back(0);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Counted& one = outcomes[i].counted;
    if (outcomes[i].problem) all.problems.push_back({i, outcomes[i].problem->code(), outcomes[i].problem->what()});
    append(all.table, one.table);
    all.offset.push_back(static_cast<std::int64_t>(all.table.op.size()));
    all.batch.push_back(one.batch);
    all.weight_bytes.push_back(one.weight_bytes);
    all.activation_bytes.push_back(one.activation_bytes);
    all.reserved_bytes.push_back(one.reserved_bytes);
    all.backward_bytes.push_back(one.backward_bytes);
    all.gradient_bytes.push_back(one.gradient_bytes);
    all.first_input_elements.push_back(one.first_input_elements);
    all.input_elements.push_back(one.input_elements);
    all.nodes.push_back(one.nodes);
    all.unknown.push_back(one.unknown ? 1 : 0);
    all.counted_once.push_back(one.counted_once ? 1 : 0);
    all.assumed.push_back(one.assumed ? 1 : 0);
  }
  return all;
}

}  // namespace perfpass
