#include <algorithm>
#include <cmath>

#include "perfpass/error.hpp"
#include "stablehlo/flat.hpp"
#include "support/text.hpp"

namespace perfpass::stablehlo {

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

namespace {

constexpr std::int32_t kUnbound = -1;
constexpr double kMostPasses = 1e12;  // of nested loops

bool is_open(const Type& type) { return std::find(type.dims.begin(), type.dims.end(), kOpen) != type.dims.end(); }

bool is_integer(DType dtype) { return dtype >= DType::int8 && dtype <= DType::boolean; }

class Flattener {
 public:
  Flattener(Module&& module, const std::map<std::string, std::vector<std::int64_t>>& shapes,
            const StablehloLimits& limits, bool lenient)
      : shapes_(shapes), limits_(limits), lenient_(lenient) {
    g_.module = std::move(module);
    g_.types = g_.module.types;
    g_.ops.reserve(g_.module.operations.size());
    g_.values.reserve(g_.module.value_type.size());
    g_.operands.reserve(g_.module.operands.size());
    env_.assign(g_.module.value_type.size(), kUnbound);
  }

  FlatGraph run() {
    const Function& main = g_.module.main();
    declare(main);
    const Region& region = g_.module.regions[main.region];
    calls_.push_back(&main);
    g_.outputs = flatten_region(region, 1.0);
    for (const auto& note : notes_) g_.notes.push_back(note);
    return std::move(g_);
  }

 private:
  // -- arguments ------------------------------------------------------------------------------------------------------

  void declare(const Function& main) {
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
    for (const auto& [name, shape] : shapes_) set_shape(name, shape);
    if (lenient_) return;
    for (const MainArgument& argument : g_.arguments) {
      if (!is_open(g_.type(argument.value))) continue;
      throw Error(ErrorCode::shape, "input " + quoted(argument.name) + " has dimensions of open size; give its shape");
    }
  }

