// Calls: operators become nodes, functions are walked in a frame of their own.
#include <algorithm>

#include "walker.hpp"

namespace perfpass::relay {

namespace {

// Functions within functions. Real modules have one level (fused functions) or two (partitions for other compilers).
constexpr int kMaxCallDepth = 128;
// Calls of functions, inlined: functions that call one another twice each would otherwise never come to an end.
constexpr std::size_t kMaxInlined = 1 << 20;

}  // namespace

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
  if (frames_.size() > kMaxInlined) {
    throw Error(ErrorCode::limit, "functions are called more than " + std::to_string(kMaxInlined) +
                                      " times in all; each call is counted as if its function were inlined");
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
  if (called.name == "nn.bias_add" && inputs_.size() > 1) {  // quantized networks have integer biases
    TensorRecord& bias = records_.tensors[inputs_[1]];
    if (bias.role == TensorRole::literal && bias.rank == 1) bias.role = TensorRole::weight;
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
  const NodeAttributes attributes = ir::lower(tvm_, rule, called.name, attrs, inputs_, outputs_, records_, kind);
  ir::add_node(records_, kind, called.source, attributes, inputs_, outputs_, frames_[task.frame].group);
  set(task, result);
}

}  // namespace perfpass::relay
