// MLIR text to a Module. Types are read once for each way of writing them; attributes stay text until they are asked
// for (attributes.hpp).
#include <array>
#include <limits>
#include <utility>

#include "stablehlo/module.hpp"
#include "stablehlo/text_cursor.hpp"

namespace perfpass::stablehlo {
namespace {

constexpr std::uint32_t kUnset = std::numeric_limits<std::uint32_t>::max();
constexpr std::array<std::string_view, 7> kDialects = {"stablehlo", "mhlo", "chlo", "func", "builtin", "sdy", "arith"};

DType element_type(std::string_view text) noexcept {
  struct Entry {
    std::string_view name;
    DType dtype;
  };
  static constexpr Entry kElements[] = {{"f32", DType::float32},
                                        {"bf16", DType::bfloat16},
                                        {"f16", DType::float16},
                                        {"f64", DType::float64},
                                        {"i1", DType::boolean},
                                        {"i4", DType::int4},
                                        {"ui4", DType::uint4},
                                        {"i8", DType::int8},
                                        {"ui8", DType::uint8},
                                        {"i16", DType::int16},
                                        {"ui16", DType::uint16},
                                        {"i32", DType::int32},
                                        {"ui32", DType::uint32},
                                        {"i64", DType::int64},
                                        {"ui64", DType::uint64},
                                        {"index", DType::int64},
                                        {"si4", DType::int4},
                                        {"si8", DType::int8},
                                        {"si16", DType::int16},
                                        {"si32", DType::int32},
                                        {"si64", DType::int64},
                                        {"u8", DType::uint8},
                                        {"complex<f32>", DType::complex64},
                                        {"complex<f64>", DType::complex128}};
  for (const Entry& entry : kElements) {
    if (entry.name == text) return entry.dtype;
  }
  if (text.starts_with("f8")) return DType::float8;
  if (text.starts_with("f4")) return DType::float4;
  return DType::undefined;
}

class Parser {
 public:
  Parser(std::string_view text, const StablehloLimits& limits) : c_(text), limits_(limits) {
    m_.operations.reserve(text.size() / 160);
    m_.value_type.reserve(text.size() / 140);
  }

  Module run() {
    while (top_level()) {
    }
    if (m_.functions.empty()) c_.fail("a function (func.func)");
    for (std::uint32_t f = 0; f < m_.functions.size(); ++f) {
      if (!m_.function_by_name.emplace(m_.functions[f].name, f).second) {
        throw Error(ErrorCode::format, "two functions are called " + quoted(m_.functions[f].name) + " in the module");
      }
    }
    return std::move(m_);
  }

 private:
  struct Pending {
    std::string_view name;
    std::uint32_t count;
  };

  // -- top level ------------------------------------------------------------------------------------------------------

  /// One thing of a module, or the end of one; false at the end of the text.
  bool top_level() {
    c_.space();
    if (c_.at_end() || c_.eat("{-#")) return false;  // resources: weights as hexadecimal text
    if (c_.peek() == '}' && open_modules_ > 0) {
      c_.step();
      --open_modules_;
      skip_location();
      return true;
    }
    if (c_.peek() == '#' || c_.peek() == '!') {
      alias();
      return true;
    }
    if (c_.peek() == '"') return generic_top_level();
    const std::string_view name = c_.word();
    if (name == "module" || name == "builtin.module") {
      if (++open_modules_ > limits_.nesting) too_deep();
      c_.space();
      if (c_.eat("@")) c_.symbol();
      if (c_.eat_word("attributes")) {
        c_.space();
        c_.balanced();
      }
      c_.need("{");
    } else if (name == "func.func" || name == "func") {
      function();
    } else if (name == "sdy.mesh") {
      c_.need("@");
      c_.symbol();
      c_.need("=");
      c_.space();
      c_.balanced();
      skip_location();
    } else if (name.empty()) {
      c_.fail("a module or a function");
    } else {
      refuse(name);
    }
    return true;
  }

