#include "walk.hpp"

#include <algorithm>
#include <unordered_set>

#include "memo.hpp"
#include "perfpass/cost.hpp"
#include "perfpass/error.hpp"
#include "values.hpp"

namespace perfpass::relay {

struct Task {
  Handle expression;
  std::int32_t frame;
  std::int32_t state;  // 0 first visit; then what the class of the expression makes of it
};

struct Workspace::Contents {
  Records records;
  Memo memo;
  std::vector<Task> stack;
};
Workspace::Workspace() : contents_(std::make_unique<Contents>()) {}
Workspace::~Workspace() = default;

namespace {

// Functions within functions. Real modules have one level (fused functions) or two (partitions for other compilers).
constexpr int kMaxCallDepth = 128;
constexpr int kMaxTupleDepth = 16;
// Expressions between fetching one into the cache and reading it; 8 to 32 are equally quick on what was measured.
constexpr std::size_t kAhead = 16;

struct Frame {
  Handle function = nullptr;     // null for main's own frame
  std::int32_t lexical = kNone;  // where free variables are looked up
  std::int32_t caller = kNone;
  std::int32_t depth = 0;
  std::int32_t group = kNone;  // of the fused function this frame is in
};

struct Closure {
  Handle function;
  std::int32_t frame;
};

/// The two branches of one If, as ranges of node records.
struct Branches {
  std::int32_t begin, middle, end;
};

struct Operator {
  std::string name;
  const Rule* rule;
  std::int32_t source;
};

class Walker {
 public:
  Walker(Tvm& tvm, const RuleTable& rules, const Module& module, Workspace::Contents& workspace)
      : tvm_(tvm),
        rules_(rules),
        module_(module),
        records_(workspace.records),
        memo_(workspace.memo),
        stack_(workspace.stack) {
    records_.clear();
    memo_.clear();
    stack_.clear();
  }
  WalkResult run();

 private:
  void bind_main();
  void fetch_ahead() const noexcept;
  void step(Task task);
  void visit_call(const Task& task);
  void enter_function(const Task& task, Handle function, std::int32_t lexical, bool literal);
  void lower_call(const Task& task, Handle op);
  void visit_tuple(const Task& task);
  void visit_get_item(const Task& task);
  void visit_let(const Task& task);
  void visit_if(const Task& task);
  Value variable(Handle var, std::int32_t frame);
  Value constant(Handle expression);
  void merge_branches(const Task& task, Value condition, Value then_value, Value else_value);

  TensorId add_tensor(Handle type, TensorRole role, std::int32_t name, const char* what, const std::string& whose);
  Value value_of_type(Handle type, TensorRole role, const std::string& whose, int depth);
  const Operator& operator_of(Handle op);
  std::int32_t source_id(const std::string& name);
  void add_node(OpKind op, std::int32_t source, const NodeAttributes& attributes, std::span<const TensorId> inputs,
                std::span<const TensorId> outputs, std::int32_t group);
  Value tuple_of(std::span<const Value> fields);
  const Value* known(Handle expression, std::int32_t frame) const { return memo_.find(expression, frame); }
  void set(const Task& task, Value value) { memo_.put(task.expression, task.frame, value); }
  void push(Handle expression, std::int32_t frame, std::int32_t state = 0) {
    if (state != 0 || known(expression, frame) == nullptr) stack_.push_back({expression, frame, state});
  }
  /// A value that a child left behind.
  Value value(Handle expression, std::int32_t frame) const {
    const Value* found = known(expression, frame);
    if (found == nullptr) throw Error(ErrorCode::graph, "an expression of the module depends on itself");
    return *found;
  }
  std::int32_t weights_in_slots();
  WalkResult build(std::span<const TensorId> outputs);
  void choose_branches(OpGraph& graph) const;

