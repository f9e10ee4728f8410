// If: both branches are kept, the lighter one counts 0 times.
#include "walker.hpp"

namespace perfpass::relay {

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
  ir::add_node(records_, OpKind::conditional, source_id("If"), attributes, inputs_, outputs_,
               frames_[task.frame].group);
  set(task, result);
}

}  // namespace perfpass::relay
