// Names and order: what a scope declares, what its nodes read, and in which order they can be lowered.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>

#include "onnx/lowering.hpp"
#include "perfpass/error.hpp"
#include "support/text.hpp"

namespace perfpass::onnx {
namespace {

constexpr std::int64_t kNewestOpset = 28;  // onnx 1.23
// Versions grow by two or three a year: a number past this one is damage, not news.
constexpr std::int64_t kLastPlausibleOpset = 100;
constexpr std::size_t kBeingCounted = std::numeric_limits<std::size_t>::max();

std::string label(const Node& node) { return quoted(node.name) + " (" + escaped(node.op_type) + ")"; }

/// Operands that hold parameters although their type is an integer.
struct QuantizedOperands {
  Text op_type;
  std::array<int, 3> operands;  // kNone: no more
};
constexpr std::array kQuantizedOperands = {
    QuantizedOperands{"DequantizeLinear", {0, kNone, kNone}},
    QuantizedOperands{"QLinearConv", {3, 8, kNone}},
    QuantizedOperands{"QLinearMatMul", {3, kNone, kNone}},
    QuantizedOperands{"ConvInteger", {1, kNone, kNone}},
    QuantizedOperands{"MatMulInteger", {1, kNone, kNone}},
    QuantizedOperands{"MatMulNBits", {1, kNone, kNone}},
    QuantizedOperands{"MatMulBnb4", {1, kNone, kNone}},
    QuantizedOperands{"MatMulIntegerToFloat", {1, kNone, kNone}},
    QuantizedOperands{"DynamicQuantizeMatMul", {1, kNone, kNone}},
    QuantizedOperands{"QGemm", {3, 6, kNone}},
    QuantizedOperands{"QAttention", {1, kNone, kNone}},
    QuantizedOperands{"GatherBlockQuantized", {0, kNone, kNone}},
    QuantizedOperands{"QMoE", {2, 5, 8}},
};

bool is_byte_type(DType dtype) {
  return dtype != DType::boolean && !is_floating(dtype) && bits_of(dtype) > 0 && bits_of(dtype) <= 8;
}

/// Every name that a subgraph and those within it read from the graphs around it.
void each_capture(const Graph& graph, const std::function<void(Text)>& visit) {
  NameTable own(graph.nodes.size() + graph.inputs.size() + graph.initializers.size());
  for (const ValueInfo& input : graph.inputs) own.insert(input.name);
  for (const Constant& constant : graph.initializers) own.insert(constant.name);
  for (const Node& node : graph.nodes) {
    for (const Text name : node.outputs) own.insert(name);
  }
  const std::function<void(Text)> outer = [&](Text name) {
    if (own.find(name) == NameTable::kAbsent) visit(name);
  };
  for (const Node& node : graph.nodes) {
    for (const Text name : node.inputs) outer(name);
    for (const Attribute& attribute : node.attributes) {
      if (attribute.graph != nullptr) each_capture(*attribute.graph, outer);
    }
  }
  for (const ValueInfo& output : graph.outputs) outer(output.name);
}

/// Hashes of the names that nodes read, computed a block of nodes at a time and ahead of the lookups, so that the
/// memory that those need is on its way.
class InputHashes {
 public:
  explicit InputHashes(const Scope& scope) : scope_(scope) {}

