#include "onnx/inputs.hpp"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "perfpass/error.hpp"
#include "support/text.hpp"
#include "support/text_hash.hpp"

namespace perfpass::onnx {
namespace {

[[noreturn]] void fail(ErrorCode code, const std::string& message) { throw Error(code, message); }

Text symbol_of(const ValueInfo& info, std::size_t axis) { return info.symbols.empty() ? Text{} : info.symbols[axis]; }

/// How the caller names a dimension that the file leaves open without a name: "input:axis".
std::string unnamed(const ValueInfo& info, std::size_t axis) {
  return std::string(info.name) + ":" + std::to_string(axis);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t d : shape) text += (text.empty() ? "" : " x ") + (d < 0 ? "?" : std::to_string(d));
  return shape.empty() ? "a scalar" : text;
}

/// A few names for a message.
std::string list(const std::set<std::string, std::less<>>& names) {
  constexpr std::size_t kShown = 8;
  std::string text;
  std::size_t shown = 0;
  for (const std::string& name : names) {
    if (shown == kShown) return text + " and " + std::to_string(names.size() - kShown) + " more";
    text += (shown++ == 0 ? "" : ", ") + quoted(name);
  }
  return text.empty() ? "none" : text;
}

void add_symbols(std::set<std::string, std::less<>>& symbols, const ValueInfo& info) {
  for (std::size_t axis = 0; axis < info.shape.size(); ++axis) {
    const Text symbol = symbol_of(info, axis);
    if (!symbol.empty()) {
      symbols.emplace(symbol);
    } else if (info.shape[axis] < 0) {
      symbols.insert(unnamed(info, axis));
    }
  }
}

}  // namespace

InputShapes::InputShapes(const Model& model, const OnnxOptions& options, std::pmr::memory_resource& arena)
    : arena_(arena) {
  std::unordered_set<Text, TextHash> fed;  // a constant may be declared as an input too; inputs are few
  for (const ValueInfo& info : model.graph->inputs) fed.insert(info.name);
  for (const Constant& c : model.graph->initializers) fed.erase(c.name);
  for (const ValueInfo& info : model.graph->inputs) {
    if (fed.contains(info.name)) inputs_.push_back({&info, info.shape});
  }
  check_names(model, options);
  for (const auto& [name, value] : options.dims) symbols_.emplace(name, value);
  apply_shapes(options);
  apply_batch(options);
  fill(options);
}

void InputShapes::check_names(const Model& model, const OnnxOptions& options) const {
  for (const auto& [name, value] : options.dims) {
    if (value < 1)
      fail(ErrorCode::argument, "dimension " + quoted(name) + " = " + std::to_string(value) + "; it must be 1 or more");
  }
  if (options.batch < 0) fail(ErrorCode::argument, "batch " + std::to_string(options.batch) + "; it must be 1 or more");
  for (const auto& [name, shape] : options.input_shapes) {
    for (const std::int64_t d : shape) {
      if (d < 1)
        fail(ErrorCode::argument, "the shape for input " + quoted(name) + " has a dimension of " + std::to_string(d) +
                                      "; it must be 1 or more");
    }
    const bool known =
        std::any_of(inputs_.begin(), inputs_.end(), [&](const Input& i) { return i.declared->name == name; });
    if (known) continue;
    std::set<std::string, std::less<>> names;
    for (const Input& input : inputs_) names.emplace(input.declared->name);
    fail(ErrorCode::argument, "the model has no input " + quoted(name) + "; its inputs are " + list(names));
  }
  if (options.dims.empty()) return;
  std::set<std::string, std::less<>> known;
  for (const Input& input : inputs_) add_symbols(known, *input.declared);
  for (const auto& [name, value] : options.dims) {
    if (known.contains(name)) continue;
    // Only then the larger set: values within the graph may have symbols of their own.
    std::set<std::string, std::less<>> all = known;
    for (const ValueInfo& info : model.graph->value_info) add_symbols(all, info);
    for (const ValueInfo& info : model.graph->outputs) add_symbols(all, info);
    if (!all.contains(name)) {
      fail(ErrorCode::argument,
           "the model has no symbolic dimension " + quoted(name) + "; its inputs have " + list(known));
    }
  }
}

void InputShapes::bind(Text symbol, std::int64_t value, const std::string& source) {
  const auto [it, added] = symbols_.emplace(symbol, value);
  if (added || it->second == value) return;
  fail(ErrorCode::shape, "dimension " + quoted(symbol) + " is set to " + std::to_string(it->second) + " and, by " +
                             source + ", to " + std::to_string(value) + "; give one value");
}

/// Whole shapes given by the caller; a first axis that differs from a fixed one is a batch rebinding.
void InputShapes::apply_shapes(const OnnxOptions& options) {
  bool first = true;
  for (Input& input : inputs_) {
    const ValueInfo& info = *input.declared;
    const bool leads = first && !(info.has_shape && info.shape.empty());
    first = first && !leads;
    const auto given = options.input_shapes.find(std::string(info.name));
    if (given == options.input_shapes.end()) continue;
    const std::vector<std::int64_t>& shape = given->second;
    if (info.has_shape && info.shape.size() != shape.size()) {
      fail(ErrorCode::shape, "input " + quoted(info.name) + " has " + std::to_string(info.shape.size()) +
                                 " dimensions (" + shape_text(info.shape) + "); the shape given has " +
                                 std::to_string(shape.size()));
    }
    for (std::size_t axis = 0; axis < info.shape.size(); ++axis) {
      const Text symbol = symbol_of(info, axis);
      if (!symbol.empty()) bind(symbol, shape[axis], "the shape of input " + quoted(info.name));
      if (info.shape[axis] < 0) continue;
      stale_ = stale_ || info.shape[axis] != shape[axis];
      if (leads && axis == 0 && info.shape[0] != shape[0]) {
        file_batch_ = info.shape[0];
        batch_ = shape[0];
      }
    }
    auto* copy =
        static_cast<std::int64_t*>(arena_.allocate(std::max<std::size_t>(1, shape.size()) * sizeof(std::int64_t)));
    std::copy(shape.begin(), shape.end(), copy);
    input.shape = {copy, shape.size()};
  }
}