  Tvm& tvm_;
  const RuleTable& rules_;
  const Module& module_;
  Records& records_;
  Memo& memo_;
  std::vector<Task>& stack_;
  std::vector<Frame> frames_;
  std::vector<Closure> closures_;
  std::vector<TensorId> graph_inputs_;
  std::unordered_map<Handle, Value> constants_;
  std::unordered_map<Handle, Operator> operators_;
  std::unordered_map<std::string, std::int32_t> source_ids_;
  std::unordered_map<std::int64_t, Branches> open_branches_;
  std::vector<Branches> branches_;
  std::int32_t groups_ = 0;
  std::vector<Value> values_;      // scratch
  std::vector<TensorId> inputs_;   // scratch
  std::vector<TensorId> outputs_;  // scratch
};

bool is_parameter(DType dtype, std::size_t rank) { return is_floating(dtype) && rank >= 1; }

TensorId Walker::add_tensor(Handle type, TensorRole role, std::int32_t name, const char* what,
                            const std::string& whose) {
  const Handle shape = tvm_.child(type, Field::tensor_shape);
  const std::int64_t rank = tvm_.array_size(shape);
  const auto first = records_.dims.size();
  for (std::int64_t i = 0; i < rank; ++i) {
    const Handle dim = tvm_.array_item(shape, i);
    if (tvm_.class_of(dim) != Class::int_imm) {
      throw Error(
          ErrorCode::shape,
          whose + ": " + what + " has a dynamic size (" + tvm_.type_key(dim) + ") at axis " + std::to_string(i) +
              "; give the module static shapes, for example from_onnx(model, shape={...}, freeze_params=True) or "
              "relay.transform.DynamicToStatic()");
    }
    records_.dims.push_back(tvm_.integer(dim, Field::int_value));
  }
  const std::span<const std::int64_t> dims{records_.dims.data() + first, static_cast<std::size_t>(rank)};
  checked_elements(dims);
  const DType dtype = tvm_.dtype(type);
  if (role == TensorRole::weight && !is_parameter(dtype, dims.size())) role = TensorRole::literal;
  records_.tensors.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(rank), dtype, role, name});
  return static_cast<TensorId>(records_.tensors.size() - 1);
}

Value Walker::tuple_of(std::span<const Value> fields) {
  const auto first = static_cast<std::int32_t>(records_.tuples.size());
  records_.tuples.insert(records_.tuples.end(), fields.begin(), fields.end());
  return {Value::Kind::tuple, first, static_cast<std::int32_t>(fields.size())};
}

/// Fresh tensors for a type: one, or a tuple of them.
Value Walker::value_of_type(Handle type, TensorRole role, const std::string& whose, int depth) {
  if (type == nullptr) {
    throw Error(ErrorCode::graph,
                whose + ": the expression has no checked type; run relay.transform.InferType() first");
  }
  const Class cls = tvm_.class_of(type);
  if (cls == Class::tensor_type) {
    return {Value::Kind::tensor,
            add_tensor(type, role, kNone, role == TensorRole::activation ? "its result" : "it", whose), 0};
  }
  if (cls != Class::tuple_type || depth > kMaxTupleDepth) {
    throw Error(ErrorCode::unsupported, whose + ": a value of type " + tvm_.type_key(type) +
                                            "; only tensors and tuples of tensors are counted");
  }
  const Handle fields = tvm_.child(type, Field::tuple_type_fields);
  const std::int64_t size = tvm_.array_size(fields);
  std::vector<Value> values;
  for (std::int64_t i = 0; i < size; ++i) {
    values.push_back(value_of_type(tvm_.array_item(fields, i), role, whose, depth + 1));
  }
  return tuple_of(values);
}

std::int32_t Walker::source_id(const std::string& name) {
  const auto [it, fresh] = source_ids_.try_emplace(name, static_cast<std::int32_t>(records_.sources.size()));
  if (fresh) records_.sources.push_back(name);
  return it->second;
}

const Operator& Walker::operator_of(Handle op) {
  if (const auto it = operators_.find(op); it != operators_.end()) return it->second;
  static const Rule kUnknown;
  const std::string name = tvm_.attribute(op, "name").text;
  const auto rule = rules_.find(name);
  return operators_.emplace(op, Operator{name, rule == rules_.end() ? &kUnknown : &rule->second, source_id(name)})
      .first->second;
}

