// If, Loop and Scan. Their subgraphs are inlined and the control node stays: nodes of a subgraph read outer tensors
// directly, and the control node reads what the subgraphs produce and writes what the outer graph reads. So data flows
// from outer producers through the subgraph's nodes and the control node to outer consumers.
#include <algorithm>

#include "onnx/lowering.hpp"
#include "perfpass/error.hpp"
#include "support/text.hpp"

namespace perfpass::onnx {
namespace {

// Trip counts past this one are no number of iterations. torch.onnx writes INT64_MAX for "until the condition fails".
constexpr std::int64_t kMostTrips = 1'000'000'000;
constexpr std::int64_t kUntilCondition = std::numeric_limits<std::int64_t>::max();

std::string label(const Node& node) { return quoted(node.name) + " (" + escaped(node.op_type) + ")"; }

const Attribute* find_attribute(const Node& node, Text name) {
  const auto it =
      std::find_if(node.attributes.begin(), node.attributes.end(), [&](const Attribute& a) { return a.name == name; });
  return it == node.attributes.end() ? nullptr : &*it;
}

const Graph& subgraph(const Node& node, Text name) {
  const Attribute* attribute = find_attribute(node, name);
  if (attribute != nullptr && attribute->graph != nullptr) return *attribute->graph;
  throw Error(ErrorCode::format,
              "node " + label(node) + " has no subgraph '" + std::string(name) + "'; the file is damaged");
}

std::optional<std::int64_t> known_scalar(const Slot* slot) {
  if (slot == nullptr || !slot->value.has_values || slot->value.integers.size() != 1) return std::nullopt;
  return slot->value.integers[0];
}

std::int64_t integer_at(const Node& node, Text name, std::size_t i, std::int64_t fallback) {
  const Attribute* attribute = find_attribute(node, name);
  return attribute == nullptr || i >= attribute->integers.size() ? fallback : attribute->integers[i];
}

/// What is known of a tensor in every iteration: its type and shape, not its contents.
Value without_values(const Value& value) {
  return {value.dtype, value.has_shape, false, value.shape, false, {}, {}, value.is_estimate};
}

void check_count(const Node& node, const char* what, std::size_t found, std::size_t wanted) {
  if (found == wanted) return;
  throw Error(ErrorCode::graph, "node " + label(node) + " has " + std::to_string(found) + " " + what +
                                    "; its subgraph has " + std::to_string(wanted));
}

bool same_shape(const Value& a, const Value& b) {
  return std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end());
}

}  // namespace

bool Lowering::lower_control(Scope& scope, const Node& node, std::uint32_t output, Inputs inputs) {
  if (!node.domain.empty()) return false;
  if (node.op_type == "If") {
    lower_if(scope, node, output, inputs);
  } else if (node.op_type == "Loop") {
    lower_loop(scope, node, output, inputs);
  } else if (node.op_type == "Scan") {
    lower_scan(scope, node, output, inputs);
  } else {
    return false;
  }
  return true;
}

Scope Lowering::body_scope(const Scope& scope, const Node& node, const Graph& graph, std::string_view part,
                           double repeat) {
  std::size_t names = graph.initializers.size() + graph.inputs.size();
  for (const Node& inner : graph.nodes) names += inner.outputs.size();
  Scope body(&scope, names, *std::pmr::get_default_resource());
  body.prefix = join(scope.prefix, node.name.empty() ? node.op_type : node.name, part);
  body.repeat = repeat;
  body.call = scope.call;
  body.opsets = scope.opsets;
  body.default_opset = scope.default_opset;
  for (const ValueInfo& input : graph.inputs) declare(body, input.name, "subgraph input").info = &input;
  declare_constants(body, graph.initializers);
  declare_nodes(body, graph.nodes);
  declare_infos(body, graph.value_info);
  declare_infos(body, graph.outputs);
  mark_quantized_weights(body);
  return body;
}

void Lowering::bind_input(Scope& body, const Graph& graph, std::size_t index, const Value& value, TensorId tensor) {
  Slot& slot = *find(body, graph.inputs[index].name);
  slot.value = value;
  slot.tensor = tensor;
  slot.ready = true;
}

