#include "perfpass/graph.hpp"

#include <algorithm>
#include <array>
#include <queue>
#include <utility>

#include "perfpass/error.hpp"
#include "support/text_hash.hpp"

namespace perfpass {

std::span<const std::string_view> attribute_names() noexcept {
  static constexpr std::array<std::string_view, 32> kNames = {
      "kernel_0",      "kernel_1",     "kernel_2",  "stride_0",     "stride_1",    "stride_2",    "pad_begin_0",
      "pad_begin_1",   "pad_begin_2",  "pad_end_0", "pad_end_1",    "pad_end_2",   "dilation_0",  "dilation_1",
      "dilation_2",    "spatial_rank", "groups",    "axis",         "transpose_a", "transpose_b", "channels_last",
      "weight_layout", "contraction",  "num_heads", "num_kv_heads", "causal",      "weight_bits", "block_size",
      "hidden_size",   "directions",   "view",      "in_place"};
  static_assert(sizeof(NodeAttributes) == kNames.size() * sizeof(std::int32_t));
  return kNames;
}

StringPool::StringPool() : offsets_{0, 0} {}

std::int32_t StringPool::append(std::string_view text) {
  if (text.empty()) return 0;
  bytes_.append(text);
  offsets_.push_back(bytes_.size());
  return static_cast<std::int32_t>(size() - 1);
}

std::int32_t StringPool::intern(std::string_view text) {
  if (text.empty()) return 0;
  Recent& recent = recent_[(reinterpret_cast<std::uintptr_t>(text.data()) >> 3) % recent_.size()];
  if (recent.data == text.data() && at(recent.id) == text) return recent.id;
  recent = {text.data(), look_up(text)};
  return recent.id;
}

std::int32_t StringPool::look_up(std::string_view text) {
  if ((interned_ + 1) * 2 > table_.size()) grow();
  const auto hash = static_cast<std::uint32_t>(hash_text(text));
  const std::size_t mask = table_.size() - 1;
  std::size_t i = hash & mask;
  for (; table_[i].id != kNone; i = (i + 1) & mask) {
    if (table_[i].hash == hash && at(table_[i].id) == text) return table_[i].id;
  }
  ++interned_;
  table_[i] = {hash, append(text)};
  return table_[i].id;
}

void StringPool::reserve(std::size_t strings, std::size_t bytes) {
  bytes_.reserve(bytes);
  offsets_.reserve(strings + 1);
}

void StringPool::grow() {
  const std::vector<Slot> old = std::exchange(table_, std::vector<Slot>(std::max<std::size_t>(64, table_.size() * 2)));
  const std::size_t mask = table_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id == kNone) continue;
    std::size_t i = slot.hash & mask;
    while (table_[i].id != kNone) i = (i + 1) & mask;
    table_[i] = slot;
  }
}

std::string_view StringPool::at(std::int32_t id) const {
  const auto i = static_cast<std::size_t>(id);
  if (id < 0 || i + 1 >= offsets_.size()) throw Error(ErrorCode::argument, "no string with id " + std::to_string(id));
  return std::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

std::int64_t OpGraph::elements(TensorId t) const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t d : shape(t)) product *= d;  // bounded when the tensor was added
  return product;
}

namespace {

/// As checked_elements, of shapes that hold a zero or are refused.
std::int64_t elements_or_error(std::span<const std::int64_t> shape) {
  if (shape.size() > kMaxRank) {
    throw Error(ErrorCode::limit, "a tensor of rank " + std::to_string(shape.size()) + "; at most " +
                                      std::to_string(kMaxRank) + " dimensions are allowed");
  }
  std::int64_t product = 1;
  bool zero = false;
  for (const std::int64_t d : shape) {
    if (d < 0) {
      throw Error(ErrorCode::limit, "a dimension of " + std::to_string(d) + "; dimensions must be 0 or more");
    }
    if (d == 0) {
      zero = true;
      continue;
    }
    if (__builtin_mul_overflow(product, d, &product) || product > kMaxElements) {
      std::string text;
      for (const std::int64_t e : shape) text += (text.empty() ? "" : " x ") + std::to_string(e);
      throw Error(ErrorCode::limit, "a tensor of " + text + " elements; at most 2^48 are allowed");
    }
  }
  return zero ? 0 : product;
}

}  // namespace