  /// jax.export wraps a function of open sizes: the inner one has the names, and its first arguments are the sizes.
  void learn_names(const Region& region) {
    std::unordered_map<ValueId, std::pair<ValueId, std::int64_t>> sizes;  // size -> argument, axis
    bool asserted = false;
    for (const std::uint32_t id : region.operations) {
      const Operation& op = g_.module.operations[id];
      const ValueId* in = g_.module.operands.data() + op.operand_begin;
      if (op.code == Code::get_dimension_size && op.operand_count == 1) {
        auto axis = integer(op, "dim");
        if (!axis) axis = integer(op, "dimension");
        sizes[op.result_begin] = {in[0], axis.value_or(0)};
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

  /// What jax.export asserts of the shapes: "...specifications: args[1].shape = (b, s),args[2].shape = (b, s).
  /// Obtained".
  void learn_symbols(const Operation& assertion) {
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

  void learn_name(const Region& region, ValueId given, const Argument& inner,
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

  void set_shape(const std::string& name, const std::vector<std::int64_t>& shape) {
    const auto found = std::find_if(g_.arguments.begin(), g_.arguments.end(),
                                    [&](const MainArgument& argument) { return argument.name == name; });
    if (found == g_.arguments.end()) {
      throw Error(ErrorCode::argument, "the module has no input " + quoted(name));
    }
    Type type = g_.type(found->value);
    bool fits = type.dims.size() == shape.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i) fits = type.dims[i] == kOpen || type.dims[i] == shape[i];
    if (!fits) {
      throw Error(ErrorCode::shape, "the module fixes the shape of input " + quoted(name) +
                                        "; export it with open sizes (jax.export.symbolic_shape) to change it");
    }
    type.dims = shape;
    g_.values[found->value].type = g_.add_type(std::move(type));
  }

  // -- regions --------------------------------------------------------------------------------------------------------

  Value bound(ValueId v) const {
    const std::int32_t value = env_[v];
    if (value == kUnbound) {
      throw Error(ErrorCode::format, "the MLIR text reads a value where it does not exist yet; the file is damaged");
    }
    return static_cast<Value>(value);
  }

  std::vector<Value> operands_of(const Operation& op) const {
    std::vector<Value> in(op.operand_count);
    for (std::uint32_t i = 0; i < op.operand_count; ++i) in[i] = bound(g_.module.operands[op.operand_begin + i]);
    return in;
  }

  void bind(const Operation& op, std::span<const Value> results) {
    if (results.size() != op.result_count) {
      throw Error(ErrorCode::format, std::string(op.name) + " names " + std::to_string(op.result_count) +
                                         " results, and " + std::to_string(results.size()) + " are made");
    }
    for (std::uint32_t i = 0; i < op.result_count; ++i)
      env_[op.result_begin + i] = static_cast<std::int32_t>(results[i]);
  }

  std::vector<Value> flatten_region(const Region& region, double repeat) {
    if (++depth_ > limits_.nesting) {
      throw Error(ErrorCode::limit, "calls and loops stand more than " + std::to_string(limits_.nesting) +
                                        " deep in one another; export the model with fewer nested functions");
    }
    std::vector<Value> results;
    for (const std::uint32_t id : region.operations) {
      if (++visited_ > 4 * limits_.nodes || g_.ops.size() > limits_.nodes) {
        throw Error(ErrorCode::limit, "the module has more than " + std::to_string(limits_.nodes) +
                                          " operators once its calls are inlined; predict a part of it");
      }
      const Operation& op = g_.module.operations[id];
      if (op.code == Code::return_) {
        results = operands_of(op);
        break;
      }
      flatten_operation(op, repeat);
    }
    --depth_;
    return results;
  }

  static std::string_view callee(const Operation& op) {
    if (!op.symbol.empty()) return op.symbol;
    std::string_view value = attribute(op, "callee");
    if (value.empty()) value = attribute(op, "decomposition");
    if (!value.starts_with('@')) return {};
    value.remove_prefix(1);
    if (value.starts_with('"')) return value.substr(1, value.find('"', 1) - 1);
    std::size_t size = 0;
    while (size < value.size() && (std::isalnum(static_cast<unsigned char>(value[size])) || value[size] == '_' ||
                                   value[size] == '.' || value[size] == '$' || value[size] == '-')) {
      ++size;
    }
    return value.substr(0, size);
  }

  void flatten_operation(const Operation& op, double repeat) {
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
          if (open != std::string_view::npos) index = std::atoi(std::string(op.attributes.substr(open + 1, 6)).c_str());
        }
        if (found == tuples_.end() || !index || *index < 0 ||
            *index >= static_cast<std::int64_t>(found->second.size())) {
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

  std::uint32_t result_type(const Operation& op, std::uint32_t i) const {
    return g_.module.value_type[op.result_begin + i];
  }

  void noted(const std::string& note) { notes_.insert(note); }

  /// One operator with its results, of known sizes; nothing where its integers are known already.
  void append(const Operation& op, Code code, double repeat) {
    const std::vector<Value> in = operands_of(op);
    if (code == Code::constant) {
      const Value made = g_.add_value(result_type(op, 0));
      FlatValue& value = g_.values[made];
      value.is_constant = true;
      value.constant = &op;
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
        throw Error(ErrorCode::shape,
                    "the size of a result of " + std::string(op.name) +
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

  /// Whether a value's integers are known now: it is a constant then.
  bool follow(Value v, Code code, const Operation& op, std::span<const Value> in) {
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

  void call(const Operation& op, std::string_view name, double repeat) {
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

  void composite(const Operation& op, double repeat) {
    std::string_view name = text(op, "name");
    if (name.empty()) {
      const std::size_t open = op.attributes.find('"');
      if (open != std::string_view::npos) {
        name = op.attributes.substr(open + 1, op.attributes.find('"', open + 1) - open - 1);
      }
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
    std::string_view inner = attribute(op, "decomposition");
    if (inner.starts_with('@')) inner.remove_prefix(1);
    std::size_t size = 0;
    while (size < inner.size() && inner[size] != ',' && inner[size] != '}' && inner[size] != ' ' &&
           inner[size] != ':') {
      ++size;
    }
    call(op, inner.substr(0, size), repeat);
  }

  /// Whether a call moves nothing and was bound.
  bool custom_call(const Operation& op) {
    const std::string_view target = target_of(op);
    if (target == "shape_assertion") return true;
    if (target == "Sharding" || target == "SPMDFullToShardShape" || target == "SPMDShardToFullShape" ||
        target == "annotate_device_placement" || target == "xla.sdy.FuncResultSharding" ||
        target == "LayoutConstraint" || target == "tf_io.out") {
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

  static std::string_view target_of(const Operation& op) {
    return op.symbol.empty() ? text(op, "call_target_name") : op.symbol;
  }

  // -- control flow ---------------------------------------------------------------------------------------------------

  const Operation* maker_in(const Region& region, ValueId v) const {
    for (const std::uint32_t id : region.operations) {
      const Operation& op = g_.module.operations[id];
      if (v >= op.result_begin && v < op.result_begin + op.result_count) return &op;
    }
    return nullptr;
  }

  const Operation* returned_by(const Region& region) const {
    if (region.operations.empty()) return nullptr;
    const Operation& last = g_.module.operations[region.operations.back()];
    return last.code == Code::return_ ? &last : nullptr;
  }

  /// What an integer scalar of a region is: a constant inside it, or a value from outside that is known.
  std::optional<std::int64_t> scalar(const Region& region, ValueId v, std::span<const Value> inits,
                                     const std::vector<bool>& same) const {
    if (v >= region.arg_begin && v < region.arg_begin + region.arg_count) {
      const std::uint32_t i = v - region.arg_begin;
      return same[i] ? known_scalar(inits[i]) : std::nullopt;
    }
    if (const Operation* op = maker_in(region, v)) {
      if (op->code != Code::constant || !is_integer(g_.types[result_type(*op, 0)].dtype)) return std::nullopt;
      const auto values = constant_integers(*op, 1, 1);
      return values ? std::optional((*values)[0]) : std::nullopt;
    }
    return env_[v] == kUnbound ? std::nullopt : known_scalar(static_cast<Value>(env_[v]));
  }

  std::optional<std::int64_t> known_scalar(Value v) const {
    const Integers* values = g_.known_of(v);
    return values != nullptr && values->size() == 1 ? std::optional((*values)[0]) : std::nullopt;
  }

  /// Passes of a loop that counts: i = a; while (i < b) i += c.
  std::optional<double> passes(const Region& condition, const Region& body, std::span<const Value> inits,
                               const std::vector<bool>& same) const {
    const Operation *ends = returned_by(condition), *next = returned_by(body);
    if (ends == nullptr || next == nullptr || ends->operand_count != 1) return std::nullopt;
    const Operation* test = maker_in(condition, g_.module.operands[ends->operand_begin]);
    if (test == nullptr || test->code != Code::compare || test->operand_count != 2) return std::nullopt;
    ValueId left = g_.module.operands[test->operand_begin], right = g_.module.operands[test->operand_begin + 1];
    const std::string_view how = test->attributes;
    const auto says = [&](std::string_view word) {
      const std::size_t at = how.find(word);
      return at != std::string_view::npos && (at == 0 || !std::isalnum(static_cast<unsigned char>(how[at - 1]))) &&
             (at + 2 >= how.size() || !std::isalnum(static_cast<unsigned char>(how[at + 2])));
    };
    const auto counts = [&](ValueId v) {
      return v >= condition.arg_begin && v < condition.arg_begin + condition.arg_count &&
             !same[v - condition.arg_begin];
    };
    bool less = says("LT") || says("LE");
    const bool equal = says("LE") || says("GE"), other = says("NE");
    if (!less && !other && !says("GT") && !says("GE")) return std::nullopt;
    if (!counts(left)) {
      std::swap(left, right);
      less = !less;
    }
    if (!counts(left)) return std::nullopt;
    const std::uint32_t k = left - condition.arg_begin;
    const auto bound = scalar(condition, right, inits, same), begin = known_scalar(inits[k]);
    const ValueId after = g_.module.operands[next->operand_begin + k], before = body.arg_begin + k;
    const Operation* step = maker_in(body, after);
    if (!bound || !begin || step == nullptr || step->operand_count != 2) return std::nullopt;
    ValueId a = g_.module.operands[step->operand_begin], b = g_.module.operands[step->operand_begin + 1];
    if (step->code == Code::add && b == before) std::swap(a, b);
    if (a != before || (step->code != Code::add && step->code != Code::subtract)) return std::nullopt;
    const auto by = scalar(body, b, inits, same);
    if (!by || *by == 0) return std::nullopt;
    const double stride = static_cast<double>(*by) * (step->code == Code::add ? 1.0 : -1.0);
    const double distance = static_cast<double>(*bound) - static_cast<double>(*begin);
    if (!other && less != (stride > 0)) return std::nullopt;
    const double count = equal ? std::floor(distance / stride) + 1 : std::ceil(distance / stride);
    return std::max(count, 0.0);
  }

  void loop(const Operation& op, double repeat) {
    if (op.region_count != 2) throw Error(ErrorCode::format, "a while has not its two regions; the file is damaged");
    const Region& condition = g_.module.regions[op.region_begin];
    const Region& body = g_.module.regions[op.region_begin + 1];
    const std::vector<Value> inits = operands_of(op);
    const Operation* next = returned_by(body);
    if (next == nullptr || next->operand_count != inits.size() || body.arg_count != inits.size() ||
        condition.arg_count != inits.size() || op.result_count != inits.size()) {
      throw Error(ErrorCode::format, "a while carries other values than it returns; the file is damaged");
    }
    std::vector<bool> same(inits.size());
    for (std::uint32_t i = 0; i < inits.size(); ++i) {
      same[i] = g_.module.operands[next->operand_begin + i] == body.arg_begin + i;
    }
    const std::optional<double> found = passes(condition, body, inits, same);
    if (!found) {
      noted("a while whose passes only values decide is counted once; its real cost is a multiple of that");
    } else if (*found == 0) {
      bind(op, inits);
      return;
    }
    const double times = repeat * found.value_or(1.0);
    if (times > kMostPasses) {
      throw Error(ErrorCode::limit, "loops of the module make more than 10^12 passes; check the bound of its while");
    }
    for (std::uint32_t i = 0; i < inits.size(); ++i) {
      Value v = inits[i];
      if (!same[i] && g_.values[v].known != kNobody) {  // another number in every pass
        FlatValue varying = g_.values[v];
        varying.known = kNobody;
        g_.values.push_back(varying);
        v = static_cast<Value>(g_.values.size() - 1);
      }
      env_[body.arg_begin + i] = static_cast<std::int32_t>(v);
    }
    bind(op, flatten_region(body, times));
  }

  /// Multiply-accumulates, then bytes written, of the operators from `begin` on.
  std::pair<double, double> work_from(std::size_t begin) const {
    double macs = 0, bytes = 0;
    for (std::size_t n = begin; n < g_.ops.size(); ++n) {
      const FlatOp& op = g_.ops[n];
      if (op.out_count == 0) continue;
      const double out = static_cast<double>(elements_of(g_.type(op.out_begin)));
      bytes += out * op.repeat * bits_of(g_.type(op.out_begin).dtype);
      if (op.in_count < 2) continue;
      const Type &left = g_.type(g_.in(op)[0]), &right = g_.type(g_.in(op)[1]);
      if (op.code == Code::dot_general || op.code == Code::dot) {
        macs += op.repeat *
                std::sqrt(out * static_cast<double>(elements_of(left)) * static_cast<double>(elements_of(right)));
      } else if (op.code == Code::convolution) {
        macs += op.repeat * out * static_cast<double>(elements_of(right));
      }
    }
    return {macs, bytes};
  }

  void branch(const Operation& op, double repeat) {
    const std::vector<Value> in = operands_of(op);
    if (in.empty() || op.region_count == 0) throw Error(ErrorCode::format, std::string(op.name) + " has no branches");
    if (const auto index = known_scalar(in[0])) {
      const std::int64_t last = op.region_count - 1;
      const std::int64_t taken = op.code == Code::if_          ? (*index != 0 ? 0 : 1)
                                 : *index < 0 || *index > last ? last
                                                               : *index;
      bind(op, flatten_region(g_.module.regions[op.region_begin + static_cast<std::uint32_t>(std::min(taken, last))],
                              repeat));
      return;
    }
    std::vector<std::pair<std::size_t, std::size_t>> parts;
    std::vector<std::vector<Value>> results;
    std::size_t heaviest = 0;
    std::pair<double, double> most{-1.0, -1.0};
    for (std::uint32_t r = 0; r < op.region_count; ++r) {
      const std::size_t begin = g_.ops.size();
      results.push_back(flatten_region(g_.module.regions[op.region_begin + r], repeat));
      parts.emplace_back(begin, g_.ops.size());
      if (const auto work = work_from(begin); work > most) {
        most = work;
        heaviest = r;
      }
    }
    for (std::size_t r = 0; r < parts.size(); ++r) {
      if (r == heaviest) continue;
      for (std::size_t n = parts[r].first; n < parts[r].second; ++n) g_.ops[n].repeat = 0.0;
    }
    noted("of a branch that only values decide, the part with the most work is counted; the others count 0 times");
    bind(op, results[heaviest]);
  }

  FlatGraph g_;
  const std::map<std::string, std::vector<std::int64_t>>& shapes_;
  const StablehloLimits& limits_;
  const bool lenient_;
  std::vector<std::int32_t> env_;  // by ValueId
  std::vector<const Function*> calls_;
  std::unordered_map<Value, std::vector<Value>> tuples_;
  std::set<std::string> notes_;
  int depth_ = 0;
  std::size_t visited_ = 0;
};

}  // namespace

FlatGraph flatten(Module&& module, const std::map<std::string, std::vector<std::int64_t>>& input_shapes,
                  const StablehloLimits& limits, bool lenient) {
  return Flattener(std::move(module), input_shapes, limits, lenient).run();
}

}  // namespace perfpass::stablehlo
