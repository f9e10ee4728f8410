// The arguments of main: their names, the symbols of their open sizes, the shapes that they are given.
#include <algorithm>

#include "perfpass/error.hpp"
#include "stablehlo/flattener.hpp"
#include "support/text.hpp"
#include "support/text_hash.hpp"

namespace perfpass::stablehlo {

void Flattener::declare(const Function& main) {
  const Region& region = g_.module.regions[main.region];
  if (region.arg_count != main.arguments.size()) {
    throw Error(ErrorCode::format, "main does not name its arguments; the MLIR text is damaged");
  }
  for (std::uint32_t i = 0; i < region.arg_count; ++i) {
    const Argument& declared = main.arguments[i];
    MainArgument argument;
    argument.name = escaped(g_.module.location_name(declared.location));
    const std::uint32_t type = g_.module.value_type[region.arg_begin + i];
    argument.symbols.resize(g_.types[type].dims.size());
    argument.value = g_.add_value(type);
    g_.values.back().argument = static_cast<std::int32_t>(i);
    env_[region.arg_begin + i] = static_cast<std::int32_t>(argument.value);
    g_.arguments.push_back(std::move(argument));
  }
  learn_names(region);
  std::set<std::string> used;
  for (std::uint32_t i = 0; i < region.arg_count; ++i) {
    MainArgument& argument = g_.arguments[i];
    if (argument.name.empty()) argument.name = escaped(main.arguments[i].name);
    if (!used.insert(argument.name).second) argument.name += "#" + std::to_string(i);
    used.insert(argument.name);
  }
  std::unordered_map<std::string_view, Value, TextHash> by_name;
  for (const MainArgument& argument : g_.arguments) by_name.emplace(argument.name, argument.value);
  for (const auto& [name, shape] : shapes_) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) throw Error(ErrorCode::argument, "the module has no input " + quoted(name));
    set_shape(name, shape, found->second);
  }
  if (lenient_) return;
  for (const MainArgument& argument : g_.arguments) {
    if (!is_open(g_.type(argument.value))) continue;
    throw Error(ErrorCode::shape, "input " + quoted(argument.name) + " has dimensions of open size; give its shape");
  }
}

void Flattener::learn_names(const Region& region) {
  std::unordered_map<ValueId, std::pair<ValueId, std::int64_t>> sizes;  // size -> argument, axis
  bool asserted = false;
  for (const std::uint32_t id : region.operations) {
    const Operation& op = g_.module.operations[id];
    const ValueId* in = g_.module.operands.data() + op.operand_begin;
    if (op.code == Code::get_dimension_size && op.operand_count == 1) {
      sizes[op.result_begin] = {in[0], integer(op, "dim", "dimension").value_or(0)};
    } else if (op.code == Code::convert && op.operand_count == 1 && sizes.contains(in[0])) {
      sizes[op.result_begin] = sizes[in[0]];
    } else if (op.code == Code::custom_call && !asserted && target_of(op) == "shape_assertion") {
      asserted = true;
      learn_symbols(op);
    } else if (op.code == Code::call) {
      const auto found = g_.module.function_by_name.find(callee(op));
      if (found == g_.module.function_by_name.end()) continue;
      const Function& f = g_.module.functions[found->second];
      for (std::uint32_t i = 0; i < std::min<std::size_t>(op.operand_count, f.arguments.size()); ++i) {
        learn_name(region, in[i], f.arguments[i], sizes);
      }
    }
  }
}

void Flattener::learn_symbols(const Operation& assertion) {
  std::string_view says = text(assertion, "error_message");
  const std::size_t begin = says.find("specifications: ");
  if (begin == std::string_view::npos) return;
  says = says.substr(begin, says.find(". Obtained", begin) - begin);
  std::size_t next = 0;
  for (MainArgument& argument : g_.arguments) {
    const Type& type = g_.type(argument.value);
    if (!is_open(type)) continue;
    const std::size_t open = says.find(" = (", next), close = says.find(')', open);
    if (open == std::string_view::npos || close == std::string_view::npos) return;
    next = close;
    std::string_view list = says.substr(open + 4, close - open - 4);
    for (std::size_t axis = 0; axis < type.dims.size(); ++axis) {
      const std::string_view size = list.substr(0, list.find(','));
      const bool name =
          !size.empty() && std::isalpha(static_cast<unsigned char>(size[0])) &&
          std::all_of(size.begin(), size.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
      if (name && type.dims[axis] == kOpen) argument.symbols[axis] = std::string(size);
      list.remove_prefix(std::min(list.size(), size.size() + 1));
      while (list.starts_with(' ')) list.remove_prefix(1);
    }
  }
}

void Flattener::learn_name(const Region& region, ValueId given, const Argument& inner,
                           const std::unordered_map<ValueId, std::pair<ValueId, std::int64_t>>& sizes) {
  const auto argument = [&](ValueId v) { return v >= region.arg_begin && v - region.arg_begin < region.arg_count; };
  if (argument(given)) {
    MainArgument& outer = g_.arguments[given - region.arg_begin];
    if (outer.name.empty()) outer.name = escaped(g_.module.location_name(inner.location));
    return;
  }
  const auto size = sizes.find(given);
  if (size == sizes.end() || !argument(size->second.first)) return;
  const std::string_view symbol = text_in(inner.attributes, "jax.global_constant");
  auto& symbols = g_.arguments[size->second.first - region.arg_begin].symbols;
  const std::int64_t axis = size->second.second;
  if (axis >= 0 && axis < static_cast<std::int64_t>(symbols.size())) symbols[axis] = escaped(symbol);
}

void Flattener::set_shape(const std::string& name, const std::vector<std::int64_t>& shape, Value value) {
  Type type = g_.type(value);
  bool fits = type.dims.size() == shape.size();
  for (std::size_t i = 0; fits && i < shape.size(); ++i) fits = type.dims[i] == kOpen || type.dims[i] == shape[i];
  if (!fits) {
    throw Error(ErrorCode::shape, "the module fixes the shape of input " + quoted(name) +
                                      "; export it with open sizes (jax.export.symbolic_shape) to change it");
  }
  type.dims = shape;
  g_.values[value].type = g_.add_type(std::move(type));
}

}  // namespace perfpass::stablehlo
