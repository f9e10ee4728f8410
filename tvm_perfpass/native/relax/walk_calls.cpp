// Calls: operators become nodes, functions are walked in a frame of their own.
#include <algorithm>

#include "walker.hpp"

namespace perfpass::relax {
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
  const std::string name = tvm_.text(op, Field::op_name);
  const auto rule = rules_.find(name);
  return operators_.emplace(op, Operator{name, rule == rules_.end() ? &kUnknown : &rule->second, source_id(name)})
      .first->second;
}

void Walker::visit_call(Handle call, Handle target, std::int32_t frame) {
  const Handle op = tvm_.child(call, Field::call_op);
  if (tvm_.class_of(op) == Class::op) {
    const Operator& called = operator_of(op);
    const Handle args = tvm_.child(call, Field::call_args);
    switch (called.rule->form) {
      case Form::unsupported:
        throw Error(ErrorCode::unsupported, "operator " + called.name +
                                                " has no place in an inference graph; predict for the module before "
                                                "memory planning, lowering or differentiation");
      case Form::no_node:
        memo_.put(target, frame, none());
        return;
      case Form::call_tir:
        lowered_function(call, target, frame);
        return;
      case Form::packed:
        packed_function(call, tvm_.array_item(args, 0), 1, called.name, target, frame);
        return;
      default:
        lower_call(call, called, target, frame);
        return;
    }
  }
  const Value callee = value_of(op, frame);
  if (callee.kind != Value::Kind::function) {
    throw Error(ErrorCode::unsupported, "a call of something that is not a function: " + tvm_.type_key(op));
  }
  const Closure closure = closures_[callee.a];
  if (tvm_.class_of(closure.function) == Class::extern_func) {
    packed_function(call, closure.function, 0, {}, target, frame);
    return;
  }
  enter_function(call, closure, target, frame);
}

void Walker::enter_function(Handle call, const Closure& callee, Handle target, std::int32_t frame) {
  const Handle function = callee.function;
  if (tvm_.class_of(function) != Class::function) {
    throw Error(ErrorCode::unsupported,
                "a call of a " + tvm_.type_key(function) + "; lowered functions are called by relax.call_tir");
  }
  const std::int32_t depth = frames_[frame].depth + 1;
  if (depth > kMaxCallDepth) {
    throw Error(ErrorCode::limit, "functions call one another more than " + std::to_string(kMaxCallDepth) + " deep");
  }
  for (std::int32_t f = frame; f != kNone; f = frames_[f].caller) {
    if (frames_[f].function == function) {
      throw Error(
          ErrorCode::unsupported,
          "a function calls itself; the number of runs depends on data, so its cost cannot be counted. Unroll it, "
          "or predict for the body alone");
    }
  }
  if (++inlined_ > kMaxInlined) {
    throw Error(ErrorCode::limit, "functions are called more than " + std::to_string(kMaxInlined) +
                                      " times in all; each call is counted as if its function were inlined");
  }
  std::int32_t group = frames_[frame].group;
  if (group == kNone && (tvm_.has_attribute(function, "Primitive") || tvm_.has_attribute(function, "Composite"))) {
    group = groups_++;
  }
  const Handle params = tvm_.child(function, Field::function_params);
  const Handle args = tvm_.child(call, Field::call_args);
  const std::int64_t count = tvm_.array_size(params);
  if (tvm_.array_size(args) != count) {
    throw Error(ErrorCode::graph, "a function of " + std::to_string(count) + " parameters is called with " +
                                      std::to_string(tvm_.array_size(args)));
  }
  frames_.push_back({function, callee.frame, frame, depth, group, {}});
  const auto inner = static_cast<std::int32_t>(frames_.size() - 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const Handle var = tvm_.array_item(params, i);
    const Value known = value_of(tvm_.array_item(args, i), frame);
    memo_.put(var, inner, known);
    match(tvm_.child(var, Field::expr_type), known, inner);
  }
  Level level;
  level.use = Level::Use::call;
  level.body = tvm_.child(function, Field::function_body);
  level.frame = inner;
  level.target = target;
  level.outer = frame;
  levels_.push_back(level);
}

void Walker::lower_call(Handle call, const Operator& called, Handle target, std::int32_t frame) {
  const Rule& rule = *called.rule;
  const Handle args = tvm_.child(call, Field::call_args);
  const std::int64_t count = tvm_.array_size(args);
  values_.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    Handle const argument = tvm_.array_item(args, i);
    values_.push_back(argument == nullptr ? none() : value_of(argument, frame));
  }
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
  const Handle type = tvm_.child(call, Field::expr_type);
  Value result;
  outputs_.clear();
  if (rule.form == Form::first_output && tvm_.class_of(type) == Class::tuple_type) {
    // batch_norm hands its statistics through, dropout's mask is never used: only field 0 is computed.
    const Handle fields = tvm_.child(type, Field::tuple_type_fields);
    std::vector<Value> parts(static_cast<std::size_t>(tvm_.array_size(fields)));
    parts[0] = value_of_type(tvm_.array_item(fields, 0), frame, TensorRole::activation, called.name);
    for (std::size_t i = 1; i < parts.size(); ++i) parts[i] = values_[std::min(i + 2, values_.size() - 1)];
    records_.flatten(parts[0], outputs_);
    result = tuple_of(parts);
  } else {
    result = value_of_type(type, frame, TensorRole::activation, called.name);
    records_.flatten(result, outputs_);
  }
  OpKind kind = rule.op;
  const Handle attrs = tvm_.child(call, Field::call_attrs);
  const NodeAttributes attributes = ir::lower(tvm_, rule, called.name, attrs, inputs_, outputs_, records_, kind);
  ir::add_node(records_, kind, called.source, attributes, inputs_, outputs_, frames_[frame].group);
  memo_.put(target, frame, result);
}

/// A function outside of the module: its tensors are known, its arithmetic is not.
void Walker::packed_function(Handle call, Handle function, std::int64_t first_argument, const std::string& name,
                             Handle target, std::int32_t frame) {
  const std::string shown =
      tvm_.class_of(function) == Class::extern_func ? tvm_.text(function, Field::extern_name) : name;
  const Handle args = tvm_.child(call, Field::call_args);
  const std::int64_t count = tvm_.array_size(args);
  inputs_.clear();
  outputs_.clear();
  for (std::int64_t i = first_argument; i < count; ++i) {
    if (Handle const argument = tvm_.array_item(args, i)) records_.flatten(value_of(argument, frame), inputs_);
  }
  const Value result = value_of_type(tvm_.child(call, Field::expr_type), frame, TensorRole::activation, shown);
  records_.flatten(result, outputs_);
  if (!outputs_.empty()) {
    ir::add_node(records_, OpKind::unknown, source_id(shown), {}, inputs_, outputs_, frames_[frame].group);
  }
  memo_.put(target, frame, result);
}

}  // namespace perfpass::relax