void Walker::add_node(OpKind op, std::int32_t source, const NodeAttributes& attributes,
                      std::span<const TensorId> inputs, std::span<const TensorId> outputs, std::int32_t group) {
  if (records_.nodes.size() >= kMaxNodes) {
    throw Error(ErrorCode::limit, "more than " + std::to_string(kMaxNodes) + " operators after inlining functions");
  }
  const auto first_input = static_cast<std::int32_t>(records_.links.size());
  records_.links.insert(records_.links.end(), inputs.begin(), inputs.end());
  const auto first_output = static_cast<std::int32_t>(records_.links.size());
  records_.links.insert(records_.links.end(), outputs.begin(), outputs.end());
  records_.nodes.push_back({op, source, attributes, first_input, static_cast<std::int32_t>(inputs.size()), first_output,
                            static_cast<std::int32_t>(outputs.size()), group});
}

void Walker::bind_main() {
  const std::unordered_set<std::string> named(module_.parameters.begin(), module_.parameters.end());
  const Handle params = tvm_.child(module_.main, Field::function_params);
  const std::int64_t count = tvm_.array_size(params);
  const auto ahead = static_cast<std::int64_t>(kAhead);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto later = [&](std::int64_t distance) {
      return tvm_.array_item(params, std::min(i + distance, count - 1));
    };
    Tvm::prefetch(later(ahead));
    tvm_.prefetch_fields(later(3 * ahead / 4), Class::var);
    tvm_.prefetch_shape(later(ahead / 2), Class::var);
    tvm_.prefetch_sizes(later(ahead / 4), Class::var);
    const Handle var = tvm_.array_item(params, i);
    const std::string name = tvm_.text(tvm_.child(tvm_.child(var, Field::var_id), Field::id_name));
    const TensorRole role = named.contains(name) ? TensorRole::weight : TensorRole::input;
    const auto first = static_cast<TensorId>(records_.tensors.size());
    const Value value = value_of_type(tvm_.child(var, Field::var_type), role, "input '" + name + "'", 0);
    records_.names.push_back(name);
    for (auto t = first; t < static_cast<TensorId>(records_.tensors.size()); ++t) {
      records_.tensors[t].name = static_cast<std::int32_t>(records_.names.size() - 1);
      if (records_.tensors[t].role == TensorRole::input) graph_inputs_.push_back(t);
    }
    memo_.put(var, 0, value);
  }
}

Value Walker::variable(Handle var, std::int32_t frame) {
  for (std::int32_t f = frame; f != kNone; f = frames_[f].lexical) {
    if (const Value* found = known(var, f)) return *found;
  }
  const std::string name = tvm_.text(tvm_.child(tvm_.child(var, Field::var_id), Field::id_name));
  throw Error(ErrorCode::graph, "variable '" + name + "' is bound by no function or let");
}

Value Walker::constant(Handle expression) {
  if (const auto it = constants_.find(expression); it != constants_.end()) return it->second;
  const Value value = value_of_type(tvm_.child(expression, Field::constant_type), TensorRole::weight, "a constant", 0);
  constants_.emplace(expression, value);
  return value;
}

void Walker::step(Task task) {
  if (task.state == 0 && known(task.expression, task.frame) != nullptr) return;
  switch (tvm_.class_of(task.expression)) {
    case Class::call:
      visit_call(task);
      return;
    case Class::var:
      set(task, variable(task.expression, task.frame));
      return;
    case Class::constant:
      set(task, constant(task.expression));
      return;
    case Class::tuple:
      visit_tuple(task);
      return;
    case Class::tuple_get_item:
      visit_get_item(task);
      return;
    case Class::let:
      visit_let(task);
      return;
    case Class::if_:
      visit_if(task);
      return;
    case Class::function:
      closures_.push_back({task.expression, task.frame});
      set(task, {Value::Kind::function, static_cast<std::int32_t>(closures_.size() - 1), 0});
      return;
    case Class::global_var: {
      const auto it = module_.functions.find(task.expression);
      if (it == module_.functions.end())
        throw Error(ErrorCode::graph, "a global function that the module does not have");
      closures_.push_back({it->second, kNone});
      set(task, {Value::Kind::function, static_cast<std::int32_t>(closures_.size() - 1), 0});
      return;
    }
    default:
      throw Error(ErrorCode::unsupported,
                  "the module contains a " + tvm_.type_key(task.expression) +
                      ", which has no operator graph; references, pattern matches and data types cannot be counted");
  }
}