  bool generic_top_level() {
    const std::string_view name = c_.string();
    if (name == "builtin.module") {
      if (++generic_modules_ > 1) refuse("a module within a module");
      c_.need("(");
      c_.need(")");
      c_.space();
      if (c_.peek() == '<') c_.balanced();
      c_.need("(");
      c_.need("{");
      c_.space();
      if (c_.peek() == '^') block_header(nullptr);
      while (!c_.eat("}")) {
        if (!top_level()) c_.fail("the end of the module");
      }
      c_.need(")");
      c_.space();
      if (c_.peek() == '{') c_.balanced();
      c_.need(":");
      c_.need("(");
      c_.need(")");
      c_.need("->");
      c_.need("(");
      c_.need(")");
      skip_location();
      --generic_modules_;
      return true;
    }
    if (name == "sdy.mesh") {
      c_.need("(");
      c_.need(")");
      c_.space();
      if (c_.peek() == '<') c_.balanced();
      c_.need(":");
      c_.need("(");
      c_.need(")");
      c_.need("->");
      c_.need("(");
      c_.need(")");
      skip_location();
      return true;
    }
    if (name != "func.func") refuse(name);
    generic_function();
    return true;
  }

  void alias() {
    const std::size_t begin = c_.place();
    c_.step();
    c_.word();
    const std::string_view name = c_.from(begin);
    c_.need("=");
    c_.space();
    if (c_.eat("loc")) {
      m_.location_by_alias.emplace(name, within(c_.balanced()));
      return;
    }
    if (c_.peek() == '#' || c_.peek() == '!') c_.step();
    c_.word();
    if (c_.peek() == '<') c_.balanced();
    if (c_.peek() == '{' || c_.peek() == '(') c_.balanced();
  }

  static std::string_view within(std::string_view brackets) { return brackets.substr(1, brackets.size() - 2); }

  std::string_view skip_location() {
    c_.space();
    if (c_.peek() != 'l' || c_.peek(1) != 'o' || c_.peek(2) != 'c' || c_.peek(3) != '(') return {};
    c_.step(3);
    return within(c_.balanced());
  }

  // -- functions ------------------------------------------------------------------------------------------------------

  void begin_function() {
    named_.clear();
    numbered_.clear();
  }

  void function() {
    begin_function();
    Function f;
    if (c_.eat_word("private")) f.is_public = false;
    if (c_.eat_word("nested")) f.is_public = false;
    c_.eat_word("public");
    c_.need("@");
    f.name = c_.symbol();
    c_.need("(");
    Region region;
    region.arg_begin = next_value();
    while (!c_.eat(")")) {
      if (!f.arguments.empty()) c_.need(",");
      c_.space();
      Argument argument;
      if (c_.peek() != '%') {  // a declaration names types alone
        type();
        f.arguments.push_back(argument);
        c_.space();
        if (c_.peek() == '{') c_.balanced();
        continue;
      }
      argument.name = value_name();
      c_.need(":");
      define(argument.name, type());
      c_.space();
      if (c_.peek() == '{') argument.attributes = c_.balanced();
      argument.location = skip_location();
      f.arguments.push_back(argument);
    }
    if (c_.eat("->")) {
      c_.space();
      if (c_.peek() == '(') {
        c_.balanced();
      } else {
        type();
      }
    }
    if (c_.eat_word("attributes")) {
      c_.space();
      c_.balanced();
    }
    region.arg_count = static_cast<std::uint32_t>(f.arguments.size());
    c_.space();
    if (c_.peek() == '{') {
      f.has_body = true;
      f.region = add_region(std::move(region));
      body(f.region, false);
    }
    skip_location();
    m_.functions.push_back(f);
  }

