#include "tvm_api.hpp"

#include <dlfcn.h>

#include <algorithm>

#include "tvm_fields.hpp"

namespace perfpass::relay {
namespace {

// Type codes of TVM's packed calls (tvm/runtime/c_runtime_api.h of 0.19: TVMArgTypeCode).
constexpr int kInt = 0;
constexpr int kReal = 2;
constexpr int kNull = 4;
constexpr int kObject = 8;
constexpr int kText = 11;
constexpr int kBool = 15;

constexpr std::array<std::string_view, static_cast<std::size_t>(Class::count_)> kClassKeys = {"relay.Call",
                                                                                              "relay.Var",
                                                                                              "relay.Constant",
                                                                                              "relay.Tuple",
                                                                                              "relay.TupleGetItem",
                                                                                              "relay.Function",
                                                                                              "relay.Let",
                                                                                              "relay.If",
                                                                                              "Op",
                                                                                              "GlobalVar",
                                                                                              "relay.Constructor",
                                                                                              "relay.Match",
                                                                                              "relay.RefCreate",
                                                                                              "relay.RefRead",
                                                                                              "relay.RefWrite",
                                                                                              "relay.TensorType",
                                                                                              "TupleType",
                                                                                              "IntImm",
                                                                                              "Array",
                                                                                              "runtime.String",
                                                                                              "tir.PrimFunc",
                                                                                              "relay.Id"};

// Reads of each field that a walk checks against the reflection before it trusts the offset.
constexpr std::int8_t kChecksPerWalk = 2;

}  // namespace

std::string_view class_key(Class cls) noexcept { return kClassKeys[static_cast<std::size_t>(cls)]; }

std::uint32_t dtype_word(std::string_view name) noexcept {
  struct Family {
    std::string_view prefix;
    std::uint32_t code;
  };
  // DataType::TypeCode of TVM 0.19: int 0, uint 1, float 2, bfloat 4, float8 e4m3 6 and e5m2 7; a bool is a uint1.
  static constexpr std::array<Family, 6> kFamilies = {
      {{"e4m3_float", 6}, {"e5m2_float", 7}, {"bfloat", 4}, {"float", 2}, {"uint", 1}, {"int", 0}}};
  const auto word = [](std::uint32_t code, std::uint32_t bits) { return code | bits << 8 | 1U << 16; };
  if (name == "bool") return word(1, 1);
  for (const Family& family : kFamilies) {
    if (!name.starts_with(family.prefix)) continue;
    std::uint32_t bits = 0;
    for (const char c : name.substr(family.prefix.size())) {
      if (c < '0' || c > '9' || bits > 64) return 0;  // vectors (float32x4) are no tensor types
      bits = bits * 10 + static_cast<std::uint32_t>(c - '0');
    }
    return word(family.code, bits);
  }
  return 0;
}

DType dtype_of(std::uint32_t word) noexcept {
  switch (word) {  // lanes 1, bits, code
    case 0x1'04'00:
      return DType::int4;
    case 0x1'08'00:
      return DType::int8;
    case 0x1'10'00:
      return DType::int16;
    case 0x1'20'00:
      return DType::int32;
    case 0x1'40'00:
      return DType::int64;
    case 0x1'01'01:
      return DType::boolean;
    case 0x1'04'01:
      return DType::uint4;
    case 0x1'08'01:
      return DType::uint8;
    case 0x1'10'01:
      return DType::uint16;
    case 0x1'20'01:
      return DType::uint32;
    case 0x1'40'01:
      return DType::uint64;
    case 0x1'10'02:
      return DType::float16;
    case 0x1'20'02:
      return DType::float32;
    case 0x1'40'02:
      return DType::float64;
    case 0x1'10'04:
      return DType::bfloat16;
    case 0x1'08'06:
    case 0x1'08'07:
      return DType::float8;
    default:
      return DType::undefined;
  }
}

Tvm::Tvm(const std::string& library) {
  void* handle = library.empty() ? RTLD_DEFAULT : dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) handle = RTLD_DEFAULT;
  const auto bind = [&](auto& target, const char* name) {
    target = reinterpret_cast<std::decay_t<decltype(target)>>(symbol(handle, name));
  };
  bind(get_global_, "TVMFuncGetGlobal");
  bind(call_, "TVMFuncCall");
  bind(last_error_, "TVMGetLastError");
  bind(type_index_, "TVMObjectGetTypeIndex");
  bind(key_to_index_, "TVMObjectTypeKey2Index");
  bind(index_to_key_, "TVMObjectTypeIndex2Key");
  bind(free_, "TVMObjectFree");
  node_get_attr_ = global("node.NodeGetAttr");
  array_size_fn_ = global("runtime.ArraySize");
  array_item_fn_ = global("runtime.ArrayGetItem");
  text_fn_ = global("runtime.GetFFIString");
  offset_.fill(-1);
  for (std::size_t c = 0; c < kClassKeys.size(); ++c) {
    unsigned index = 0;
    if (key_to_index_(std::string(kClassKeys[c]).c_str(), &index) != 0) continue;  // this build lacks the class
    if (index >= class_of_index_.size()) class_of_index_.resize(index + 1, Class::count_);
    class_of_index_[index] = static_cast<Class>(c);
  }
}

