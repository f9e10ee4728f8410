// The fields that are read in place where calibrated, as TVM's reflection names them.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "tvm_api.hpp"

namespace perfpass::relay {

enum class FieldKind : std::uint8_t { object, int32, int64, dtype };
struct FieldSpec {
  Class cls;
  const char* name;
  FieldKind kind;
};
inline constexpr std::array<FieldSpec, static_cast<std::size_t>(Field::count_)> kFields = {{
    {Class::call, "op", FieldKind::object},
    {Class::call, "args", FieldKind::object},
    {Class::call, "attrs", FieldKind::object},
    {Class::call, "_checked_type_", FieldKind::object},
    {Class::var, "_checked_type_", FieldKind::object},
    {Class::var, "vid", FieldKind::object},
    {Class::id, "name_hint", FieldKind::object},
    {Class::constant, "_checked_type_", FieldKind::object},
    {Class::tuple, "fields", FieldKind::object},
    {Class::tuple_get_item, "tuple_value", FieldKind::object},
    {Class::tuple_get_item, "index", FieldKind::int32},
    {Class::function, "params", FieldKind::object},
    {Class::function, "body", FieldKind::object},
    {Class::let, "var", FieldKind::object},
    {Class::let, "value", FieldKind::object},
    {Class::let, "body", FieldKind::object},
    {Class::if_, "cond", FieldKind::object},
    {Class::if_, "true_branch", FieldKind::object},
    {Class::if_, "false_branch", FieldKind::object},
    {Class::tensor_type, "shape", FieldKind::object},
    {Class::tensor_type, "dtype", FieldKind::dtype},
    {Class::tuple_type, "fields", FieldKind::object},
    {Class::int_imm, "value", FieldKind::int64},
}};

constexpr const FieldSpec& spec(Field field) { return kFields[static_cast<std::size_t>(field)]; }

template <typename T>
T load(const void* object, std::int32_t offset) noexcept {
  T value;
  std::memcpy(&value, static_cast<const unsigned char*>(object) + offset, sizeof(T));
  return value;
}

}  // namespace perfpass::relay
