// From the records of a walk to the graph.
#include <algorithm>

#include "walker.hpp"

namespace perfpass::relay {

/// Turns inputs that stand where an operator has its parameters into weights; returns how many.
std::int32_t Walker::weights_in_slots() {
  std::int32_t found = 0;
  const auto slot = [&](const NodeRecord& node, std::int32_t i) {
    if (i >= node.inputs) return;
    TensorRecord& tensor = records_.tensors[records_.links[node.first_input + i]];
    if (tensor.role != TensorRole::input || !is_parameter(tensor.dtype, static_cast<std::size_t>(tensor.rank))) return;
    tensor.role = TensorRole::weight;
    ++found;
  };
  // An embedding: rows chosen by what the network is fed. Constant indices pick from the network's own input.
  const auto looks_up_table = [&](const NodeRecord& node) {
    if (records_.sources[node.source] != "take" || node.inputs < 2) return false;
    const TensorRole indices = records_.tensors[records_.links[node.first_input + 1]].role;
    return indices == TensorRole::input || indices == TensorRole::activation;
  };
  for (const NodeRecord& node : records_.nodes) {
    switch (node.op) {
      case OpKind::conv:
      case OpKind::conv_transpose:
      case OpKind::deform_conv:
      case OpKind::dense:
      case OpKind::prelu:
      case OpKind::quantized_conv:
        slot(node, 1);
        break;
      case OpKind::quantized_matmul:
        if (records_.sources[node.source] != "qnn.batch_matmul") slot(node, 1);
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
        if (records_.sources[node.source] == "nn.bias_add") slot(node, 1);
        break;
      default:
        break;
    }
  }
  std::erase_if(graph_inputs_, [&](TensorId t) { return records_.tensors[t].role != TensorRole::input; });
  return found;
}

WalkResult Walker::build(std::span<const TensorId> outputs) {
  if (module_.infer_weights) {
    if (const std::int32_t found = weights_in_slots(); found > 0) {
      records_.notes.push_back(std::to_string(found) +
                               " inputs stand in weight slots and are counted as weights; pass params= to name them");
    }
  }
  GraphBuilder builder;
  builder.reserve(records_.nodes.size(), records_.tensors.size());
  for (const TensorRecord& t : records_.tensors) {
    builder.add_tensor(t.name == kNone ? std::string_view() : std::string_view(records_.names[t.name]), t.dtype,
                       {records_.dims.data() + t.first_dim, static_cast<std::size_t>(t.rank)}, t.role);
  }
  WalkResult result;
  result.kernel_group.reserve(records_.nodes.size());
  for (const NodeRecord& n : records_.nodes) {
    builder.add_node(n.op, records_.sources[n.source], "", n.attributes,
                     {records_.links.data() + n.first_input, static_cast<std::size_t>(n.inputs)},
                     {records_.links.data() + n.first_output, static_cast<std::size_t>(n.outputs)});
    result.kernel_group.push_back(n.group);
  }
  for (std::string& note : records_.notes) builder.add_note(std::move(note));
  result.graph = std::move(builder).finish(graph_inputs_, outputs);
  choose_branches(result.graph);
  return result;
}

}  // namespace perfpass::relay