void* Tvm::symbol(void* library, const char* name) const {
  void* found = dlsym(library, name);
  if (found == nullptr) throw AbiError(std::string("the loaded TVM does not export ") + name);
  return found;
}

void* Tvm::global(const char* name) const {
  void* found = nullptr;
  if (get_global_(name, &found) != 0 || found == nullptr) {
    throw AbiError(std::string("the loaded TVM has no packed function ") + name);
  }
  return found;
}

Tvm::Result Tvm::invoke(void* function, Value* arguments, int* codes, int count) const {
  Result result;
  if (call_(function, arguments, codes, count, &result.value, &result.code) != 0) {
    const char* message = last_error_();
    throw AbiError(message == nullptr ? "a packed call into TVM failed" : std::string(message).substr(0, 400));
  }
  return result;
}

std::string Tvm::text_by_call(Handle string_object) const {
  Value argument{};
  argument.v_handle = string_object;
  int code = kObject;
  const Result result = invoke(text_fn_, &argument, &code, 1);
  if (result.code != kText) throw AbiError("runtime.GetFFIString did not return text");
  return result.value.v_text;
}

std::string Tvm::text(Handle string_object) {
  if (text_data_offset_ < 0) return text_by_call(string_object);
  std::string found(load<const char*>(string_object, text_data_offset_),
                    load<std::uint64_t>(string_object, text_size_offset_));
  if (text_checks_ > 0) {
    --text_checks_;
    if (text_by_call(string_object) != found) throw LayoutMismatch("the text of a string");
  }
  return found;
}

Attribute Tvm::to_attribute(const Result& result) {
  Attribute out;
  switch (result.code) {
    case kInt:
    case kBool:
      out.kind = Attribute::Kind::integer;
      out.integer = result.code == kBool ? (result.value.v_int & 1) : result.value.v_int;
      return out;
    case kReal:
      out.kind = Attribute::Kind::real;
      out.real = result.value.v_real;
      return out;
    case kNull:
      return out;
    case kText:
      out.kind = Attribute::Kind::text;
      out.text = result.value.v_text;
      return out;
    case kObject:
      break;
    default:
      throw AbiError("an attribute of packed type code " + std::to_string(result.code));
  }
  Handle object = result.value.v_handle;
  const Class cls = class_of(object);
  if (cls == Class::int_imm) {
    out.kind = Attribute::Kind::integer;
    out.integer = integer(object, Field::int_value);
  } else if (cls == Class::string) {
    out.kind = Attribute::Kind::text;
    out.text = text(object);
  } else {
    out.kind = Attribute::Kind::object;
    out.object = object;
  }
  free_(object);  // the parent keeps it alive
  return out;
}

Attribute Tvm::attribute(Handle object, const char* name) {
  Value arguments[2] = {};
  arguments[0].v_handle = object;
  arguments[1].v_text = name;
  int codes[2] = {kObject, kText};
  return to_attribute(invoke(node_get_attr_, arguments, codes, 2));
}