std::vector<Slot*> Lowering::lower_body(Scope& body, const Graph& graph) {
  lower_nodes(body);
  std::vector<Slot*> results;
  for (const ValueInfo& output : graph.outputs) {
    Slot* slot = find(body, output.name);
    if (slot == nullptr || !slot->ready) {
      throw Error(ErrorCode::graph, "subgraph output " + quoted(output.name) + " is produced by no node");
    }
    results.push_back(slot);
  }
  return results;
}

/// The control node itself. `results` holds a value per output of the node, named or not.
void Lowering::emit_control(OpKind op, Scope& scope, const Node& node, std::uint32_t output,
                            std::span<const TensorId> inputs, std::span<const Value> results) {
  std::vector<TensorId> ids;
  Slot* slot = scope.slots.data() + output;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) {
      ids.push_back(kNone);
      continue;
    }
    slot->value = results[i];
    slot->value.is_constant = false;
    merge_declared(node, *slot, slot->value, scope.parent != nullptr, true);
    slot->tensor = new_tensor(*slot);
    slot->ready = true;
    ids.push_back(slot->tensor);
    ++slot;
  }
  emit(op, scope, node, {}, inputs, ids);
}

void Lowering::lower_if(Scope& scope, const Node& node, std::uint32_t output, Inputs inputs) {
  if (inputs.empty() || inputs[0] == nullptr) {
    throw Error(ErrorCode::graph, "node " + label(node) + " has no condition");
  }
  const std::optional<std::int64_t> condition = known_scalar(inputs[0]);
  std::vector<TensorId> read{tensor_of(*inputs[0])};
  std::vector<Value> results;
  std::vector<HeldNode> branches[2];
  Work work[2];
  std::vector<HeldNode>* const outer_held = held_;
  const Work outer_work = work_;
  // A branch that does not fit the shapes at hand cannot be the one that runs: an If by sampling rate or rank.
  std::string misfits[2];
  const auto lower_branch = [&](bool then) {
    const Graph& graph = subgraph(node, then ? "then_branch" : "else_branch");
    check_count(node, "outputs", node.outputs.size(), graph.outputs.size());
    check_count(node, "inputs for a branch", 0, graph.inputs.size());
    Scope body = body_scope(scope, node, graph, then ? "then" : "else", scope.repeat);
    held_ = &branches[then ? 0 : 1];
    work_ = {};
    const std::vector<Slot*> slots = lower_body(body, graph);
    work[then ? 0 : 1] = work_;
    for (Slot* slot : slots) read.push_back(tensor_of(*slot));
    std::vector<Value> values;
    for (const Slot* slot : slots) values.push_back(slot->value);
    return values;
  };
  const auto try_branch = [&](bool then) {
    try {
      return lower_branch(then);
    } catch (const Misfit& e) {
      misfits[then ? 0 : 1] = e.what();
      return std::vector<Value>(node.outputs.size());
    }
  };
  bool then_is_heavier = true;
  if (condition) {
    results = lower_branch(*condition != 0);
    then_is_heavier = *condition != 0;
  } else {
    const std::vector<Value> then_values = try_branch(true);
    const std::vector<Value> else_values = try_branch(false);
    if (!misfits[0].empty() && !misfits[1].empty()) throw Misfit(misfits[0]);
    const bool both = misfits[0].empty() && misfits[1].empty();
    const auto weight = [](const Work& w) { return std::pair(w.multiplications, w.elements); };
    then_is_heavier = both ? !(weight(work[0]) < weight(work[1])) : misfits[0].empty();
    results = then_is_heavier ? then_values : else_values;
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i] = without_values(results[i]);
      results[i].is_estimate = results[i].is_estimate || !both || !same_shape(then_values[i], else_values[i]);
    }
    builder_.add_note("node " + label(node) + ": the " + (then_is_heavier ? "then" : "else") +
                      " branch is counted, the other " +
                      (both ? "has less to do" : "does not fit the shapes (" + misfits[then_is_heavier ? 1 : 0] + ")") +
                      " and counts 0 times");
  }
  held_ = outer_held;
  work_ = outer_work;
  for (int branch = 0; branch < 2; ++branch) {
    const bool counted = (branch == 0) == then_is_heavier;
    if (counted) {
      work_.multiplications += work[branch].multiplications;
      work_.elements += work[branch].elements;
    }
    for (HeldNode& held : branches[branch]) {
      if (!counted) held.repeat = 0.0;
      if (held_ != nullptr) {
        held_->push_back(std::move(held));
      } else {
        const NodeId id =
            builder_.add_node(held.op, held.source, held.name, held.attributes, held.inputs, held.outputs, held.repeat);
        if (held.stated) builder_.state(id, *held.stated);
      }
    }
  }
  emit_control(OpKind::conditional, scope, node, output, read, results);
}

