// Regions, calls and composites, one operator after the other.
#include <algorithm>
#include <array>

#include "perfpass/error.hpp"
#include "stablehlo/flattener.hpp"
#include "support/text.hpp"

namespace perfpass::stablehlo {
namespace {

constexpr std::size_t kMostReadings = 4;  // of the longest text, by calls of its functions

}  // namespace

std::int64_t elements_of(const Type& type) noexcept {
  std::int64_t product = 1;
  for (const std::int64_t dim : type.dims) {
    if (dim < 0) continue;
    if (__builtin_mul_overflow(product, dim, &product)) return std::int64_t{1} << 62;
  }
  return product;
}

std::uint32_t FlatGraph::add_type(Type type) {
  for (std::size_t t = types.size(); t-- > 0 && types.size() - t < 64;) {
    if (types[t] == type) return static_cast<std::uint32_t>(t);
  }
  types.push_back(std::move(type));
  return static_cast<std::uint32_t>(types.size() - 1);
}

FlatGraph Flattener::run() {
  const Function& main = g_.module.main();
  declare(main);
  const Region& region = g_.module.regions[main.region];
  calls_.push_back(&main);
  g_.outputs = flatten_region(region, 1.0);
  for (const auto& [text, counted_once] : notes_) g_.notes.push_back({text, counted_once});
  return std::move(g_);
}

Value Flattener::bound(ValueId v) const {
  const std::int32_t value = env_[v];
  if (value == kUnbound) {
    throw Error(ErrorCode::format, "the MLIR text reads a value where it does not exist yet; the file is damaged");
  }
  return static_cast<Value>(value);
}

std::vector<Value> Flattener::operands_of(const Operation& op) const {
  std::vector<Value> in(op.operand_count);
  for (std::uint32_t i = 0; i < op.operand_count; ++i) in[i] = bound(g_.module.operands[op.operand_begin + i]);
  return in;
}

void Flattener::bind(const Operation& op, std::span<const Value> results) {
  if (results.size() != op.result_count) {
    throw Error(ErrorCode::format, std::string(op.name) + " names " + std::to_string(op.result_count) +
                                       " results, and " + std::to_string(results.size()) + " are made");
  }
  for (std::uint32_t i = 0; i < op.result_count; ++i) env_[op.result_begin + i] = static_cast<std::int32_t>(results[i]);
}

std::vector<Value> Flattener::flatten_region(const Region& region, double repeat) {
  if (++depth_ > limits_.nesting) {
    throw Error(ErrorCode::limit, "calls and loops stand more than " + std::to_string(limits_.nesting) +
                                      " deep in one another; export the model with fewer nested functions");
  }
  std::vector<Value> results;
  for (const std::uint32_t id : region.operations) {
    const Operation& op = g_.module.operations[id];
    carried_ += std::size_t{op.operand_count} + op.result_count;
    letters_ += op.name.size() + op.attributes.size() + op.more_attributes.size() + op.location.size();
    if (letters_ > kMostReadings * limits_.text_bytes) {
      throw Error(ErrorCode::limit, "calls of the module repeat more than " +
                                        std::to_string(kMostReadings * limits_.text_bytes) +
                                        " bytes of its text; no exporter writes such a file");
    }
    if (++visited_ > 4 * limits_.nodes || carried_ > kMostValuesOfNode * limits_.nodes ||
        g_.ops.size() > limits_.nodes) {
      throw Error(ErrorCode::limit, "the module has more than " + std::to_string(limits_.nodes) +
                                        " operators once its calls are inlined; predict a part of it");
    }
    if (op.code == Code::return_) {
      results = operands_of(op);
      break;
    }
    flatten_operation(op, repeat);
  }
  --depth_;
  return results;
}

void Flattener::flatten_operation(const Operation& op, double repeat) {
  switch (op.code) {
    case Code::call:
      call(op, callee(op), repeat);
      return;
    case Code::composite:
      composite(op, repeat);
      return;
    case Code::while_:
      loop(op, repeat);
      return;
    case Code::if_:
    case Code::case_:
      branch(op, repeat);
      return;
    case Code::optimization_barrier:
      bind(op, operands_of(op));
      return;
    case Code::sharding_constraint:
      noted("sharding annotations are left out: the figures are those of one device with the whole model");
      [[fallthrough]];
    case Code::add_dependency:
    case Code::domain: {
      const std::vector<Value> in = operands_of(op);
      if (in.empty()) break;
      bind(op, std::span(in).first(1));
      return;
    }
    case Code::tuple: {
      const Value made = g_.add_value(result_type(op, 0));
      tuples_[made] = operands_of(op);
      bind(op, std::array{made});
      return;
    }
    case Code::get_tuple_element: {
      const std::vector<Value> in = operands_of(op);
      const auto found = in.empty() ? tuples_.end() : tuples_.find(in[0]);
      auto index = integer(op, "index");
      if (!index) {
        const std::size_t open = op.attributes.rfind('[');
        const Integers listed = integers_in(op.attributes.substr(std::min(open, op.attributes.size())));
        if (!listed.empty()) index = listed[0];
      }
      if (found == tuples_.end() || !index || *index < 0 || *index >= static_cast<std::int64_t>(found->second.size())) {
        break;
      }
      bind(op, std::array{found->second[static_cast<std::size_t>(*index)]});
      return;
    }
    case Code::custom_call:
      if (custom_call(op)) return;
      break;
    case Code::mesh:
      return;
    default:
      break;
  }
  append(op, op.code, repeat);
}

std::uint32_t Flattener::result_type(const Operation& op, std::uint32_t i) const {
  if (i >= op.result_count)
    throw Error(ErrorCode::format, std::string(op.name) + " has no result; the file is damaged");
  return g_.module.value_type[op.result_begin + i];
}

void Flattener::append(const Operation& op, Code code, double repeat) {
  const std::vector<Value> in = operands_of(op);
  if (code == Code::constant) {
    const Value made = g_.add_value(result_type(op, 0));
    FlatValue& value = g_.values[made];
    value.is_constant = true;
    value.constant = &op;
    if (const auto number = constant_number(op, g_.type(made).dtype)) {
      value.is_number = true;
      value.number = *number;
    }
    follow(made, code, op, in);
    if (op.result_count == 1) env_[op.result_begin] = static_cast<std::int32_t>(made);
    return;
  }
  std::vector<Type> types(op.result_count);
  bool open = false;
  for (std::uint32_t i = 0; i < op.result_count; ++i) {
    types[i] = g_.types[result_type(op, i)];
    open = open || is_open(types[i]);
  }
  if (open) infer(g_, code, op, in, types);
  std::vector<Value> results(op.result_count);
  for (std::uint32_t i = 0; i < op.result_count; ++i) {
    if (!lenient_ && is_open(types[i])) {
      throw Error(ErrorCode::shape, "the size of a result of " + std::string(op.name) +
                                        " does not follow from the inputs' shapes; export the model with fixed sizes");
    }
    results[i] = g_.add_value(open ? g_.add_type(types[i]) : result_type(op, i));
  }
  bind(op, results);
  if (op.result_count == 1 && follow(results[0], code, op, in)) return;
  FlatOp made{.code = code, .at = &op, .repeat = repeat};
  g_.set_operands(made, in);
  made.out_begin = results.empty() ? 0 : results[0];
  made.out_count = op.result_count;
  for (const Value v : results) g_.values[v].maker = static_cast<std::int32_t>(g_.ops.size());
  g_.ops.push_back(made);
}

bool Flattener::follow(Value v, Code code, const Operation& op, std::span<const Value> in) {
  const Type& type = g_.type(v);
  if (!type.is_tensor || !is_integer(type.dtype) || is_open(type)) return false;
  if (elements_of(type) > static_cast<std::int64_t>(limits_.known_elements)) return false;
  std::optional<Integers> values = evaluate(g_, code, op, in, type, limits_.known_elements);
  if (!values) return false;
  g_.values[v].known = static_cast<std::int32_t>(g_.known.size());
  g_.values[v].is_constant = true;
  g_.known.push_back(std::move(*values));
  return true;
}

void Flattener::call(const Operation& op, std::string_view name, double repeat) {
  const auto found = g_.module.function_by_name.find(name);
  if (found == g_.module.function_by_name.end()) {
    throw Error(ErrorCode::format, "the module calls " + quoted(name) + ", which it does not have");
  }
  const Function& f = g_.module.functions[found->second];
  if (!f.has_body) {
    append(op, Code::other, repeat);
    return;
  }
  if (std::find(calls_.begin(), calls_.end(), &f) != calls_.end()) {
    throw Error(ErrorCode::unsupported, "function " + quoted(name) + " calls itself; nothing says how often");
  }
  const Region& region = g_.module.regions[f.region];
  const std::vector<Value> in = operands_of(op);
  if (in.size() != region.arg_count) {
    throw Error(ErrorCode::format, "a call of " + quoted(name) + " has " + std::to_string(in.size()) +
                                       " operands, and the function " + std::to_string(region.arg_count));
  }
  for (std::uint32_t i = 0; i < region.arg_count; ++i) env_[region.arg_begin + i] = static_cast<std::int32_t>(in[i]);
  calls_.push_back(&f);
  const std::vector<Value> results = flatten_region(region, repeat);
  calls_.pop_back();
  bind(op, results);
}

void Flattener::composite(const Operation& op, double repeat) {
  std::string_view name = text(op, "name");
  if (name.empty()) {
    const std::size_t open = op.attributes.find('"');
    if (open != std::string_view::npos) name = TextCursor(op.attributes, open).string();
  }
  struct Known {
    std::string_view name;
    Code code;
  };
  static constexpr Known kKnown[] = {{"gelu", Code::gelu_},
                                     {"softmax", Code::softmax_},
                                     {"erf", Code::erf},
                                     {"erf_inv", Code::erf_inv},
                                     {"erfc", Code::erfc},
                                     {"top_k", Code::top_k},
                                     {"tan", Code::tan},
                                     {"acos", Code::acos},
                                     {"square", Code::square},
                                     {"silu", Code::silu_},
                                     {"hardswish", Code::hard_swish_},
                                     {"scaled_dot_product_attention", Code::attention_}};
  for (const Known& known : kKnown) {
    const std::size_t at = name.find(known.name);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = name.substr(at + known.name.size());
    if ((at > 0 && name[at - 1] != '.' && name[at - 1] != '_') || (!rest.empty() && rest[0] != '.')) continue;
    append(op, known.code, repeat);
    return;
  }
  call(op, symbol_of(op, "decomposition"), repeat);
}

bool Flattener::custom_call(const Operation& op) {
  const std::string_view target = target_of(op);
  if (target == "shape_assertion") return true;
  if (target == "Sharding" || target == "SPMDFullToShardShape" || target == "SPMDShardToFullShape" ||
      target == "annotate_device_placement" || target == "xla.sdy.FuncResultSharding" || target == "LayoutConstraint" ||
      target == "tf_io.out") {
    const std::vector<Value> in = operands_of(op);
    if (in.size() != 1 || op.result_count != 1) return false;
    if (target.find("hard") != std::string_view::npos) {
      noted("sharding annotations are left out: the figures are those of one device with the whole model");
    }
    bind(op, in);
    return true;
  }
  return false;
}

FlatGraph flatten(Module&& module, const std::map<std::string, std::vector<std::int64_t>>& input_shapes,
                  const StablehloLimits& limits, bool lenient) {
  return Flattener(std::move(module), input_shapes, limits, lenient).run();
}

}  // namespace perfpass::stablehlo
