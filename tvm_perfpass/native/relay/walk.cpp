#include "walk.hpp"

#include <algorithm>
#include <unordered_set>

#include "walker.hpp"

namespace perfpass::relay {

Workspace::Workspace() : contents_(std::make_unique<Contents>()) {}
Workspace::~Workspace() = default;

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
  if (module_.infer_weights) ir::weights_in_slots(records_, graph_inputs_);
  return ir::assemble(records_, graph_inputs_, outputs, branches_);
}

WalkResult walk(Tvm& tvm, const RuleTable& rules, const Module& module, Workspace& workspace) {
  try {
    return Walker(tvm, rules, module, workspace.contents()).run();
  } catch (const LayoutMismatch&) {
    tvm.forget_layout();
    return Walker(tvm, rules, module, workspace.contents()).run();
  }
}

}  // namespace perfpass::relay