// States of a call: 0 arguments to be visited, 1 arguments known, 2 the body of the called function known.
void Walker::visit_call(const Task& task) {
  const Handle op = tvm_.child(task.expression, Field::call_op);
  const Class cls = tvm_.class_of(op);
  const bool evaluated = cls != Class::op && cls != Class::function && cls != Class::global_var;
  if (task.state == 0) {
    if (cls == Class::constructor) {
      throw Error(ErrorCode::unsupported,
                  "the module builds an algebraic data type; only tensors and tuples are counted");
    }
    const std::size_t before = stack_.size();
    stack_.push_back({task.expression, task.frame, 1});
    const Handle args = tvm_.child(task.expression, Field::call_args);
    for (std::int64_t i = tvm_.array_size(args) - 1; i >= 0; --i) {
      Handle const argument = tvm_.array_item(args, i);
      Tvm::prefetch(argument);
      push(argument, task.frame);
    }
    if (evaluated) push(op, task.frame);
    if (stack_.size() > before + 1) return;
    stack_.pop_back();  // nothing to wait for
  }
  if (task.state >= 2) {  // state - 2 is the frame that the called function's body ran in
    const std::int32_t inner = task.state - 2;
    set(task, value(tvm_.child(frames_[inner].function, Field::function_body), inner));
    return;
  }
  if (cls == Class::op) {
    lower_call(task, op);
  } else if (cls == Class::function) {
    enter_function(task, op, task.frame, true);
  } else if (cls == Class::global_var) {
    const auto it = module_.functions.find(op);
    if (it == module_.functions.end())
      throw Error(ErrorCode::graph, "a call of a global function that the module does not have");
    enter_function(task, it->second, kNone, false);
  } else {
    const Value callee = value(op, task.frame);
    if (callee.kind != Value::Kind::function) {
      throw Error(ErrorCode::unsupported, "a call of something that is not a function: " + tvm_.type_key(op));
    }
    const Closure closure = closures_[callee.a];
    enter_function(task, closure.function, closure.frame, false);
  }
}

void Walker::enter_function(const Task& task, Handle function, std::int32_t lexical, bool literal) {
  if (tvm_.class_of(function) != Class::function) {
    throw Error(ErrorCode::unsupported,
                "a call of a " + tvm_.type_key(function) + "; predict for the module before it is lowered to TIR");
  }
  const std::int32_t depth = frames_[task.frame].depth + 1;
  if (depth > kMaxCallDepth) {
    throw Error(ErrorCode::limit, "functions call one another more than " + std::to_string(kMaxCallDepth) + " deep");
  }
  for (std::int32_t f = task.frame; f != kNone; f = frames_[f].caller) {
    if (frames_[f].function == function) {
      throw Error(
          ErrorCode::unsupported,
          "a function calls itself; the number of runs depends on data, so its cost cannot be counted. Unroll it, "
          "or predict for the body alone");
    }
  }
  std::int32_t group = frames_[task.frame].group;
  if (literal && group == kNone) group = groups_++;
  frames_.push_back({function, lexical, task.frame, depth, group});
  const auto inner = static_cast<std::int32_t>(frames_.size() - 1);
  const Handle params = tvm_.child(function, Field::function_params);
  const Handle args = tvm_.child(task.expression, Field::call_args);
  const std::int64_t count = tvm_.array_size(params);
  if (tvm_.array_size(args) != count) {
    throw Error(ErrorCode::graph, "a function of " + std::to_string(count) + " parameters is called with " +
                                      std::to_string(tvm_.array_size(args)));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    memo_.put(tvm_.array_item(params, i), inner, value(tvm_.array_item(args, i), task.frame));
  }
  stack_.push_back({task.expression, task.frame, inner + 2});
  push(tvm_.child(function, Field::function_body), inner);
}