  void generic_function() {
    begin_function();
    Function f;
    c_.need("(");
    c_.need(")");
    c_.space();
    const std::string_view properties = c_.peek() == '<' ? c_.balanced() : std::string_view();
    c_.need("(");
    c_.space();
    Region region;
    region.arg_begin = next_value();
    f.region = add_region(std::move(region));
    f.has_body = true;
    generic_arguments_ = &f.arguments;
    body(f.region, true);
    generic_arguments_ = nullptr;
    c_.need(")");
    c_.space();
    const std::string_view attributes = c_.peek() == '{' ? c_.balanced() : std::string_view();
    c_.need(":");
    c_.space();
    c_.balanced();
    c_.need("->");
    c_.space();
    c_.balanced();
    skip_location();
    for (const std::string_view text : {properties, attributes}) {
      if (const std::size_t at = text.find("sym_name = \""); at != std::string_view::npos) {
        TextCursor name(text, at + 11);
        f.name = name.string();
      }
      if (text.find("sym_visibility = \"private\"") != std::string_view::npos) f.is_public = false;
    }
    m_.functions.push_back(std::move(f));
  }

  // -- regions --------------------------------------------------------------------------------------------------------

  std::uint32_t add_region(Region&& region) {
    m_.regions.push_back(std::move(region));
    return static_cast<std::uint32_t>(m_.regions.size() - 1);
  }

  [[noreturn]] void too_deep() const {
    throw Error(ErrorCode::limit, "the module nests regions more than " + std::to_string(limits_.nesting) +
                                      " deep; no exporter writes such a file");
  }

  /// { operations }; `with_header`: a ^bb0(...) line may come first.
  void body(std::uint32_t region, bool with_header) {
    if (++depth_ > limits_.nesting) too_deep();
    c_.need("{");
    c_.space();
    if (with_header && c_.peek() == '^') block_header(&m_.regions[region]);
    std::vector<std::uint32_t> operations;
    for (;;) {
      c_.space();
      if (c_.peek() == '}') break;
      if (c_.at_end()) c_.fail("the end of a region");
      if (c_.peek() == '^') {
        throw Error(ErrorCode::unsupported,
                    "the module has blocks that branch to one another; StableHLO has one block a region: lower to it");
      }
      operations.push_back(operation());
    }
    c_.step();
    m_.regions[region].operations = std::move(operations);
    --depth_;
  }

  void block_header(Region* region) {
    c_.step();
    c_.word();
    c_.space();
    if (c_.peek() == '(') {
      c_.step();
      const ValueId begin = next_value();
      while (!c_.eat(")")) {
        c_.eat(",");
        c_.space();
        Argument argument;
        argument.name = value_name();
        c_.need(":");
        define(argument.name, type());
        argument.location = skip_location();
        if (generic_arguments_ != nullptr && depth_ == 1) generic_arguments_->push_back(argument);
      }
      if (region != nullptr) {
        region->arg_begin = begin;
        region->arg_count = next_value() - begin;
      }
    }
    c_.need(":");
  }

  // -- values ---------------------------------------------------------------------------------------------------------

  ValueId next_value() const noexcept { return static_cast<ValueId>(m_.value_type.size()); }

  std::string_view value_name() {
    if (c_.peek() != '%') c_.fail("a value (%name)");
    c_.step();
    const std::size_t begin = c_.place();
    while (is_word(c_.peek()) || c_.peek() == '-') c_.step();
    const std::string_view name = c_.from(begin);
    if (name.empty()) c_.fail("the name of a value");
    return name;
  }

  /// The number of a name such as "123"; kUnset for another.
  static std::uint32_t number(std::string_view name) noexcept {
    if (name.size() > 7) return kUnset;
    std::uint32_t n = 0;
    for (const char c : name) {
      if (c < '0' || c > '9') return kUnset;
      n = n * 10 + static_cast<std::uint32_t>(c - '0');
    }
    return n;
  }

