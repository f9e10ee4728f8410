#include "assemble.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "perfpass/cost.hpp"
#include "perfpass/error.hpp"

namespace perfpass::ir {
namespace {

void choose_branches(OpGraph& graph, std::span<const Branches> branches) {
  if (branches.empty()) return;
  const Costs costs = count_costs(graph);
  for (const Branches& b : branches) {
    const auto work = [&](std::int32_t begin, std::int32_t end) {
      double macs = 0.0, bytes = 0.0;
      for (std::int32_t n = begin; n < end; ++n) {
        macs += static_cast<double>(costs.macs[n]) * graph.repeat[n];
        bytes += static_cast<double>(costs.bytes_written[n]) * graph.repeat[n];
      }
      return std::pair(macs, bytes);
    };
    const bool then_counts = !(work(b.begin, b.middle) < work(b.middle, b.end));
    for (std::int32_t n = then_counts ? b.middle : b.begin; n < (then_counts ? b.end : b.middle); ++n) {
      graph.repeat[n] = 0.0;
    }
    graph.notes.push_back({std::string("an If: the ") + (then_counts ? "then" : "else") +
                           " branch is counted, the other has less to do and counts 0 times"});
  }
}

/// The node that writes a tensor, for tensors that a transposing node writes; kNone for all others.
std::vector<std::int32_t> transposing_producers(const Records& records) {
  std::vector<std::int32_t> producer(records.tensors.size(), kNone);
  for (std::size_t n = 0; n < records.nodes.size(); ++n) {
    const NodeRecord& node = records.nodes[n];
    if (node.op != OpKind::transpose || node.inputs != 1 || node.outputs != 1) continue;
    const TensorId from = records.links[node.first_input], to = records.links[node.first_output];
    const auto before = records.shape(from), after = records.shape(to);
    if (before.size() == 2 && after.size() == 2 && before[0] == after[1] && before[1] == after[0]) {
      producer[to] = static_cast<std::int32_t>(n);
    }
  }
  return producer;
}

}  // namespace

bool is_parameter(DType dtype, std::size_t rank) {
  const bool bytes = dtype == DType::int8 || dtype == DType::uint8 || dtype == DType::int4 || dtype == DType::uint4;
  return (is_floating(dtype) && rank >= 1) || (bytes && rank >= 2);
}

void add_node(Records& records, OpKind op, std::int32_t source, const NodeAttributes& attributes,
              std::span<const TensorId> inputs, std::span<const TensorId> outputs, std::int32_t group) {
  if (records.nodes.size() >= kMaxNodes) {
    throw Error(ErrorCode::limit, "more than " + std::to_string(kMaxNodes) + " operators after inlining functions");
  }
  const auto first_input = static_cast<std::int32_t>(records.links.size());
  records.links.insert(records.links.end(), inputs.begin(), inputs.end());
  const auto first_output = static_cast<std::int32_t>(records.links.size());
  records.links.insert(records.links.end(), outputs.begin(), outputs.end());
  records.nodes.push_back({op, source, attributes, first_input, static_cast<std::int32_t>(inputs.size()), first_output,
                           static_cast<std::int32_t>(outputs.size()), group});
}

void weights_in_slots(Records& records, std::vector<TensorId>& graph_inputs) {
  std::int32_t found = 0;
  const std::vector<std::int32_t> transposing = transposing_producers(records);
  const auto slot = [&](const NodeRecord& node, std::int32_t i) {
    if (i >= node.inputs) return;
    TensorId t = records.links[node.first_input + i];
    if (t == kNone) return;
    if (node.op == OpKind::matmul && transposing[t] != kNone)
      t = records.links[records.nodes[transposing[t]].first_input];
    TensorRecord& tensor = records.tensors[t];
    if (tensor.role != TensorRole::input || !is_parameter(tensor.dtype, static_cast<std::size_t>(tensor.rank))) return;
    if (node.op == OpKind::matmul && tensor.rank != 2) return;
    tensor.role = TensorRole::weight;
    ++found;
  };
  const auto source = [&](const NodeRecord& node) -> const std::string& { return records.sources[node.source]; };
  // An embedding: rows chosen by what the network is fed. Constant indices pick from the network's own input.
  const auto looks_up_table = [&](const NodeRecord& node) {
    if ((source(node) != "take" && source(node) != "relax.take") || node.inputs < 2) return false;
    const TensorRole indices = records.tensors[records.links[node.first_input + 1]].role;
    return indices == TensorRole::input || indices == TensorRole::activation;
  };
  for (const NodeRecord& node : records.nodes) {
    switch (node.op) {
      case OpKind::conv:
      case OpKind::conv_transpose:
      case OpKind::deform_conv:
      case OpKind::dense:
      case OpKind::prelu:
      case OpKind::rms_norm:
      case OpKind::quantized_conv:
        slot(node, 1);
        break;
      case OpKind::matmul:
        if (source(node) != "nn.matmul" && source(node) != "nn.batch_matmul") slot(node, 1);  // Relay has nn.dense
        break;
      case OpKind::quantized_matmul:
        if (source(node) != "qnn.batch_matmul") slot(node, 1);
        break;
      case OpKind::batch_norm:
        for (std::int32_t i = 1; i < 5; ++i) slot(node, i);
        break;
      case OpKind::layer_norm:
      case OpKind::instance_norm:
      case OpKind::group_norm:
        for (std::int32_t i = 1; i < 3; ++i) slot(node, i);
        break;
      case OpKind::gather:
        if (looks_up_table(node)) slot(node, 0);
        break;
      case OpKind::add:
        if (source(node) == "nn.bias_add") slot(node, 1);
        break;
      default:
        break;
    }
  }
  std::erase_if(graph_inputs, [&](TensorId t) { return records.tensors[t].role != TensorRole::input; });
  if (found == 0) return;
  records.notes.push_back(std::to_string(found) +
                          " inputs stand in weight slots and are counted as weights; pass params= to name them");
}

void fold_transposed_weights(Records& records, std::span<const TensorId> outputs, std::vector<Branches>& branches) {
  const std::vector<std::int32_t> transposing = transposing_producers(records);
  std::vector<std::int32_t> readers(records.nodes.size(), 0);  // of a transposing node's result
  for (const NodeRecord& node : records.nodes) {
    for (std::int32_t i = 0; i < node.inputs; ++i) {
      TensorId& t = records.links[node.first_input + i];
      if (t == kNone || transposing[t] == kNone) continue;
      ++readers[transposing[t]];
    }
  }
  for (const TensorId t : outputs) {
    if (transposing[t] != kNone) ++readers[transposing[t]];
  }
  std::vector<char> gone(records.nodes.size(), 0);
  bool any = false;
  for (NodeRecord& node : records.nodes) {
    if (node.op != OpKind::matmul || node.inputs < 2) continue;
    TensorId& right = records.links[node.first_input + 1];
    if (right == kNone || transposing[right] == kNone) continue;
    const std::int32_t from = transposing[right];
    const TensorId whole = records.links[records.nodes[from].first_input];
    if (records.tensors[whole].role != TensorRole::weight || !records.tensors[whole].constant) continue;
    right = whole;
    node.attributes.transpose_b = 1 - node.attributes.transpose_b;
    if (--readers[from] == 0) gone[from] = any = true;
  }
  if (!any) return;
  std::vector<std::int32_t> place(records.nodes.size() + 1);  // how many nodes are kept before each
  std::size_t kept = 0;
  for (std::size_t n = 0; n < records.nodes.size(); ++n) {
    place[n] = static_cast<std::int32_t>(kept);
    if (gone[n] == 0) records.nodes[kept++] = records.nodes[n];
  }
  place[records.nodes.size()] = static_cast<std::int32_t>(kept);
  records.nodes.resize(kept);
  for (Branches& b : branches) b = {place[b.begin], place[b.middle], place[b.end]};
}

WalkResult assemble(Records& records, std::span<const TensorId> graph_inputs, std::span<const TensorId> outputs,
                    std::span<const Branches> branches) {
  GraphBuilder builder;
  builder.reserve(records.nodes.size(), records.tensors.size());
  for (const TensorRecord& t : records.tensors) {
    builder.add_tensor(t.name == kNone ? std::string_view() : std::string_view(records.names[t.name]), t.dtype,
                       {records.dims.data() + t.first_dim, static_cast<std::size_t>(t.rank)}, t.role);
  }
  WalkResult result;
  result.kernel_group.reserve(records.nodes.size());
  for (const NodeRecord& n : records.nodes) {
    builder.add_node(n.op, records.sources[n.source], "", n.attributes,
                     {records.links.data() + n.first_input, static_cast<std::size_t>(n.inputs)},
                     {records.links.data() + n.first_output, static_cast<std::size_t>(n.outputs)});
    result.kernel_group.push_back(n.group);
  }
  for (std::string& note : records.notes) builder.add_note(std::move(note));
  result.graph = std::move(builder).finish(graph_inputs, outputs);
  choose_branches(result.graph, branches);
  return result;
}

}  // namespace perfpass::ir