std::int64_t checked_elements(std::span<const std::int64_t> shape) {
  if (shape.size() > kMaxRank) return elements_or_error(shape);
  std::int64_t product = 1;
  for (const std::int64_t d : shape) {
    if (d <= 0 || __builtin_mul_overflow(product, d, &product) || product > kMaxElements) {
      return elements_or_error(shape);
    }
  }
  return product;
}

TensorId GraphBuilder::add_tensor(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                                  TensorRole role) {
  if (g_.tensor_count() >= kMaxTensors) {
    throw Error(ErrorCode::limit, "more than " + std::to_string(kMaxTensors) + " tensors");
  }
  try {
    checked_elements(shape);
  } catch (const Error& e) {
    throw Error(e.code(), "tensor '" + std::string(name.substr(0, 200)) + "': " + e.what());
  }
  if (g_.shape_offset.empty()) g_.shape_offset.push_back(0);
  g_.tensor_dtype.push_back(dtype);
  g_.tensor_role.push_back(role);
  g_.producer.push_back(kNone);
  g_.tensor_name.push_back(g_.strings.append(name));
  g_.dims.insert(g_.dims.end(), shape.begin(), shape.end());
  g_.shape_offset.push_back(static_cast<std::int32_t>(g_.dims.size()));
  return static_cast<TensorId>(g_.tensor_count() - 1);
}

NodeId GraphBuilder::add_node(OpKind op, std::string_view source_op, std::string_view name,
                              const NodeAttributes& attributes, std::span<const TensorId> inputs,
                              std::span<const TensorId> outputs, double repeat) {
  if (g_.node_count() >= kMaxNodes) {
    throw Error(ErrorCode::limit, "more than " + std::to_string(kMaxNodes) + " nodes");
  }
  const auto id = static_cast<NodeId>(g_.node_count());
  const auto known = [&](TensorId t) {
    if (t < kNone || t >= static_cast<TensorId>(g_.tensor_count())) {
      throw Error(ErrorCode::argument, "node '" + std::string(name) + "' names tensor " + std::to_string(t) + " of " +
                                           std::to_string(g_.tensor_count()));
    }
    return t != kNone;
  };
  for (const TensorId t : inputs) known(t);
  for (const TensorId t : outputs) {
    if (!known(t)) continue;
    const auto describe = [&] { return "tensor '" + std::string(g_.strings.at(g_.tensor_name[t])) + "'"; };
    if (g_.tensor_role[t] != TensorRole::activation) {
      throw Error(ErrorCode::graph, describe() + " is a graph input or constant, but node '" + std::string(name) +
                                        "' (" + std::string(source_op) + ") writes it");
    }
    if (g_.producer[t] != kNone) {
      throw Error(ErrorCode::graph, describe() + " is written by two nodes, the second is '" + std::string(name) +
                                        "' (" + std::string(source_op) + ")");
    }
    g_.producer[t] = id;
  }
  g_.op.push_back(op);
  g_.source_op.push_back(g_.strings.intern(source_op));
  g_.node_name.push_back(g_.strings.append(name));
  g_.attributes.push_back(attributes);
  g_.repeat.push_back(repeat);
  if (g_.input_offset.empty()) {
    g_.input_offset.push_back(0);
    g_.output_offset.push_back(0);
  }
  g_.inputs.insert(g_.inputs.end(), inputs.begin(), inputs.end());
  g_.outputs.insert(g_.outputs.end(), outputs.begin(), outputs.end());
  g_.input_offset.push_back(static_cast<std::int32_t>(g_.inputs.size()));
  g_.output_offset.push_back(static_cast<std::int32_t>(g_.outputs.size()));
  return id;
}

