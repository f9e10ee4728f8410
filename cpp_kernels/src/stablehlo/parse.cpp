// The module, its functions and their regions; operations are read in parse_operations.cpp.
#include "stablehlo/parser.hpp"

namespace perfpass::stablehlo {

Module Parser::run() {
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

bool Parser::top_level() {
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

void Parser::empty_signature() {
  for (const char* const text : {":", "(", ")", "->", "(", ")"}) c_.need(text);
  skip_location();
}

bool Parser::generic_top_level() {
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
    empty_signature();
    --generic_modules_;
    return true;
  }
  if (name == "sdy.mesh") {
    c_.need("(");
    c_.need(")");
    c_.space();
    if (c_.peek() == '<') c_.balanced();
    empty_signature();
    return true;
  }
  if (name != "func.func") refuse(name);
  generic_function();
  return true;
}

void Parser::alias() {
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

std::string_view Parser::skip_location() {
  c_.space();
  if (c_.peek() != 'l' || c_.peek(1) != 'o' || c_.peek(2) != 'c' || c_.peek(3) != '(') return {};
  c_.step(3);
  return within(c_.balanced());
}

void Parser::function() {
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

void Parser::generic_function() {
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

void Parser::body(std::uint32_t region, bool with_header) {
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

void Parser::block_header(Region* region) {
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

Module parse(std::string_view text, const StablehloLimits& limits) {
  if (text.size() > limits.text_bytes) {
    throw Error(ErrorCode::limit, "an MLIR text of " + std::to_string(text.size()) + " bytes; at most " +
                                      std::to_string(limits.text_bytes) +
                                      " are read: print it with its constants elided (large_elements_limit)");
  }
  return Parser(text, limits).run();
}

}  // namespace perfpass::stablehlo
