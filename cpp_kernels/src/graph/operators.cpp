#include "perfpass/operators.hpp"

#include <array>
#include <unordered_map>

namespace perfpass {
namespace {

struct OpEntry {
  std::string_view name;
  OpClass cls;
};

constexpr std::array kOperators = {
#define X(name, cls) OpEntry{#name, OpClass::cls},
    PERFPASS_OPERATORS(X)
#undef X
};

constexpr std::array<std::string_view, static_cast<std::size_t>(OpClass::count_)> kClassNames = {
#define X(name) #name,
    PERFPASS_OP_CLASSES(X)
#undef X
};

}  // namespace

std::string_view op_name(OpKind op) noexcept {
  const auto i = static_cast<std::size_t>(op);
  return i < kOperators.size() ? kOperators[i].name : kOperators[0].name;
}

OpKind op_from_name(std::string_view name) noexcept {
  static const auto* index = [] {
    auto* map = new std::unordered_map<std::string_view, OpKind>;
    for (std::size_t i = 0; i < kOperators.size(); ++i) map->emplace(kOperators[i].name, static_cast<OpKind>(i));
    return map;
  }();
  const auto it = index->find(name);
  return it == index->end() ? OpKind::unknown : it->second;
}

OpClass op_class(OpKind op) noexcept {
  const auto i = static_cast<std::size_t>(op);
  return i < kOperators.size() ? kOperators[i].cls : OpClass::unknown;
}

std::string_view op_class_name(OpClass cls) noexcept {
  const auto i = static_cast<std::size_t>(cls);
  return i < kClassNames.size() ? kClassNames[i] : kClassNames[0];
}

}  // namespace perfpass