  void bind(std::string_view name, ValueId value) {
    const std::uint32_t n = number(name);
    if (n == kUnset || n > next_value() + 1024) {
      named_[name] = value;
      return;
    }
    if (n >= numbered_.size()) numbered_.resize(std::max<std::size_t>(n + 1, numbered_.size() * 2), kUnset);
    numbered_[n] = value;
  }

  ValueId define(std::string_view name, std::uint32_t type) {
    const ValueId value = next_value();
    m_.value_type.push_back(type);
    bind(name, value);
    return value;
  }

  ValueId operand() {
    const std::string_view name = value_name();
    const std::uint32_t n = number(name);
    ValueId value = n < numbered_.size() ? numbered_[n] : kUnset;
    if (value == kUnset) {
      const auto found = named_.find(name);
      if (found == named_.end()) {
        throw Error(ErrorCode::format, "the MLIR text reads %" + escaped(name.substr(0, 40)) + " before it is defined");
      }
      value = found->second;
    }
    if (c_.peek() == '#') {
      c_.step();
      const std::uint32_t of = number(c_.word());
      if (of == kUnset || value + of >= next_value()) c_.fail("the number of a result");
      value += of;
    }
    return value;
  }

  // -- types ----------------------------------------------------------------------------------------------------------

  std::uint32_t type() {
    c_.space();
    const std::size_t begin = c_.place();
    if (c_.peek() == '!') c_.step();
    c_.word();
    if (c_.place() == begin) c_.fail("a type");
    if (c_.peek() == '<') c_.balanced();
    const std::string_view text = c_.from(begin);
    const auto [found, is_new] = type_ids_.emplace(text, static_cast<std::uint32_t>(m_.types.size()));
    if (is_new) m_.types.push_back(read_type(text));
    return found->second;
  }

  Type read_type(std::string_view text) const {
    Type result;
    if (!text.starts_with("tensor<")) {
      result.dtype = element_type(text);
      return result;
    }
    result.is_tensor = true;
    std::string_view rest = text.substr(7, text.size() - 8);
    if (rest.starts_with("*")) {
      throw Error(ErrorCode::unsupported, "the module has tensors of unknown rank (" + quoted(text) +
                                              "); export it with the ranks of its inputs");
    }
    for (;;) {
      std::int64_t size = 0;
      std::size_t used = 0;
      if (rest.starts_with("?x")) {
        size = kOpen;
        used = 1;
      } else {
        while (used < rest.size() && rest[used] >= '0' && rest[used] <= '9') {
          if (size > kMaxElements) {
            throw Error(ErrorCode::limit, "a tensor type " + quoted(text) + " passes 2^48 elements");
          }
          size = size * 10 + (rest[used++] - '0');
        }
        if (used == 0 || used >= rest.size() || rest[used] != 'x') break;
      }
      result.dims.push_back(size);
      rest.remove_prefix(used + 1);
      if (result.dims.size() > kMaxRank) {
        throw Error(ErrorCode::limit,
                    "a tensor type " + quoted(text) + " of more than " + std::to_string(kMaxRank) + " dimensions");
      }
    }
    if (rest.starts_with("!quant.uniform<")) {
      result.quantized = true;
      rest.remove_prefix(15);
      rest = rest.substr(0, rest.find_first_of(":<,>"));
    } else if (const std::size_t comma = rest.find(','); comma != std::string_view::npos) {
      rest = rest.substr(0, comma);
    }
    result.dtype = element_type(rest);
    return result;
  }

  // -- operations -----------------------------------------------------------------------------------------------------

  [[noreturn]] static void refuse(std::string_view name) {
    const std::string dialect(name.substr(0, name.find('.')));
    throw Error(ErrorCode::unsupported,
                "the module has " + quoted(name) + " of MLIR's dialect " + escaped(dialect.substr(0, 40)) +
                    "; StableHLO, MHLO and CHLO are read: pass the StableHLO of the model (jax.export, or what "
                    "torch_xla and TensorFlow export), not a form lowered from it");
  }