void GraphBuilder::add_note(std::string text, bool counted_once) {
  g_.notes.push_back({std::move(text), counted_once});
}

void GraphBuilder::add_notes(std::span<const Note> notes) {
  for (const Note& note : notes) {
    const auto same = [&](const Note& other) { return other.text == note.text; };
    if (std::none_of(g_.notes.begin(), g_.notes.end(), same)) g_.notes.push_back(note);
  }
}

void GraphBuilder::reserve(std::size_t nodes, std::size_t tensors) {
  g_.op.reserve(nodes);
  g_.source_op.reserve(nodes);
  g_.node_name.reserve(nodes);
  g_.attributes.reserve(nodes);
  g_.repeat.reserve(nodes);
  g_.input_offset.reserve(nodes + 1);
  g_.output_offset.reserve(nodes + 1);
  g_.inputs.reserve(nodes * 2);
  g_.outputs.reserve(nodes);
  g_.tensor_dtype.reserve(tensors);
  g_.tensor_role.reserve(tensors);
  g_.producer.reserve(tensors);
  g_.tensor_name.reserve(tensors);
  g_.shape_offset.reserve(tensors + 1);
  g_.dims.reserve(tensors * 4);
  g_.strings.reserve(nodes + tensors, (nodes + tensors) * 32);
}

namespace {

std::string node_label(const OpGraph& g, NodeId n) {
  const std::string name(g.strings.at(g.node_name[n]));
  const std::string op(g.strings.at(g.source_op[n]));
  return name.empty() ? op + " (node " + std::to_string(n) + ")" : "'" + name + "' (" + op + ")";
}

/// Edges by consumer, one per (producer, consumer, tensor), in the order of the input slots.
void derive_edges(OpGraph& g) {
  g.edge_producer.clear();
  g.edge_consumer.clear();
  g.edge_tensor.clear();
  const auto n = static_cast<NodeId>(g.node_count());
  g.edge_producer.reserve(g.inputs.size());
  g.edge_consumer.reserve(g.inputs.size());
  g.edge_tensor.reserve(g.inputs.size());
  std::vector<NodeId> last_reader(g.tensor_count(), kNone);  // a node that reads a tensor twice has one edge
  for (NodeId consumer = 0; consumer < n; ++consumer) {
    for (const TensorId t : g.node_inputs(consumer)) {
      if (t == kNone || g.producer[t] == kNone || last_reader[t] == consumer) continue;
      last_reader[t] = consumer;
      g.edge_producer.push_back(g.producer[t]);
      g.edge_consumer.push_back(consumer);
      g.edge_tensor.push_back(t);
    }
  }
}

/// Kahn's algorithm that always takes the ready node with the smallest index; throws Error(graph) on a cycle.
std::vector<NodeId> topological_order(const OpGraph& g) {
  const auto n = static_cast<NodeId>(g.node_count());
  std::vector<std::int32_t> pending(n, 0);
  std::vector<std::int32_t> offset(n + 1, 0);
  for (const NodeId p : g.edge_producer) ++offset[p + 1];
  for (NodeId i = 0; i < n; ++i) offset[i + 1] += offset[i];
  std::vector<NodeId> consumers(g.edge_count());
  std::vector<std::int32_t> cursor(offset.begin(), offset.end() - 1);
  for (std::size_t e = 0; e < g.edge_count(); ++e) {
    consumers[cursor[g.edge_producer[e]]++] = g.edge_consumer[e];
    ++pending[g.edge_consumer[e]];
  }
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  for (NodeId i = 0; i < n; ++i) {
    if (pending[i] == 0) ready.push(i);
  }
  std::vector<NodeId> order;
  order.reserve(n);
  while (!ready.empty()) {
    const NodeId i = ready.top();
    ready.pop();
    order.push_back(i);
    for (std::int32_t c = offset[i]; c < offset[i + 1]; ++c) {
      if (--pending[consumers[c]] == 0) ready.push(consumers[c]);
    }
  }
  if (order.size() == static_cast<std::size_t>(n)) return order;
  const auto stuck = static_cast<NodeId>(
      std::find_if(pending.begin(), pending.end(), [](std::int32_t p) { return p > 0; }) - pending.begin());
  throw Error(ErrorCode::graph, "the graph has a cycle: " + std::to_string(n - static_cast<NodeId>(order.size())) +
                                    " nodes wait for one another, the first is " + node_label(g, stuck));
}

void reorder(OpGraph& g, const std::vector<NodeId>& order) {
  const auto permute = [&](auto& column) {
    auto old = column;
    for (std::size_t i = 0; i < order.size(); ++i) column[i] = old[order[i]];
  };
  const auto permute_lists = [&](std::vector<std::int32_t>& offset, std::vector<TensorId>& values) {
    const auto old_offset = offset;
    const auto old_values = values;
    std::size_t at = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (auto k = old_offset[order[i]]; k < old_offset[order[i] + 1]; ++k) values[at++] = old_values[k];
      offset[i + 1] = static_cast<std::int32_t>(at);
    }
  };
  permute(g.op);
  permute(g.source_op);
  permute(g.node_name);
  permute(g.attributes);
  permute(g.repeat);
  permute_lists(g.input_offset, g.inputs);
  permute_lists(g.output_offset, g.outputs);
  if (!g.stated.empty()) {
    const auto old = std::move(g.stated);
    g.stated = {};
    for (NodeId n = 0; n < static_cast<NodeId>(order.size()); ++n) {
      if (const auto it = old.find(order[n]); it != old.end()) g.stated.insert({n, it->second});
    }
  }
  for (NodeId n = 0; n < static_cast<NodeId>(order.size()); ++n) {
    for (const TensorId t : g.node_outputs(n)) {
      if (t != kNone) g.producer[t] = n;
    }
  }
}

}  // namespace