/// The batch is the first axis of the first input that has axes. Other inputs follow where their first axis is the same
/// symbol, the same number or unnamed.
void InputShapes::apply_batch(const OnnxOptions& options) {
  if (options.batch == 0) return;
  const auto leader =
      std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& input) { return !input.shape.empty(); });
  if (leader == inputs_.end())
    fail(ErrorCode::argument,
         "a batch is given, but the model has no input with dimensions; give input_shapes instead");
  const ValueInfo& info = *leader->declared;
  if (options.input_shapes.contains(std::string(info.name))) {
    if (leader->shape[0] == options.batch) return;
    fail(ErrorCode::shape, "batch " + std::to_string(options.batch) + " contradicts the shape given for input " +
                               quoted(info.name) + " (" + shape_text(leader->shape) + "); give one of them");
  }
  const Text symbol = symbol_of(info, 0);
  const std::int64_t fixed = info.shape[0];
  if (!symbol.empty()) bind(symbol, options.batch, "the batch");
  if (fixed >= 0 && fixed != options.batch) {
    file_batch_ = fixed;
    batch_ = options.batch;
    stale_ = true;
  }
  for (Input& input : inputs_) {
    const ValueInfo& other = *input.declared;
    if (input.shape.empty() || options.input_shapes.contains(std::string(other.name))) continue;
    const bool same_fixed = fixed >= 0 && other.shape[0] == fixed;
    const bool anonymous = other.shape[0] < 0 && symbol_of(other, 0).empty() && !symbols_.contains(unnamed(other, 0));
    if (same_fixed || anonymous) {
      auto* copy = static_cast<std::int64_t*>(arena_.allocate(input.shape.size() * sizeof(std::int64_t)));
      std::copy(input.shape.begin(), input.shape.end(), copy);
      copy[0] = options.batch;
      input.shape = {copy, input.shape.size()};
    } else if (fixed >= 0 && other.shape[0] >= 0) {
      notes_.push_back("input " + quoted(other.name) + " keeps its first dimension of " +
                       std::to_string(other.shape[0]) + ": it is not the batch of " + std::to_string(fixed) +
                       " that input " + quoted(info.name) + " has");
    }
  }
}

std::int64_t InputShapes::dimension(const ValueInfo& info, std::size_t axis) const {
  if (info.shape[axis] >= 0) return info.shape[axis];
  const Text symbol = symbol_of(info, axis);
  const auto it = symbol.empty() ? symbols_.find(unnamed(info, axis)) : symbols_.find(symbol);
  return it == symbols_.end() ? kUnknownDim : it->second;
}

void InputShapes::fill(const OnnxOptions& options) {
  std::set<std::string, std::less<>> open;
  std::set<std::string, std::less<>> holders;
  for (Input& input : inputs_) {
    const ValueInfo& info = *input.declared;
    if (options.input_shapes.contains(std::string(info.name))) continue;
    if (!info.has_shape) {
      fail(ErrorCode::shape, "input " + quoted(info.name) + " has no shape in the file; give one with input_shapes={" +
                                 quoted(info.name) + ": (...)}");
    }
    auto* shape =
        static_cast<std::int64_t*>(arena_.allocate(std::max<std::size_t>(1, info.shape.size()) * sizeof(std::int64_t)));
    for (std::size_t axis = 0; axis < info.shape.size(); ++axis) {
      shape[axis] = input.shape[axis] >= 0 ? input.shape[axis] : dimension(info, axis);
      if (shape[axis] >= 0) continue;
      const Text symbol = symbol_of(info, axis);
      open.insert(symbol.empty() ? unnamed(info, axis) : std::string(symbol));
      holders.emplace(info.name);
    }
    input.shape = {shape, info.shape.size()};
  }
  if (open.empty()) return;
  std::string flags;
  std::string keys;
  for (const std::string& name : open) {
    if (flags.size() > 400) break;
    flags += (flags.empty() ? "--dim " : " --dim ") + escaped(name) + "=N";
    keys += (keys.empty() ? "" : ", ") + quoted(name) + ": N";
  }
  fail(ErrorCode::shape, "symbolic dimensions without a value: " + list(open) + " (of the inputs " + list(holders) +
                             "); set them with " + flags + " (dims={" + keys +
                             "}); --batch N sets the first one of an input");
}

std::optional<std::span<const std::int64_t>> InputShapes::resolve(const ValueInfo& info) const {
  if (stale_ || !info.has_shape) return std::nullopt;
  const auto fixed = [](std::int64_t d) { return d >= 0; };
  if (std::all_of(info.shape.begin(), info.shape.end(), fixed)) return info.shape;
  if (info.symbols.empty() || symbols_.empty()) return std::nullopt;
  auto* shape = static_cast<std::int64_t*>(arena_.allocate(info.shape.size() * sizeof(std::int64_t)));
  for (std::size_t axis = 0; axis < info.shape.size(); ++axis) {
    shape[axis] = dimension(info, axis);
    if (shape[axis] < 0) return std::nullopt;
  }
  return std::span<const std::int64_t>(shape, info.shape.size());
}

}  // namespace perfpass::onnx