Attribute Tvm::element(Handle array, std::int64_t index) {
  if (array_data_offset_ >= 0) {
    Handle const item = array_item(array, index);
    if (class_of(item) == Class::int_imm)
      return {Attribute::Kind::integer, integer(item, Field::int_value), 0.0, {}, item};
  }
  Value arguments[2] = {};
  arguments[0].v_handle = array;
  arguments[1].v_int = index;
  int codes[2] = {kObject, kInt};
  return to_attribute(invoke(array_item_fn_, arguments, codes, 2));
}

std::vector<std::int64_t> Tvm::integers(Handle attrs, const std::string& name) {
  const Attribute value = attribute(attrs, name.c_str());
  if (value.kind == Attribute::Kind::integer) return {value.integer};
  if (value.kind != Attribute::Kind::object || class_of(value.object) != Class::array) return {};
  std::vector<std::int64_t> out;
  const std::int64_t size = array_size(value.object);
  for (std::int64_t i = 0; i < size; ++i) {
    const Attribute item = element(value.object, i);
    if (item.kind != Attribute::Kind::integer) return {};
    out.push_back(item.integer);
  }
  return out;
}

std::string Tvm::text(Handle attrs, const std::string& name) {
  const Attribute value = attribute(attrs, name.c_str());
  return value.kind == Attribute::Kind::text ? value.text : std::string();
}

Class Tvm::class_by_call(Handle object) const {
  unsigned index = 0;
  if (object == nullptr || type_index_(object, &index) != 0 || index >= class_of_index_.size()) return Class::count_;
  return class_of_index_[index];
}

void Tvm::prefetch(Handle object) noexcept {
  // Objects of interest span two cache lines. A call's arguments are allocated just before the call.
  const auto* at = static_cast<const char*>(object);
  __builtin_prefetch(at);
  __builtin_prefetch(at + 64);
  __builtin_prefetch(at - 64);
}

void Tvm::prefetch_fields(Handle expression, Class cls) const noexcept {
  const auto fetch = [&](Field field) {
    const std::int32_t at = offset_[static_cast<std::size_t>(field)];
    if (at >= 0) __builtin_prefetch(load<Handle>(expression, at));
  };
  if (cls == Class::call) {
    fetch(Field::call_type);
    fetch(Field::call_args);
    fetch(Field::call_attrs);
  } else if (cls == Class::var) {
    fetch(Field::var_type);
    fetch(Field::var_id);
  }
}

Handle Tvm::shape_in_cache(Handle expression, Class cls) const noexcept {
  const std::int32_t type_at =
      offset_[static_cast<std::size_t>(cls == Class::call ? Field::call_type : Field::var_type)];
  const std::int32_t shape_at = offset_[static_cast<std::size_t>(Field::tensor_shape)];
  if ((cls != Class::call && cls != Class::var) || type_at < 0 || shape_at < 0 || !type_index_first_) return nullptr;
  Handle const type = load<Handle>(expression, type_at);
  return class_of(type) == Class::tensor_type ? load<Handle>(type, shape_at) : nullptr;
}

void Tvm::prefetch_shape(Handle expression, Class cls) const noexcept {
  __builtin_prefetch(shape_in_cache(expression, cls));
  const auto at = [&](Field field) { return offset_[static_cast<std::size_t>(field)]; };
  if (cls == Class::var && at(Field::var_id) >= 0 && at(Field::id_name) >= 0) {
    __builtin_prefetch(load<Handle>(load<Handle>(expression, at(Field::var_id)), at(Field::id_name)));
  }
}

void Tvm::prefetch_sizes(Handle expression, Class cls) const noexcept {
  Handle const shape = shape_in_cache(expression, cls);
  if (shape == nullptr || array_data_offset_ < 0) return;
  const std::int64_t rank = std::min<std::int64_t>(load<std::int64_t>(shape, array_size_offset_), 4);
  for (std::int64_t i = 0; i < rank; ++i) {
    __builtin_prefetch(load<Handle>(shape, array_data_offset_ + static_cast<std::int32_t>(i * sizeof(Handle))));
  }
}

