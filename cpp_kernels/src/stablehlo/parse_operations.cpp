// Operations in both forms, and the values that they read and make.
#include <algorithm>
#include <array>

#include "stablehlo/parser.hpp"

namespace perfpass::stablehlo {
namespace {

constexpr std::size_t kLongestAttributes = 16384;  // of an operator that every reader of its result asks for them
constexpr std::array<std::string_view, 7> kDialects = {"stablehlo", "mhlo", "chlo", "func", "builtin", "sdy", "arith"};

}  // namespace

std::string_view Parser::value_name() {
  if (c_.peek() != '%') c_.fail("a value (%name)");
  c_.step();
  const std::size_t begin = c_.place();
  while (is_word(c_.peek()) || c_.peek() == '-') c_.step();
  const std::string_view name = c_.from(begin);
  if (name.empty() || name.size() > kLongestName) c_.fail("the name of a value");
  return name;
}

std::uint32_t Parser::number(std::string_view name) noexcept {
  if (name.size() > 7) return kUnset;
  std::uint32_t n = 0;
  for (const char c : name) {
    if (c < '0' || c > '9') return kUnset;
    n = n * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return n;
}

void Parser::bind(std::string_view name, ValueId value) {
  const std::uint32_t n = number(name);
  if (n == kUnset || n > next_value() + 1024) {
    named_[name] = value;
    return;
  }
  if (n >= numbered_.size()) numbered_.resize(std::max<std::size_t>(n + 1, numbered_.size() * 2), kUnset);
  numbered_[n] = value;
}

ValueId Parser::define(std::string_view name, std::uint32_t type) {
  const ValueId value = next_value();
  m_.value_type.push_back(type);
  bind(name, value);
  return value;
}

ValueId Parser::operand() {
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

std::uint32_t Parser::type() {
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

void Parser::refuse(std::string_view name) {
  const std::string dialect(name.substr(0, name.find('.')));
  throw Error(ErrorCode::unsupported,
              "the module has " + quoted(name) + " of MLIR's dialect " + escaped(dialect.substr(0, 40)) +
                  "; StableHLO, MHLO and CHLO are read: pass the StableHLO of the model (jax.export, or what "
                  "torch_xla and TensorFlow export), not a form lowered from it");
}

Code Parser::code_with_dialect(std::string_view name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) {
    const Code code = code_of(name);
    if (code == Code::call || code == Code::return_) return code;
    refuse(name);
  }
  const std::string_view dialect = name.substr(0, dot);
  if (std::find(kDialects.begin(), kDialects.end(), dialect) == kDialects.end()) refuse(name);
  if (dialect == "sdy" && name.find("sharding") == std::string_view::npos && name != "sdy.return") {
    throw Error(ErrorCode::unsupported,
                "the module has " + quoted(name) + ", work of one device of several; export the model for one device");
  }
  return code_of(name.substr(dot + 1));
}

std::uint32_t Parser::operation() {
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
  const bool asked_often = op.code == Code::reduce || op.code == Code::reduce_window || op.code == Code::transpose;
  if (asked_often && op.attributes.size() + op.more_attributes.size() > kLongestAttributes) {
    throw Error(ErrorCode::limit, quoted(op.name) + " has attributes of more than " +
                                      std::to_string(kLongestAttributes) + " letters; no exporter writes such a file");
  }
  if (const std::string_view location = skip_location(); !location.empty()) op.location = location;
  m_.operations.push_back(op);
  return static_cast<std::uint32_t>(m_.operations.size() - 1);
}

void Parser::take_operands(Operation& op, std::size_t stack) {
  op.operand_begin = static_cast<std::uint32_t>(m_.operands.size());
  op.operand_count = static_cast<std::uint32_t>(stack_.size() - stack);
  m_.operands.insert(m_.operands.end(), stack_.begin() + static_cast<std::ptrdiff_t>(stack), stack_.end());
  stack_.resize(stack);
}

void Parser::take_regions(Operation& op, const std::vector<std::uint32_t>& ids) {
  // Regions of one operation stand next to one another; those inside them came before.
  op.region_begin = static_cast<std::uint32_t>(m_.regions.size());
  op.region_count = static_cast<std::uint32_t>(ids.size());
  for (const std::uint32_t id : ids) {
    Region moved = std::move(m_.regions[id]);
    m_.regions.push_back(std::move(moved));
  }
}

void Parser::define_results(Operation& op, const std::vector<Pending>& pending,
                            const std::vector<std::uint32_t>& types) {
  std::size_t count = 0;
  for (const Pending& one : pending) count += one.count;
  if (types.empty() ? count > 0 : types.size() < count && types.size() != 1) c_.fail("a type for every result");
  if (next_value() + count > kMostValuesOfNode * limits_.nodes) {
    throw Error(ErrorCode::limit, "the module has more than " + std::to_string(kMostValuesOfNode * limits_.nodes) +
                                      " values; no exporter writes such a file");
  }
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

std::vector<std::uint32_t> Parser::result_types() {
  c_.space();
  std::vector<std::uint32_t> types;
  if (c_.peek() == '(') {
    const std::size_t begin = c_.place();
    c_.balanced();
    if (!c_.eat("->")) c_.go(begin);
    return listed_types();
  }
  types.push_back(type());
  while (c_.eat(",")) types.push_back(type());
  return c_.eat("->") ? listed_types() : types;
}

std::vector<std::uint32_t> Parser::listed_types() {
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

void Parser::generic(Operation& op, const std::vector<Pending>& pending, std::size_t stack) {
  op.name = c_.string();
  if (!std::all_of(op.name.begin(), op.name.end(), is_word)) {
    throw Error(ErrorCode::format, "the module has an operation " + quoted(op.name) +
                                       "; names of operations are letters, digits, '_', '$' and '.'");
  }
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

void Parser::pretty(Operation& op, const std::vector<Pending>& pending, std::size_t stack) {
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

void Parser::pretty_while(Operation& op, const std::vector<Pending>& pending, std::size_t stack) {
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

}  // namespace perfpass::stablehlo