  std::span<const std::uint32_t> of(std::size_t node) {
    if (node < first_ || node >= end_) compute(node);
    const std::size_t i = node - first_;
    return std::span(hashes_).subspan(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }

 private:
  static constexpr std::size_t kBlock = 16;

  void compute(std::size_t node) {
    first_ = node;
    end_ = std::min(node + kBlock, scope_.nodes.size());
    hashes_.clear();
    for (std::size_t i = first_; i < end_; ++i) {
      offsets_[i - first_] = hashes_.size();
      for (const Text name : scope_.nodes[i].inputs) {
        hashes_.push_back(NameTable::hash(name));
        scope_.table.prefetch(hashes_.back());
      }
    }
    offsets_[end_ - first_] = hashes_.size();
  }

  const Scope& scope_;
  std::size_t first_ = 0, end_ = 0;
  std::array<std::size_t, kBlock + 1> offsets_{};
  std::vector<std::uint32_t> hashes_;
};

std::string function_key(Text domain, Text name, Text overload) {
  std::string key(domain);
  key += '\0';
  key += name;
  key += '\0';
  return key += overload;
}

}  // namespace

Lowering::Lowering(const Model& model, const OnnxOptions& options, std::pmr::memory_resource& arena)
    : model_(model), options_(options), arena_(arena), shapes_(model, options, arena), value_budget_(kValueBudget) {
  for (std::size_t i = 0; i < model.functions.size(); ++i) {
    const Function& f = model.functions[i];
    if (!function_index_.emplace(function_key(f.domain, f.name, f.overload), i).second) {
      throw Error(ErrorCode::graph, "function " + quoted(f.name) + " of domain " + quoted(f.domain) +
                                        " is defined twice; the file must define it once");
    }
  }
  function_extents_.resize(model.functions.size());
  check_opsets();
}

void Lowering::check_opsets() {
  bool has_default = false;
  for (const Opset& opset : model_.opsets) {
    if (!opset.domain.empty() && opset.domain != "ai.onnx") continue;
    has_default = true;
    if (opset.version < 1 || opset.version > kLastPlausibleOpset) {
      throw Error(ErrorCode::unsupported, "opset " + std::to_string(opset.version) + " of ai.onnx; known are 1 to " +
                                              std::to_string(kNewestOpset) + "; export with one of these");
    }
    if (opset.version > kNewestOpset) {
      builder_.add_note("opset " + std::to_string(opset.version) + " is newer than " + std::to_string(kNewestOpset) +
                        ", the newest known; operators are read as of that one");
    }
  }
  // Models of IR version 1 and 2 have no opset imports: they are of opset 1.
  if (has_default || model_.ir_version < 3) return;
  const auto standard = std::find_if(model_.graph->nodes.begin(), model_.graph->nodes.end(),
                                     [](const Node& node) { return node.domain.empty(); });
  if (standard == model_.graph->nodes.end()) return;
  throw Error(ErrorCode::format, "node " + label(*standard) + " is of the domain ai.onnx, but the model imports no " +
                                     "opset of it (opset_import); export it again");
}

const Function* Lowering::function_of(const Node& node) const {
  if (function_index_.empty()) return nullptr;
  const auto it = function_index_.find(function_key(node.domain, node.op_type, node.overload));
  return it == function_index_.end() ? nullptr : &model_.functions[it->second];
}

/// Counted before anything is inlined: functions that call one another twice each double the graph with every level.
Lowering::Extent Lowering::extent(std::span<const Node> nodes, int depth) {
  const auto& limits = options_.limits;
  const auto check = [&](int deepest) {
    if (deepest <= limits.nesting) return;
    throw Error(ErrorCode::limit, "functions and subgraphs nested more than " + std::to_string(limits.nesting) +
                                      " deep; at most " + std::to_string(limits.nesting) + " levels are allowed");
  };
  check(depth);
  Extent total;
  const auto add = [&](const Extent& part) {
    total.nodes += part.nodes;
    total.depth = std::max(total.depth, part.depth + 1);
    check(depth + total.depth);
  };
  for (const Node& node : nodes) {
    ++total.nodes;
    if (const Function* function = function_of(node)) {
      add(extent_of_function(static_cast<std::size_t>(function - model_.functions.data()), depth + 1));
    }
    for (const Attribute& attribute : node.attributes) {
      if (attribute.graph != nullptr) add(extent(attribute.graph->nodes, depth + 1));
    }
    if (total.nodes > limits.nodes) {
      throw Error(ErrorCode::limit, "the model has more than " + std::to_string(limits.nodes) +
                                        " nodes after its functions are inlined; at most " +
                                        std::to_string(limits.nodes) + " are allowed");
    }
  }
  return total;
}

Lowering::Extent Lowering::extent_of_function(std::size_t index, int depth) {
  const Extent known = function_extents_[index];
  if (known.nodes == kBeingCounted) {
    throw Error(ErrorCode::graph, "function " + quoted(model_.functions[index].name) +
                                      " calls itself; ONNX functions must not be recursive");
  }
  if (known.nodes > 0) return known;
  function_extents_[index].nodes = kBeingCounted;
  Extent counted = extent(model_.functions[index].nodes, depth);
  counted.nodes += 1;  // so that an empty function counts as counted
  return function_extents_[index] = counted;
}

Slot& Lowering::declare(Scope& scope, Text name, const char* what) {
  const auto [at, added] = scope.table.insert(name);
  if (!added) {
    throw Error(ErrorCode::graph, std::string(what) + " " + quoted(name) +
                                      " has the name of another tensor of its graph; names must be unique");
  }
  Slot& slot = scope.slots.emplace_back();
  slot.name = name;
  slot.prefix = scope.prefix;
  return slot;
}

void Lowering::declare_constants(Scope& scope, std::span<const Constant> constants) {
  for (const Constant& constant : constants) {
    Slot& slot = declare(scope, constant.name, "initializer");
    slot.value = {constant.dtype, true, true, constant.shape, constant.has_values, constant.integers, constant.reals};
    slot.ready = true;
    slot.is_weight = constant.is_weight;
    slot.is_literal = constant.is_literal;
    has_bytes_ = has_bytes_ || is_byte_type(constant.dtype);
  }
}

void Lowering::declare_nodes(Scope& scope, std::span<const Node> nodes) {
  scope.nodes = nodes;
  scope.first_output.resize(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    scope.first_output[i] = static_cast<std::uint32_t>(scope.slots.size());
    for (const Text name : nodes[i].outputs) {
      if (name.empty()) continue;
      const auto [at, added] = scope.table.insert(name);
      if (!added) {
        const Slot& other = scope.slots[at];
        throw Error(
            ErrorCode::graph,
            "tensor " + quoted(name) + " is written by node " + label(nodes[i]) +
                (other.writer == kNone ? ", but is a graph input or constant"
                                       : " and by node " + label(nodes[static_cast<std::size_t>(other.writer)])) +
                "; a tensor must have one producer");
      }
      Slot& slot = scope.slots.emplace_back();
      slot.name = name;
      slot.prefix = scope.prefix;
      slot.writer = static_cast<std::int32_t>(i);
    }
  }
}

void Lowering::declare_infos(Scope& scope, std::span<const ValueInfo> infos) {
  constexpr std::size_t kAhead = 4;
  std::size_t expected = 0;  // writers mostly list values in the order of the nodes: the next slots are tried first
  for (const ValueInfo& info : infos) {
    std::size_t at = expected;
    const std::size_t end = std::min(expected + kAhead, scope.slots.size());
    while (at < end && scope.slots[at].name != info.name) ++at;
    if (at == end) {
      const std::uint32_t found = scope.table.find(info.name);
      if (found == NameTable::kAbsent) continue;
      at = found;
    }
    expected = at + 1;
    // A graph output is often declared twice, in value_info too: the one with a shape counts.
    if (scope.slots[at].info == nullptr || info.has_shape) scope.slots[at].info = &info;
  }
}

void Lowering::mark_quantized_weights(Scope& scope) {
  if (!has_bytes_) return;
  const auto mark = [&](const Node& node, std::size_t operand, bool any_integer) {
    if (operand >= node.inputs.size()) return;
    Slot* slot = find(scope, node.inputs[operand]);
    if (slot == nullptr || !slot->value.is_constant) return;
    if (any_integer || (is_byte_type(slot->value.dtype) && slot->value.shape.size() >= 2)) slot->is_weight = true;
  };
  for (const Node& node : scope.nodes) {
    // Tables and kernels that are gathered from, transposed or reshaped before they are dequantized.
    mark(node, 0, false);
    const auto* entry = std::find_if(kQuantizedOperands.begin(), kQuantizedOperands.end(),
                                     [&](const QuantizedOperands& q) { return q.op_type == node.op_type; });
    if (entry == kQuantizedOperands.end()) continue;
    for (const int operand : entry->operands) {
      if (operand != kNone) mark(node, static_cast<std::size_t>(operand), true);
    }
  }
}

Slot* Lowering::find(const Scope& scope, Text name) const { return find(scope, name, NameTable::hash(name)); }

Slot* Lowering::find(const Scope& scope, Text name, std::uint32_t hash) const {
  for (const Scope* s = &scope; s != nullptr; s = s->parent) {
    const std::uint32_t at = s->table.find(name, hash);
    // Scopes are constant in what they declare; what is known of a slot grows while its nodes are lowered.
    if (at != NameTable::kAbsent) return const_cast<Slot*>(&s->slots[at]);
  }
  return nullptr;
}

/// False where an input waits for a node that comes later in the file.
bool Lowering::resolve_inputs(const Scope& scope, const Node& node, std::span<const std::uint32_t> hashes,
                              std::vector<Slot*>& inputs) const {
  inputs.clear();
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Text name = node.inputs[i];
    if (name.empty()) {
      inputs.push_back(nullptr);
      continue;
    }
    Slot* slot = find(scope, name, hashes[i]);
    if (slot == nullptr) {
      throw Error(ErrorCode::graph, "node " + label(node) + " reads tensor " + quoted(name) +
                                        ", which is neither an input nor a constant nor any node's output");
    }
    if (!slot->ready) return false;
    inputs.push_back(slot->is_absent ? nullptr : slot);
  }
  return captures_ready(scope, node);
}

bool Lowering::captures_ready(const Scope& scope, const Node& node) const {
  bool ready = true;
  for (const Attribute& attribute : node.attributes) {
    if (attribute.graph == nullptr) continue;
    each_capture(*attribute.graph, [&](Text name) {
      const Slot* slot = find(scope, name);
      ready = ready && (slot == nullptr || slot->ready);
    });
  }
  return ready;
}

void Lowering::lower_nodes(Scope& scope) {
  std::vector<Slot*> inputs;
  InputHashes hashes(scope);
  for (std::size_t i = 0; i < scope.nodes.size(); ++i) {
    if (resolve_inputs(scope, scope.nodes[i], hashes.of(i), inputs)) {
      lower_node(scope, i, inputs);
      continue;
    }
    // ONNX demands sorted nodes; files that are not are sorted here, from the first node that must wait.
    for (const std::uint32_t next : order_from(scope, i)) {
      if (!resolve_inputs(scope, scope.nodes[next], hashes.of(next), inputs)) {
        throw Error(ErrorCode::graph, "node " + label(scope.nodes[next]) +
                                          " reads a tensor that depends on the node around it; the graph has a cycle");
      }
      lower_node(scope, next, inputs);
    }
    return;
  }
}

/// Kahn's algorithm over the nodes from `first` on, smallest index first.
std::vector<std::uint32_t> Lowering::order_from(const Scope& scope, std::size_t first) const {
  const std::size_t n = scope.nodes.size();
  std::vector<std::vector<std::uint32_t>> readers(n);
  std::vector<std::uint32_t> pending(n, 0);
  for (std::size_t i = first; i < n; ++i) {
    const auto depend = [&](Text name) {
      const std::uint32_t at = scope.table.find(name);
      if (at == NameTable::kAbsent || scope.slots[at].ready || scope.slots[at].writer == kNone) return;
      readers[static_cast<std::size_t>(scope.slots[at].writer)].push_back(static_cast<std::uint32_t>(i));
      ++pending[i];
    };
    for (const Text name : scope.nodes[i].inputs) depend(name);
    for (const Attribute& attribute : scope.nodes[i].attributes) {
      if (attribute.graph != nullptr) each_capture(*attribute.graph, depend);
    }
  }
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> queue;
  for (std::size_t i = first; i < n; ++i) {
    if (pending[i] == 0) queue.push(static_cast<std::uint32_t>(i));
  }
  std::vector<std::uint32_t> order;
  while (!queue.empty()) {
    const std::uint32_t i = queue.top();
    queue.pop();
    order.push_back(i);
    for (const std::uint32_t reader : readers[i]) {
      if (--pending[reader] == 0) queue.push(reader);
    }
  }
  if (order.size() == n - first) return order;
  const auto stuck = static_cast<std::size_t>(
      std::find_if(pending.begin(), pending.end(), [](std::uint32_t p) { return p > 0; }) - pending.begin());
  throw Error(ErrorCode::graph, "the graph has a cycle: " + std::to_string(n - first - order.size()) +
                                    " node(s) wait for one another, the first is " + label(scope.nodes[stuck]));
}

}  // namespace perfpass::onnx