void Lowering::lower_loop(Scope& scope, const Node& node, std::uint32_t output, Inputs inputs) {
  const Graph& graph = subgraph(node, "body");
  const std::size_t carried = inputs.size() < 2 ? 0 : inputs.size() - 2;
  check_count(node, "carried values (and iteration number and condition)", carried + 2, graph.inputs.size());
  if (graph.outputs.size() < carried + 1) check_count(node, "carried values", carried, graph.outputs.size());
  check_count(node, "outputs", node.outputs.size(), graph.outputs.size() - 1);

  Slot* const limit = inputs.empty() ? nullptr : inputs[0];
  Slot* const condition = inputs.size() < 2 ? nullptr : inputs[1];
  const std::int64_t most = known_scalar(limit).value_or(kUntilCondition);
  if (most != kUntilCondition && (most < 0 || most > kMostTrips)) {
    throw Error(ErrorCode::limit, "node " + label(node) + " runs " + std::to_string(most) + " times; 0 to " +
                                      std::to_string(kMostTrips) + " are allowed");
  }
  const std::optional<std::int64_t> starts = condition == nullptr ? 1 : known_scalar(condition);
  const bool known = most != kUntilCondition || starts == 0;
  const std::int64_t trips = starts == 0 ? 0 : known ? most : 1;

  Scope body = body_scope(scope, node, graph, "body", scope.repeat * static_cast<double>(trips));
  const Value number{DType::int64, true, false, {}, false, {}, {}};
  Value flag{DType::boolean, true, false, {}, false, {}, {}};
  if (starts == 1) {  // stays true through an Identity, so that a loop that always runs to its limit shows
    static constexpr std::int64_t kTrue = 1;
    flag.has_values = true;
    flag.integers = {&kTrue, 1};
  }
  const auto literal = [&](const ValueInfo& info, DType dtype) {
    return builder_.add_tensor(display_name(body.prefix, info.name), dtype, {}, TensorRole::literal);
  };
  bind_input(body, graph, 0, number, literal(graph.inputs[0], DType::int64));
  bind_input(body, graph, 1, flag, literal(graph.inputs[1], DType::boolean));
  std::vector<TensorId> read;
  if (limit != nullptr) read.push_back(tensor_of(*limit));
  if (condition != nullptr) read.push_back(tensor_of(*condition));
  for (std::size_t i = 0; i < carried; ++i) {
    if (inputs[i + 2] == nullptr) throw Error(ErrorCode::graph, "node " + label(node) + " lacks a carried value");
    bind_input(body, graph, i + 2, without_values(inputs[i + 2]->value), tensor_of(*inputs[i + 2]));
  }
  const std::vector<Slot*> slots = lower_body(body, graph);
  for (Slot* slot : slots) read.push_back(tensor_of(*slot));

  std::vector<Value> results;
  bool grows = false;
  for (std::size_t i = 1; i < slots.size(); ++i) {
    Value value = without_values(slots[i]->value);
    if (i <= carried) {
      const bool changes = !same_shape(value, inputs[i + 1]->value);
      value.is_estimate = value.is_estimate || changes;
      grows = grows || changes;
    } else {  // stacked over the iterations
      value.is_estimate = value.is_estimate || !known || known_scalar(slots[0]) != 1;
      std::vector<std::int64_t> shape{trips};
      shape.insert(shape.end(), value.shape.begin(), value.shape.end());
      value.shape = keep_shape(shape, arena_);
    }
    results.push_back(value);
  }
  if (!known) {
    builder_.add_note("node " + label(node) + ": the file does not tell how often the loop runs; it is counted once",
                      true);
  } else if (known_scalar(slots[0]) != 1 && trips > 1) {
    builder_.add_note("node " + label(node) + ": the loop may end early; all " + std::to_string(trips) +
                      " iterations are counted");
  }
  if (grows) {
    builder_.add_note("node " + label(node) +
                      ": a carried value changes its shape; every iteration is counted as the first");
  }
  emit_control(OpKind::loop, scope, node, output, read, results);
}