std::string Tvm::type_key(Handle object) const {
  if (object == nullptr) return "nothing";
  unsigned index = 0;
  char* key = nullptr;
  if (type_index_(object, &index) != 0 || index_to_key_(index, &key) != 0 || key == nullptr) return "an unknown class";
  return key;  // TVM allocates it; a few bytes on an error path
}

Handle Tvm::child_by_reflection(Handle object, Field field) {
  Value arguments[2] = {};
  arguments[0].v_handle = object;
  arguments[1].v_text = spec(field).name;
  int codes[2] = {kObject, kText};
  const Result result = invoke(node_get_attr_, arguments, codes, 2);
  if (result.code == kNull) return nullptr;
  if (result.code != kObject) {
    throw AbiError(std::string("field ") + spec(field).name + " has packed type code " + std::to_string(result.code));
  }
  free_(result.value.v_handle);  // the parent keeps it alive
  return result.value.v_handle;
}

Handle Tvm::child(Handle object, Field field) {
  const auto f = static_cast<std::size_t>(field);
  if (offset_[f] < 0) return child_by_reflection(object, field);
  Handle const found = load<Handle>(object, offset_[f]);
  if (checks_[f] > 0) {
    --checks_[f];
    if (child_by_reflection(object, field) != found) throw LayoutMismatch(spec(field).name);
  }
  return found;
}

std::int64_t Tvm::integer(Handle object, Field field) {
  const auto f = static_cast<std::size_t>(field);
  const auto by_reflection = [&] { return attribute(object, spec(field).name).integer; };
  if (offset_[f] < 0) return by_reflection();
  const std::int64_t found = spec(field).kind == FieldKind::int32 ? load<std::int32_t>(object, offset_[f])
                                                                  : load<std::int64_t>(object, offset_[f]);
  if (checks_[f] > 0) {
    --checks_[f];
    if (by_reflection() != found) throw LayoutMismatch(spec(field).name);
  }
  return found;
}

DType Tvm::dtype(Handle tensor_type) {
  constexpr auto f = static_cast<std::size_t>(Field::tensor_dtype);
  const auto by_reflection = [&] {
    return dtype_of(dtype_word(attribute(tensor_type, spec(Field::tensor_dtype).name).text));
  };
  if (offset_[f] < 0) return by_reflection();
  const DType found = dtype_of(load<std::uint32_t>(tensor_type, offset_[f]));
  if (checks_[f] > 0) {
    --checks_[f];
    if (by_reflection() != found) throw LayoutMismatch(spec(Field::tensor_dtype).name);
  }
  return found;
}

std::int64_t Tvm::array_size(Handle array) {
  const auto by_reflection = [&] {
    Value argument{};
    argument.v_handle = array;
    int code = kObject;
    return invoke(array_size_fn_, &argument, &code, 1).value.v_int;
  };
  if (array_size_offset_ < 0) return by_reflection();
  const auto found = load<std::int64_t>(array, array_size_offset_);
  if (array_checks_ > 0) {
    --array_checks_;
    if (by_reflection() != found) throw LayoutMismatch("the size of an array");
  }
  return found;
}

Handle Tvm::array_item(Handle array, std::int64_t index) {
  const auto by_reflection = [&]() -> Handle {
    Value arguments[2] = {};
    arguments[0].v_handle = array;
    arguments[1].v_int = index;
    int codes[2] = {kObject, kInt};
    const Result result = invoke(array_item_fn_, arguments, codes, 2);
    if (result.code != kObject) return nullptr;
    free_(result.value.v_handle);  // the array keeps it alive
    return result.value.v_handle;
  };
  if (array_data_offset_ < 0) return by_reflection();
  Handle const found = load<Handle>(array, array_data_offset_ + static_cast<std::int32_t>(index * sizeof(Handle)));
  if (array_checks_ > 0) {
    --array_checks_;
    if (by_reflection() != found) throw LayoutMismatch("an item of an array");
  }
  return found;
}

void Tvm::begin_walk() noexcept {
  checks_.fill(kChecksPerWalk);
  array_checks_ = 4 * kChecksPerWalk;
  text_checks_ = kChecksPerWalk;
}

}  // namespace perfpass::relay