void Walker::lower_call(const Task& task, Handle op) {
  const Operator& called = operator_of(op);
  const Rule& rule = *called.rule;
  if (rule.form == Form::unsupported) {
    throw Error(ErrorCode::unsupported, "operator " + called.name +
                                            " has no place in an inference graph; predict for the module before memory "
                                            "planning, lowering or differentiation");
  }
  const Handle args = tvm_.child(task.expression, Field::call_args);
  const std::int64_t count = tvm_.array_size(args);
  values_.clear();
  for (std::int64_t i = 0; i < count; ++i) values_.push_back(value(tvm_.array_item(args, i), task.frame));
  inputs_.clear();
  const auto take = [&](const Value& argument) {
    if (!records_.flatten(argument, inputs_)) {
      throw Error(ErrorCode::unsupported, "operator " + called.name + " takes a function as argument");
    }
  };
  if (rule.all_inputs) {
    for (const Value& argument : values_) take(argument);
  } else {
    for (const std::size_t i : rule.inputs) {
      if (i < values_.size()) take(values_[i]);
    }
  }
  const Handle type = tvm_.child(task.expression, Field::call_type);
  Value result;
  outputs_.clear();
  if (rule.form == Form::first_output && tvm_.class_of(type) == Class::tuple_type) {
    // batch_norm hands its statistics through, dropout's mask is never used: only field 0 is computed.
    const Handle fields = tvm_.child(type, Field::tuple_type_fields);
    std::vector<Value> parts(static_cast<std::size_t>(tvm_.array_size(fields)));
    parts[0] = value_of_type(tvm_.array_item(fields, 0), TensorRole::activation, called.name, 0);
    for (std::size_t i = 1; i < parts.size(); ++i) parts[i] = values_[std::min(i + 2, values_.size() - 1)];
    records_.flatten(parts[0], outputs_);
    result = tuple_of(parts);
  } else {
    result = value_of_type(type, TensorRole::activation, called.name, 0);
    records_.flatten(result, outputs_);
  }
  OpKind kind = rule.op;
  const Handle attrs = tvm_.child(task.expression, Field::call_attrs);
  const NodeAttributes attributes = lower(tvm_, rule, called.name, attrs, inputs_, outputs_, records_, kind);
  add_node(kind, called.source, attributes, inputs_, outputs_, frames_[task.frame].group);
  set(task, result);
}

void Walker::visit_tuple(const Task& task) {
  const Handle fields = tvm_.child(task.expression, Field::tuple_fields);
  const std::int64_t size = tvm_.array_size(fields);
  if (task.state == 0) {
    stack_.push_back({task.expression, task.frame, 1});
    for (std::int64_t i = size - 1; i >= 0; --i) push(tvm_.array_item(fields, i), task.frame);
    return;
  }
  std::vector<Value> parts;
  for (std::int64_t i = 0; i < size; ++i) parts.push_back(value(tvm_.array_item(fields, i), task.frame));
  set(task, tuple_of(parts));
}

void Walker::visit_get_item(const Task& task) {
  const Handle tuple = tvm_.child(task.expression, Field::get_item_tuple);
  if (task.state == 0) {
    stack_.push_back({task.expression, task.frame, 1});
    push(tuple, task.frame);
    return;
  }
  const Value whole = value(tuple, task.frame);
  const std::int64_t index = tvm_.integer(task.expression, Field::get_item_index);
  if (whole.kind != Value::Kind::tuple || index < 0 || index >= whole.b) {
    throw Error(ErrorCode::graph, "field " + std::to_string(index) + " is taken of a value that does not have it");
  }
  set(task, records_.tuples[whole.a + index]);
}

void Walker::visit_let(const Task& task) {
  const Handle bound = tvm_.child(task.expression, Field::let_value);
  const Handle body = tvm_.child(task.expression, Field::let_body);
  if (task.state == 0) {
    stack_.push_back({task.expression, task.frame, 1});
    push(bound, task.frame);
  } else if (task.state == 1) {
    memo_.put(tvm_.child(task.expression, Field::let_var), task.frame, value(bound, task.frame));
    stack_.push_back({task.expression, task.frame, 2});
    push(body, task.frame);
  } else {
    set(task, value(body, task.frame));
  }
}