void Lowering::lower_scan(Scope& scope, const Node& node, std::uint32_t output, Inputs inputs) {
  if (scope.default_opset < 9) {
    throw Error(ErrorCode::unsupported, "node " + label(node) + " is a Scan of opset " +
                                            std::to_string(scope.default_opset) + "; export with opset 9 or later");
  }
  const Graph& graph = subgraph(node, "body");
  const Attribute* attribute = find_attribute(node, "num_scan_inputs");
  const std::int64_t scanned = attribute == nullptr ? 0 : attribute->integer;
  if (scanned < 1 || scanned > static_cast<std::int64_t>(inputs.size())) {
    throw Error(ErrorCode::format, "node " + label(node) + " has num_scan_inputs " + std::to_string(scanned) +
                                       "; 1 to " + std::to_string(inputs.size()) + " are possible");
  }
  check_count(node, "inputs", inputs.size(), graph.inputs.size());
  check_count(node, "outputs", node.outputs.size(), graph.outputs.size());
  const std::size_t states = inputs.size() - static_cast<std::size_t>(scanned);
  if (graph.outputs.size() < states) check_count(node, "states", states, graph.outputs.size());

  std::optional<std::int64_t> length;
  std::vector<Value> slices;
  std::vector<TensorId> sources;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) throw Error(ErrorCode::graph, "node " + label(node) + " lacks an input");
    sources.push_back(tensor_of(*inputs[i]));
    if (i < states) continue;
    const Value& whole = inputs[i]->value;
    const auto rank = static_cast<std::int64_t>(whole.shape.size());
    std::int64_t axis = integer_at(node, "scan_input_axes", i - states, 0);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) {
      throw Error(ErrorCode::shape, "node " + label(node) + " scans axis " + std::to_string(axis) + " of input " +
                                        quoted(inputs[i]->name) + ", which has " + std::to_string(rank) +
                                        " dimensions");
    }
    std::vector<std::int64_t> shape(whole.shape.begin(), whole.shape.end());
    const std::int64_t steps = shape[static_cast<std::size_t>(axis)];
    if (length && *length != steps) {
      throw Error(ErrorCode::shape, "node " + label(node) + " scans inputs of lengths " + std::to_string(*length) +
                                        " and " + std::to_string(steps) + "; they must be equal");
    }
    length = steps;
    shape.erase(shape.begin() + axis);
    Value slice = without_values(whole);
    slice.shape = keep_shape(shape, arena_);
    slices.push_back(slice);
  }

  Scope body = body_scope(scope, node, graph, "body", scope.repeat * static_cast<double>(*length));
  for (std::size_t i = 0; i < states; ++i) {
    bind_input(body, graph, i, without_values(inputs[i]->value), sources[i]);
  }
  // The slices that an iteration sees are tensors of their own: a first Scan node cuts them.
  std::vector<TensorId> cut;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const ValueInfo& info = graph.inputs[states + i];
    cut.push_back(builder_.add_tensor(display_name(body.prefix, info.name), slices[i].dtype, slices[i].shape,
                                      TensorRole::activation));
    bind_input(body, graph, states + i, slices[i], cut.back());
  }
  emit(OpKind::scan, body, node, {}, std::span(sources).subspan(states), cut, "/slice");
  const std::vector<Slot*> slots = lower_body(body, graph);

  std::vector<TensorId> read(sources.begin(), sources.begin() + static_cast<std::ptrdiff_t>(states));
  std::vector<Value> results;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    read.push_back(tensor_of(*slots[i]));
    Value value = without_values(slots[i]->value);
    if (i >= states) {
      const auto rank = static_cast<std::int64_t>(value.shape.size()) + 1;
      std::int64_t axis = integer_at(node, "scan_output_axes", i - states, 0);
      if (axis < 0) axis += rank;
      if (axis < 0 || axis >= rank) {
        throw Error(ErrorCode::shape, "node " + label(node) + " stacks along axis " + std::to_string(axis) + " of " +
                                          std::to_string(rank) + " dimensions");
      }
      std::vector<std::int64_t> shape(value.shape.begin(), value.shape.end());
      shape.insert(shape.begin() + axis, *length);
      value.shape = keep_shape(shape, arena_);
    }
    results.push_back(value);
  }
  emit_control(OpKind::scan, scope, node, output, read, results);
}

}  // namespace perfpass::onnx