  static Code code_with_dialect(std::string_view name) {
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos) {
      const Code code = code_of(name);
      if (code == Code::call || code == Code::return_) return code;
      refuse(name);
    }
    const std::string_view dialect = name.substr(0, dot);
    if (std::find(kDialects.begin(), kDialects.end(), dialect) == kDialects.end()) refuse(name);
    if (dialect == "sdy" && name.find("sharding") == std::string_view::npos && name != "sdy.return") {
      throw Error(ErrorCode::unsupported, "the module has " + quoted(name) +
                                              ", work of one device of several; export the model for one device");
    }
    return code_of(name.substr(dot + 1));
  }

  std::uint32_t operation() {
    std::vector<Pending> pending;
    if (c_.peek() == '%') {
      do {
        c_.space();
        Pending one{value_name(), 1};
        if (c_.peek() == ':') {
          c_.step();
          one.count = number(c_.word());
          if (one.count == 0 || one.count > 100'000) c_.fail("a number of results");
        }
        pending.push_back(one);
      } while (c_.eat(","));
      c_.need("=");
      c_.space();
    }
    if (m_.operations.size() >= limits_.nodes) {
      throw Error(ErrorCode::limit, "the module has more than " + std::to_string(limits_.nodes) + " operations");
    }
    Operation op;
    const std::size_t stack = stack_.size();
    if (c_.peek() == '"') {
      generic(op, pending, stack);
    } else {
      pretty(op, pending, stack);
    }
    if (const std::string_view location = skip_location(); !location.empty()) op.location = location;
    m_.operations.push_back(op);
    return static_cast<std::uint32_t>(m_.operations.size() - 1);
  }

  void take_operands(Operation& op, std::size_t stack) {
    op.operand_begin = static_cast<std::uint32_t>(m_.operands.size());
    op.operand_count = static_cast<std::uint32_t>(stack_.size() - stack);
    m_.operands.insert(m_.operands.end(), stack_.begin() + static_cast<std::ptrdiff_t>(stack), stack_.end());
    stack_.resize(stack);
  }

  void take_regions(Operation& op, const std::vector<std::uint32_t>& ids) {
    // Regions of one operation stand next to one another; those inside them came before.
    op.region_begin = static_cast<std::uint32_t>(m_.regions.size());
    op.region_count = static_cast<std::uint32_t>(ids.size());
    for (const std::uint32_t id : ids) {
      Region moved = std::move(m_.regions[id]);
      m_.regions.push_back(std::move(moved));
    }
  }

  void define_results(Operation& op, const std::vector<Pending>& pending, const std::vector<std::uint32_t>& types) {
    std::size_t count = 0;
    for (const Pending& one : pending) count += one.count;
    if (types.empty() ? count > 0 : types.size() < count && types.size() != 1) c_.fail("a type for every result");
    op.result_begin = next_value();
    op.result_count = static_cast<std::uint32_t>(count);
    // Fewer results than types: select names the predicate's first, and the result's is the last.
    const std::size_t skipped = types.size() > count ? types.size() - count : 0;
    for (std::size_t i = 0; i < count; ++i) {
      m_.value_type.push_back(types.size() == 1 ? types[0] : types[skipped + i]);
    }
    ValueId value = op.result_begin;
    for (const Pending& one : pending) {
      bind(one.name, value);
      value += one.count;
    }
  }

  /// What stands behind the colon; the types of the results.
  std::vector<std::uint32_t> result_types() {
    c_.space();
    std::vector<std::uint32_t> types;
    if (c_.peek() == '(') {
      const std::size_t begin = c_.place();
      c_.balanced();
      if (!c_.eat("->")) {
        c_.go(begin);
        return listed_types();
      }
      return listed_types();
    }
    types.push_back(type());
    while (c_.eat(",")) types.push_back(type());
    return c_.eat("->") ? listed_types() : types;
  }

  std::vector<std::uint32_t> listed_types() {
    std::vector<std::uint32_t> types;
    if (!c_.eat("(")) return {type()};
    while (!c_.eat(")")) {
      if (!types.empty()) c_.need(",");
      types.push_back(type());
      c_.space();
      if (c_.peek() == '{') c_.balanced();
    }
    return types;
  }

  void generic(Operation& op, const std::vector<Pending>& pending, std::size_t stack) {
    op.name = c_.string();
    op.code = code_with_dialect(op.name);
    c_.need("(");
    while (!c_.eat(")")) {
      if (stack_.size() > stack) c_.need(",");
      c_.space();
      stack_.push_back(operand());
    }
    take_operands(op, stack);
    c_.space();
    if (c_.peek() == '[') {
      throw Error(ErrorCode::unsupported, quoted(op.name) + " branches to other blocks; lower the module to StableHLO");
    }
    if (c_.peek() == '<') {
      op.attributes = c_.balanced();
      c_.space();
    }
    if (c_.peek() == '(') {
      c_.step();
      std::vector<std::uint32_t> ids;
      while (!c_.eat(")")) {
        if (!ids.empty()) c_.need(",");
        const std::uint32_t id = add_region({});
        body(id, true);
        ids.push_back(id);
      }
      take_regions(op, ids);
      c_.space();
    }
    if (c_.peek() == '{') op.more_attributes = c_.balanced();
    c_.need(":");
    c_.space();
    if (c_.peek() != '(') c_.fail("the types of the operands");
    define_results(op, pending, result_types());
  }

  void pretty(Operation& op, const std::vector<Pending>& pending, std::size_t stack) {
    op.name = c_.word();
    if (op.name.empty()) c_.fail("an operation");
    op.code = code_with_dialect(op.name);
    const std::size_t begin = c_.place();
    if (op.code == Code::while_) {
      pretty_while(op, pending, stack);
      return;
    }
    if (op.code == Code::return_) {
      c_.space();
      if (c_.peek() != '%') return;
    }
    std::size_t nested = 0;
    for (bool done = false; !done;) {
      switch (c_.peek()) {
        case '\0':
          c_.fail("the type of an operation");
        case '"':
          c_.string();
          continue;
        case '%':
          stack_.push_back(operand());
          continue;
        case '@':
          c_.step();
          if (op.symbol.empty()) {
            op.symbol = c_.symbol();
          } else {
            c_.symbol();
          }
          continue;
        case '(':
        case '[':
        case '{':
        case '<':
          ++nested;
          break;
        case '-':
          if (c_.peek(1) == '>') c_.step();
          break;
        case ')':
        case ']':
        case '}':
        case '>':
          if (nested-- == 0) c_.fail("the type of an operation");
          break;
        case ':':
          done = nested == 0;
          break;
        default:
          break;
      }
      c_.step();
    }
    op.attributes = c_.from(begin);
    if (op.code == Code::reduce) {  // (%a init: %b), (%c init: %d): inputs come first
      std::vector<ValueId> inputs, inits;
      for (std::size_t i = stack; i < stack_.size(); ++i) ((i - stack) % 2 == 0 ? inputs : inits).push_back(stack_[i]);
      std::copy(inputs.begin(), inputs.end(), stack_.begin() + static_cast<std::ptrdiff_t>(stack));
      std::copy(inits.begin(), inits.end(), stack_.end() - static_cast<std::ptrdiff_t>(inits.size()));
    }
    take_operands(op, stack);
    const std::vector<std::uint32_t> types = result_types();
    if (op.code == Code::reduce && c_.eat_word("reducer")) {
      const std::uint32_t id = add_region({});
      const ValueId first = next_value();
      c_.space();
      while (c_.peek() == '(') {
        c_.step();
        while (!c_.eat(")")) {
          c_.eat(",");
          c_.space();
          const std::string_view name = value_name();
          c_.need(":");
          define(name, type());
          skip_location();
        }
        c_.space();
      }
      m_.regions[id].arg_begin = first;
      m_.regions[id].arg_count = next_value() - first;
      body(id, false);
      take_regions(op, {id});
    }
    define_results(op, pending, types);
  }

  /// while(%name = %init, ...) : types cond {...} do {...}
  void pretty_while(Operation& op, const std::vector<Pending>& pending, std::size_t stack) {
    std::vector<std::string_view> names;
    c_.need("(");
    while (!c_.eat(")")) {
      if (!names.empty()) c_.need(",");
      c_.space();
      names.push_back(value_name());
      c_.need("=");
      c_.space();
      stack_.push_back(operand());
    }
    take_operands(op, stack);
    c_.need(":");
    const std::vector<std::uint32_t> types = result_types();
    if (types.size() != names.size()) c_.fail("as many types as values of a while");
    if (c_.eat_word("attributes")) {
      c_.space();
      op.more_attributes = c_.balanced();
    }
    std::vector<std::uint32_t> ids;
    for (const std::string_view keyword : {"cond", "do"}) {
      if (!c_.eat_word(keyword)) c_.fail("'" + std::string(keyword) + "'");
      Region region;
      region.arg_begin = next_value();
      region.arg_count = static_cast<std::uint32_t>(names.size());
      for (std::size_t i = 0; i < names.size(); ++i) define(names[i], types[i]);
      const std::uint32_t id = add_region(std::move(region));
      body(id, false);
      ids.push_back(id);
    }
    take_regions(op, ids);
    define_results(op, pending, types);
  }

  TextCursor c_;
  const StablehloLimits& limits_;
  Module m_;
  std::unordered_map<std::string_view, std::uint32_t> type_ids_;
  std::unordered_map<std::string_view, ValueId> named_;
  std::vector<ValueId> numbered_;
  std::vector<ValueId> stack_;  // operands of the operations that are being read
  std::vector<Argument>* generic_arguments_ = nullptr;
  int depth_ = 0, open_modules_ = 0, generic_modules_ = 0;
};

}  // namespace

Module parse(std::string_view text, const StablehloLimits& limits) {
  if (text.size() > limits.text_bytes) {
    throw Error(ErrorCode::limit, "an MLIR text of " + std::to_string(text.size()) + " bytes; at most " +
                                      std::to_string(limits.text_bytes) +
                                      " are read: print it with its constants elided (large_elements_limit)");
  }
  return Parser(text, limits).run();
}

std::string_view Module::location_name(std::string_view location) const {
  for (int hops = 0; hops < 8 && !location.empty(); ++hops) {
    if (location.front() == '"') {
      const std::size_t end = location.find('"', 1);
      const std::string_view name = location.substr(1, end == std::string_view::npos ? end : end - 1);
      if (end != std::string_view::npos && location.substr(end + 1).starts_with(":")) return {};  // "file.py":12:3
      return name;
    }
    if (location.front() != '#') return {};
    const auto found = location_by_alias.find(location);
    if (found == location_by_alias.end()) return {};
    location = found->second;
  }
  return {};
}

const Function& Module::main() const {
  const Function* only = nullptr;
  std::size_t candidates = 0;
  std::string names;
  for (const Function& f : functions) {
    if (!f.has_body) continue;
    if (f.name == "main") return f;
    if (!f.is_public) continue;
    only = &f;
    if (++candidates <= 5) names += (names.empty() ? "" : ", ") + escaped(f.name.substr(0, 60));
  }
  if (candidates == 1) return *only;
  throw Error(ErrorCode::format, "the module has " + std::to_string(candidates) + " public functions" +
                                     (names.empty() ? "" : " (" + names + ")") +
                                     " and none is called main; export one function");
}

}  // namespace perfpass::stablehlo
