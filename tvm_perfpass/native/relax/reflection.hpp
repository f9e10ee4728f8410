// TVM's objects through tvm-ffi's C API, found at run time in the library that Python has already loaded: no header of
// TVM, no link-time dependency. tvm-ffi tells of every class its fields with names and offsets
// (TVMFFIGetTypeInfo(index)->fields), so fields are found by name and read in place.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../shared/attribute_source.hpp"
#include "perfpass/dtype.hpp"

namespace perfpass::relax {

using ir::Handle;

/// TVM cannot be spoken to: a symbol, a class or a field is missing. The caller falls back to the plain walk.
class AbiError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The classes a Relax module is made of; the order indexes the table of type keys in reflection.cpp.
enum class Class : std::uint8_t {
  call,
  var,
  dataflow_var,
  constant,
  tuple,
  get_item,
  function,
  extern_func,
  seq,
  if_,
  op,
  global_var,
  shape_expr,
  block,
  var_binding,
  match_cast,
  tensor_type,
  tuple_type,
  prim_type,
  int_imm,
  array,
  cast,
  add,
  sub,
  mul,
  floor_div,
  floor_mod,
  div,
  mod,
  min,
  max,
  dict_attrs,
  count_,
};

/// Fields that are read in place; the order indexes the table of names in reflection.cpp.
enum class Field : std::uint8_t {
  call_op,
  call_args,
  call_attrs,
  expr_type,
  var_name,
  tuple_fields,
  get_item_tuple,
  get_item_index,
  function_params,
  function_body,
  function_attrs,
  extern_name,
  seq_blocks,
  seq_body,
  block_bindings,
  if_cond,
  if_true,
  if_false,
  op_name,
  shape_values,
  binding_var,
  binding_value,
  match_value,
  match_type,
  tensor_shape,
  tensor_dtype,
  tensor_rank,
  tuple_type_fields,
  prim_dtype,
  int_value,
  cast_value,
  left,
  right,
  dictionary,
  count_,
};

class Reflection : public ir::AttributeSource {
 public:
  /// `library`: path of the loaded libtvm_ffi; empty searches the symbols of the whole process.
  explicit Reflection(const std::string& library);

  Class class_of(Handle object) const noexcept {
    if (object == nullptr) return Class::count_;
    const auto index = load<std::int32_t>(object, 8);
    return index >= 0 && static_cast<std::size_t>(index) < class_of_index_.size() ? class_of_index_[index]
                                                                                  : Class::count_;
  }
  Handle child(Handle object, Field field) const noexcept { return load<Handle>(object, offset(field)); }
  std::int64_t integer(Handle object, Field field) const;
  std::string text(Handle object, Field field) const;
  std::int64_t array_size(Handle array) const noexcept { return array == nullptr ? 0 : load<std::int64_t>(array, 32); }
  /// The object at a place of an array; null for a number or text.
  Handle array_item(Handle array, std::int64_t index) const noexcept {
    const Handle data = load<Handle>(array, 24);
    const auto at = static_cast<std::int32_t>(16 * index);
    return load<std::int32_t>(data, at) >= kFirstObject ? load<Handle>(data, at + 8) : nullptr;
  }
  /// The type of a TensorType's elements; undefined where it is none that the core knows.
  DType dtype(Handle tensor_type) const noexcept;
  std::string dtype_name(Handle tensor_type) const;
  std::string type_key(Handle object) const;
  bool has_attribute(Handle function, const char* name) const;

  std::vector<std::int64_t> integers(Handle attrs, const std::string& name) override;
  std::string text(Handle attrs, const std::string& name) override;

  /// Where a field of a class lies. AbiError that names both where there is none.
  std::int32_t offset_of(const std::string& type_key, const std::string& field) const;

  // Brings what a walk will read into the cache, in steps: each reads what the one before has fetched.
  static void prefetch(Handle object) noexcept;
  void prefetch_binding(Handle binding) const noexcept;  // its value and variable
  void prefetch_call(Handle binding) const noexcept;     // the value's type and arguments
  void prefetch_shape(Handle binding) const noexcept;
  void prefetch_sizes(Handle binding) const noexcept;

 private:
  static constexpr std::int32_t kFirstObject = 64;  // kTVMFFIStaticObjectBegin of tvm/ffi/c_api.h
  struct Bytes {
    const char* data;
    std::size_t size;
  };
  struct Any {
    std::int32_t type_index;
    std::uint32_t small_size;
    union {
      std::int64_t integer;
      Handle object;
      char small[8];
    };
  };
  struct FieldInfo {  // TVMFFIFieldInfo of tvm-ffi 0.1
    Bytes name, doc, metadata;
    std::int64_t flags, size, alignment, offset;
    int (*getter)(void* field, Any* result);
    void* setter;
    Any default_value;
    std::int32_t static_type;
  };
  struct TypeInfo {  // TVMFFITypeInfo of tvm-ffi 0.1
    std::int32_t index, depth;
    Bytes key;
    const TypeInfo** ancestors;
    std::uint64_t key_hash;
    std::int32_t field_count, method_count;
    const FieldInfo* fields;
  };

  template <typename T>
  static T load(const void* object, std::int32_t offset) noexcept {
    T value;
    std::memcpy(&value, static_cast<const unsigned char*>(object) + offset, sizeof(T));
    return value;
  }
  std::int32_t offset(Field field) const noexcept { return offset_[static_cast<std::size_t>(field)]; }
  const TypeInfo* type_of(std::string_view key) const;
  const FieldInfo* find(const TypeInfo* type, std::string_view name) const noexcept;
  Any attribute(Handle object, const std::string& name);
  void release(const Any& value) const noexcept;
  static std::string text_of(const Any& value);
  Handle shape_in_cache(Handle binding) const noexcept;

  const TypeInfo* (*type_info_)(std::int32_t) = nullptr;
  int (*key_to_index_)(const Bytes*, std::int32_t*) = nullptr;
  int (*get_global_)(const Bytes*, Handle*) = nullptr;
  int (*call_)(Handle, Any*, std::int32_t, Any*) = nullptr;
  int (*release_)(Handle) = nullptr;
  void* map_count_ = nullptr;
  std::vector<Class> class_of_index_;  // by type index
  std::array<std::int32_t, static_cast<std::size_t>(Field::count_)> offset_{};
  std::array<std::int32_t, static_cast<std::size_t>(Field::count_)> size_{};
  std::map<std::pair<std::int32_t, std::string>, const FieldInfo*> attributes_;
};

}  // namespace perfpass::relax
