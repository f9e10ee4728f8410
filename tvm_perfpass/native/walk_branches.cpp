// If: both branches are kept, the lighter one counts 0 times.
#include "perfpass/cost.hpp"
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
  add_node(OpKind::conditional, source_id("If"), attributes, inputs_, outputs_, frames_[task.frame].group);
  set(task, result);
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

}  // namespace perfpass::relay
