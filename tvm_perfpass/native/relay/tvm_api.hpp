// TVM's C ABI, found at run time in the library that Python has already loaded: no TVM header, no link-time dependency.
//
// Everything can be read by TVM's own reflection (`node.NodeGetAttr` and friends), which every build of TVM 0.19
// offers. Reading the fields of an expression in place is an order of magnitude quicker; where they lie is found by
// comparing probe objects with the reflection (calibrate), and checked again on the first objects of every walk. A
// field that cannot be found, or a check that fails, sends that field back to reflection: slower, never wrong.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../shared/attribute_source.hpp"
#include "perfpass/dtype.hpp"

namespace perfpass::relay {

using ir::Handle;

/// TVM cannot be spoken to (a symbol is missing, a packed call failed): the caller falls back to the plain walk.
class AbiError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A calibrated field disagrees with the reflection: repeat the walk by reflection alone.
class LayoutMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The classes a Relay module is made of; the order indexes kClassKeys.
enum class Class : std::uint8_t {
  call,
  var,
  constant,
  tuple,
  tuple_get_item,
  function,
  let,
  if_,
  op,
  global_var,
  constructor,
  match,
  ref_create,
  ref_read,
  ref_write,
  tensor_type,
  tuple_type,
  int_imm,
  array,
  string,
  prim_func,
  id,
  count_,
};
/// TVM's type key of a class ("relay.Call").
std::string_view class_key(Class cls) noexcept;

/// Fields read in place where calibrated. The order indexes kFields.
enum class Field : std::uint8_t {
  call_op,
  call_args,
  call_attrs,
  call_type,
  var_type,
  var_id,
  id_name,
  constant_type,
  tuple_fields,
  get_item_tuple,
  get_item_index,
  function_params,
  function_body,
  let_var,
  let_value,
  let_body,
  if_cond,
  if_true,
  if_false,
  tensor_shape,
  tensor_dtype,
  tuple_type_fields,
  int_value,
  count_,
};

/// An attribute as the reflection returns it. Objects are borrowed: their parent keeps them alive.
struct Attribute {
  enum class Kind : std::uint8_t { none, integer, real, text, object } kind = Kind::none;
  std::int64_t integer = 0;
  double real = 0.0;
  std::string text;
  Handle object = nullptr;
};

class Tvm : public ir::AttributeSource {
 public:
  /// `library`: path of the loaded libtvm; empty searches the symbols of the whole process. AbiError if a symbol is
  /// missing.
  explicit Tvm(const std::string& library);

  /// Finds field offsets from probe objects: by class key, at least two objects of each class whose fields differ.
  void calibrate(const std::map<std::string, std::vector<Handle>>& probes);
  /// Reads everything by reflection from now on.
  void forget_layout() noexcept;
  /// Names of fields that are read in place.
  std::vector<std::string> calibrated() const;
  /// Starts a walk: the first reads of every field are checked against the reflection again.
  void begin_walk() noexcept;

  Class class_of(Handle object) const {
    if (!type_index_first_ || object == nullptr) return class_by_call(object);
    std::uint32_t index;
    std::memcpy(&index, object, sizeof(index));
    return index < class_of_index_.size() ? class_of_index_[index] : Class::count_;
  }
  /// Brings objects that will be read soon into the cache, in steps: each reads what the one before has fetched.
  /// Nothing happens where fields are read by reflection.
  static void prefetch(Handle object) noexcept;
  void prefetch_fields(Handle call_or_variable, Class cls) const noexcept;  // the type, attributes and arguments
  void prefetch_shape(Handle call_or_variable, Class cls) const noexcept;   // the array of the type's sizes
  void prefetch_sizes(Handle call_or_variable, Class cls) const noexcept;
  std::string type_key(Handle object) const;

  Handle child(Handle object, Field field);
  std::int64_t integer(Handle object, Field field);
  DType dtype(Handle tensor_type);
  std::int64_t array_size(Handle array);
  Handle array_item(Handle array, std::int64_t index);

  /// One attribute by reflection; AbiError if the object has none of that name.
  Attribute attribute(Handle object, const char* name);
  /// One element of an array by reflection: numbers may be boxed or immediate.
  Attribute element(Handle array, std::int64_t index);
  std::string text(Handle string_object);

  std::vector<std::int64_t> integers(Handle attrs, const std::string& name) override;
  std::string text(Handle attrs, const std::string& name) override;

 private:
  Class class_by_call(Handle object) const;
  Handle shape_in_cache(Handle call_or_variable, Class cls) const noexcept;
  union Value {
    std::int64_t v_int;
    double v_real;
    void* v_handle;
    const char* v_text;
  };
  struct Result {
    Value value{};
    int code = 0;
  };
  void* symbol(void* library, const char* name) const;
  void* global(const char* name) const;
  Result invoke(void* function, Value* arguments, int* codes, int count) const;
  Attribute to_attribute(const Result& result);
  void find_field(Field field, const std::vector<Handle>& probes);
  void find_type_index(const std::map<std::string, std::vector<Handle>>& probes);
  void find_array(const std::vector<Handle>& probes);
  void find_text(const std::vector<Handle>& identifiers);
  std::string text_by_call(Handle string_object) const;
  Handle child_by_reflection(Handle object, Field field);

  int (*get_global_)(const char*, void**) = nullptr;
  int (*call_)(void*, Value*, int*, int, Value*, int*) = nullptr;
  const char* (*last_error_)() = nullptr;
  int (*type_index_)(void*, unsigned*) = nullptr;
  int (*key_to_index_)(const char*, unsigned*) = nullptr;
  int (*index_to_key_)(unsigned, char**) = nullptr;
  int (*free_)(void*) = nullptr;
  void* node_get_attr_ = nullptr;
  void* array_size_fn_ = nullptr;
  void* array_item_fn_ = nullptr;
  void* text_fn_ = nullptr;

  std::vector<Class> class_of_index_;  // by TVM type index
  std::array<std::int32_t, static_cast<std::size_t>(Field::count_)> offset_{};
  std::array<std::int8_t, static_cast<std::size_t>(Field::count_)> checks_{};
  bool type_index_first_ = false;  // an object begins with its type index
  std::int32_t array_size_offset_ = -1;
  std::int32_t array_data_offset_ = -1;
  std::int8_t array_checks_ = 0;
  std::int32_t text_size_offset_ = -1;
  std::int32_t text_data_offset_ = -1;
  std::int8_t text_checks_ = 0;
};

/// TVM's DataType as it lies in memory (code, bits, 16 bits of lanes) from its name ("float32"); 0 for other names.
std::uint32_t dtype_word(std::string_view name) noexcept;
/// The core's type; undefined where it has none.
DType dtype_of(std::uint32_t word) noexcept;

}  // namespace perfpass::relay
