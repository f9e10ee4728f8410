#include "walk.hpp"

#include <algorithm>
#include <unordered_set>

#include "walker.hpp"

namespace perfpass::relax {
namespace {

/// Bindings between fetching one into the cache and reading it.
constexpr std::int64_t kAhead = 16;

}  // namespace

Workspace::Workspace() : contents_(std::make_unique<Contents>()) {}
Workspace::~Workspace() = default;

void Walker::bind_main() {
  frames_.push_back({module_.main, kNone, kNone, 0, kNone, module_.sizes});
  const std::unordered_set<std::string> named(module_.parameters.begin(), module_.parameters.end());
  const Handle params = tvm_.child(module_.main, Field::function_params);
  const std::int64_t count = tvm_.array_size(params);
  for (std::int64_t i = 0; i < count; ++i) {
    Reflection::prefetch(tvm_.array_item(params, std::min(i + kAhead, count - 1)));
    const Handle var = tvm_.array_item(params, i);
    std::string name = name_of(var);
    const TensorRole role = named.contains(name) ? TensorRole::weight : TensorRole::input;
    const auto first = static_cast<TensorId>(records_.tensors.size());
    const Value value = value_of_type(tvm_.child(var, Field::expr_type), 0, role, "input '" + name + "'");
    records_.names.push_back(std::move(name));
    for (auto t = first; t < static_cast<TensorId>(records_.tensors.size()); ++t) {
      records_.tensors[t].name = static_cast<std::int32_t>(records_.names.size() - 1);
      if (records_.tensors[t].role == TensorRole::input) graph_inputs_.push_back(t);
    }
    memo_.put(var, 0, value);
  }
}

/// A walk waits for memory most of the time, and the block says what will be read.
void Walker::fetch_ahead(Handle bindings, std::int64_t at, std::int64_t count) const noexcept {
  const auto later = [&](std::int64_t distance) {
    return at + distance < count ? tvm_.array_item(bindings, at + distance) : nullptr;
  };
  if (Handle const binding = later(kAhead)) Reflection::prefetch(binding);
  const auto call_at = [&](std::int64_t distance) {
    Handle const binding = later(distance);
    return tvm_.class_of(binding) == Class::var_binding ? binding : nullptr;
  };
  if (Handle const binding = call_at(3 * kAhead / 4)) tvm_.prefetch_binding(binding);
  if (Handle const binding = call_at(kAhead / 2)) tvm_.prefetch_call(binding);
  if (Handle const binding = call_at(kAhead * 3 / 8)) tvm_.prefetch_shape(binding);
  if (Handle const binding = call_at(kAhead / 4)) tvm_.prefetch_sizes(binding);
}

/// Bindings of one sequence until it ends or another is entered.
void Walker::advance(std::size_t index) {
  const Handle body = levels_[index].body;
  const std::int32_t frame = levels_[index].frame;
  if (tvm_.class_of(body) != Class::seq) {
    const Level level = levels_[index];
    levels_.pop_back();
    leave(level, value_of(body, frame));
    return;
  }
  const Handle blocks = tvm_.child(body, Field::seq_blocks);
  const std::int64_t block_count = tvm_.array_size(blocks);
  while (levels_[index].block < block_count) {
    const Handle block = tvm_.array_item(blocks, levels_[index].block);
    const Handle bindings = tvm_.child(block, Field::block_bindings);
    const std::int64_t count = tvm_.array_size(bindings);
    while (levels_[index].binding < count) {
      const std::int64_t at = levels_[index].binding++;
      fetch_ahead(bindings, at, count);
      bind(tvm_.array_item(bindings, at), frame);
      if (levels_.size() > index + 1) return;
    }
    levels_[index].binding = 0;
    ++levels_[index].block;
  }
  const Level level = levels_[index];
  levels_.pop_back();
  leave(level, value_of(tvm_.child(body, Field::seq_body), frame));
}

void Walker::bind(Handle binding, std::int32_t frame) {
  const Handle target = tvm_.child(binding, Field::binding_var);
  if (tvm_.class_of(binding) == Class::match_cast) {
    const Value known = value_of(tvm_.child(binding, Field::match_value), frame);
    match(tvm_.child(binding, Field::match_type), known, frame);
    memo_.put(target, frame, known);
    return;
  }
  const Handle value = tvm_.child(binding, Field::binding_value);
  switch (tvm_.class_of(value)) {
    case Class::call:
      visit_call(value, target, frame);
      return;
    case Class::if_: {
      const auto nodes = static_cast<std::int32_t>(records_.nodes.size());
      Level level;
      level.use = Level::Use::then_branch;
      level.body = tvm_.child(value, Field::if_true);
      level.frame = level.outer = frame;
      level.target = target;
      level.branch = value;
      level.marks = {nodes, nodes, nodes};
      levels_.push_back(level);
      return;
    }
    default:
      memo_.put(target, frame, value_of(value, frame));
  }
}

/// Hands the value of a finished sequence to whoever waits for it.
void Walker::leave(const Level& level, Value value) {
  const auto nodes = static_cast<std::int32_t>(records_.nodes.size());
  switch (level.use) {
    case Level::Use::main:
      result_ = value;
      return;
    case Level::Use::call:
      memo_.put(level.target, level.outer, value);
      return;
    case Level::Use::then_branch: {
      Level other = level;
      other.use = Level::Use::else_branch;
      other.body = tvm_.child(level.branch, Field::if_false);
      other.marks.middle = nodes;
      other.then_value = value;
      other.block = other.binding = 0;
      levels_.push_back(other);
      return;
    }
    case Level::Use::else_branch: {
      branches_.push_back({level.marks.begin, level.marks.middle, nodes});
      merge_branches(level, value);
      return;
    }
  }
}

void Walker::merge_branches(const Level& level, Value else_value) {
  inputs_.clear();
  outputs_.clear();
  bool tensors = records_.flatten(value_of(tvm_.child(level.branch, Field::if_cond), level.outer), inputs_);
  const std::size_t first = inputs_.size();
  tensors = tensors && records_.flatten(level.then_value, inputs_);
  const std::size_t second = inputs_.size();
  tensors = tensors && records_.flatten(else_value, inputs_);
  if (!tensors || inputs_.size() - second != second - first) {
    throw Error(ErrorCode::unsupported, "an If whose branches do not both return the same tensors");
  }
  const Value result =
      value_of_type(tvm_.child(level.branch, Field::expr_type), level.outer, TensorRole::activation, "If");
  records_.flatten(result, outputs_);
  NodeAttributes attributes;
  attributes.view = 1;
  ir::add_node(records_, OpKind::conditional, source_id("If"), attributes, inputs_, outputs_,
               frames_[level.outer].group);
  memo_.put(level.target, level.outer, result);
}

ir::WalkResult Walker::run() {
  bind_main();
  Level main;
  main.body = tvm_.child(module_.main, Field::function_body);
  levels_.push_back(main);
  while (!levels_.empty()) advance(levels_.size() - 1);
  std::vector<TensorId> outputs;
  if (!records_.flatten(result_, outputs)) {
    throw Error(ErrorCode::unsupported, "the main function returns a function; only tensors and tuples are counted");
  }
  if (module_.infer_weights) ir::weights_in_slots(records_, graph_inputs_);
  ir::fold_transposed_weights(records_, outputs, branches_);
  return ir::assemble(records_, graph_inputs_, outputs, branches_);
}

ir::WalkResult walk(Reflection& tvm, const ir::RuleTable& rules, const Module& module, Workspace& workspace) {
  return Walker(tvm, rules, module, workspace.contents()).run();
}

}  // namespace perfpass::relax