OpGraph GraphBuilder::finish(std::span<const TensorId> graph_inputs, std::span<const TensorId> graph_outputs) && {
  OpGraph g = std::move(g_);
  if (g.node_count() == 0) throw Error(ErrorCode::graph, "the graph has no operator; nothing can be predicted for it");
  const auto check = [&](TensorId t, const char* what) {
    if (t < 0 || t >= static_cast<TensorId>(g.tensor_count())) {
      throw Error(ErrorCode::argument,
                  std::string(what) + " names tensor " + std::to_string(t) + " of " + std::to_string(g.tensor_count()));
    }
  };
  const auto orphan = [&](TensorId t) { return g.tensor_role[t] == TensorRole::activation && g.producer[t] == kNone; };
  for (const TensorId t : graph_inputs) check(t, "the list of graph inputs");
  for (const TensorId t : graph_outputs) {
    check(t, "the list of graph outputs");
    if (orphan(t)) {
      throw Error(ErrorCode::graph,
                  "graph output '" + std::string(g.strings.at(g.tensor_name[t])) + "' is produced by no node");
    }
  }
  for (NodeId n = 0; n < static_cast<NodeId>(g.node_count()); ++n) {
    for (const TensorId t : g.node_inputs(n)) {
      if (t != kNone && orphan(t)) {
        throw Error(ErrorCode::graph, "node " + node_label(g, n) + " reads tensor '" +
                                          std::string(g.strings.at(g.tensor_name[t])) +
                                          "', which is neither an input nor a constant nor any node's output");
      }
    }
  }
  g.graph_inputs.assign(graph_inputs.begin(), graph_inputs.end());
  g.graph_outputs.assign(graph_outputs.begin(), graph_outputs.end());
  derive_edges(g);
  bool sorted = true;
  for (std::size_t e = 0; e < g.edge_count() && sorted; ++e) sorted = g.edge_producer[e] < g.edge_consumer[e];
  if (!sorted) {
    reorder(g, topological_order(g));
    derive_edges(g);
  }
  return g;
}

}  // namespace perfpass