// States of an If: 1 condition known, 2 first branch known, 3 both known.
void Walker::visit_if(const Task& task) {
  const Handle condition = tvm_.child(task.expression, Field::if_cond);
  const Handle then_branch = tvm_.child(task.expression, Field::if_true);
  const Handle else_branch = tvm_.child(task.expression, Field::if_false);
  const auto key = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(task.expression)) ^ task.frame;
  const auto nodes = static_cast<std::int32_t>(records_.nodes.size());
  if (task.state < 3) stack_.push_back({task.expression, task.frame, task.state + 1});
  switch (task.state) {
    case 0:
      push(condition, task.frame);
      return;
    case 1:
      open_branches_[key] = {nodes, nodes, nodes};
      push(then_branch, task.frame);
      return;
    case 2:
      open_branches_[key].middle = nodes;
      push(else_branch, task.frame);
      return;
    default:
      break;
  }
  Branches branches = open_branches_[key];
  branches.end = nodes;
  open_branches_.erase(key);
  branches_.push_back(branches);
  merge_branches(task, value(condition, task.frame), value(then_branch, task.frame), value(else_branch, task.frame));
}

void Walker::merge_branches(const Task& task, Value condition, Value then_value, Value else_value) {
  inputs_.clear();
  outputs_.clear();
  bool tensors = records_.flatten(condition, inputs_);
  const std::size_t first = inputs_.size();
  tensors = tensors && records_.flatten(then_value, inputs_);
  const std::size_t second = inputs_.size();
  tensors = tensors && records_.flatten(else_value, inputs_);
  if (!tensors || inputs_.size() - second != second - first) {
    throw Error(ErrorCode::unsupported, "an If whose branches do not both return the same tensors");
  }
  const Value result =
      value_of_type(tvm_.attribute(task.expression, "_checked_type_").object, TensorRole::activation, "If", 0);
  records_.flatten(result, outputs_);
  NodeAttributes attributes;
  attributes.view = 1;
  add_node(OpKind::conditional, source_id("If"), attributes, inputs_, outputs_, frames_[task.frame].group);
  set(task, result);
}

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
  for (const NodeRecord& node : records_.nodes) {
    switch (node.op) {
      case OpKind::conv:
      case OpKind::conv_transpose:
      case OpKind::deform_conv:
      case OpKind::dense:
      case OpKind::prelu:
        slot(node, 1);
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
        slot(node, 0);
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

/// Of the two branches of every If, the lighter one counts 0 times. Inner ones come first, as they were left first.
void Walker::choose_branches(OpGraph& graph) const {
  if (branches_.empty()) return;
  const Costs costs = count_costs(graph);
  for (const Branches& b : branches_) {
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
    graph.notes.push_back(std::string("an If: the ") + (then_counts ? "then" : "else") +
                          " branch is counted, the other has less to do and counts 0 times");
  }
}

/// A walk waits for memory most of the time; the stack says which calls will be lowered next.
void Walker::fetch_ahead() const noexcept {
  const auto waiting = [&](std::size_t ahead) {
    return stack_.size() >= ahead ? stack_[stack_.size() - ahead].expression : nullptr;
  };
  if (Handle const call = waiting(kAhead)) Tvm::prefetch(call);
  if (Handle const call = waiting(3 * kAhead / 4)) tvm_.prefetch_fields(call, tvm_.class_of(call));
  if (Handle const call = waiting(kAhead / 2)) tvm_.prefetch_shape(call, tvm_.class_of(call));
  if (Handle const call = waiting(kAhead / 4)) tvm_.prefetch_sizes(call, tvm_.class_of(call));
}

WalkResult Walker::run() {
  tvm_.begin_walk();
  frames_.push_back({module_.main, kNone, kNone, 0, kNone});
  bind_main();
  const Handle body = tvm_.child(module_.main, Field::function_body);
  push(body, 0);
  while (!stack_.empty()) {
    const Task task = stack_.back();
    stack_.pop_back();
    if (task.state != 0) fetch_ahead();
    step(task);
  }
  std::vector<TensorId> outputs;
  if (!records_.flatten(value(body, 0), outputs)) {
    throw Error(ErrorCode::unsupported, "the main function returns a function; only tensors and tuples are counted");
  }
  return build(outputs);
}

}  // namespace

WalkResult walk(Tvm& tvm, const RuleTable& rules, const Module& module, Workspace& workspace) {
  try {
    return Walker(tvm, rules, module, workspace.contents()).run();
  } catch (const LayoutMismatch&) {
    tvm.forget_layout();
    return Walker(tvm, rules, module, workspace.contents()).run();
  }
}

}  // namespace perfpass::relay
