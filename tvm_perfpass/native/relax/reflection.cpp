#include "reflection.hpp"

#include <dlfcn.h>

#include <algorithm>

namespace perfpass::relax {
namespace {

// Type indices of tvm/ffi/c_api.h (TVMFFITypeIndex).
constexpr std::int32_t kInt = 1;
constexpr std::int32_t kBool = 2;
constexpr std::int32_t kRawText = 8;
constexpr std::int32_t kSmallText = 11;
constexpr std::int32_t kText = 65;
constexpr std::int32_t kMap = 72;

constexpr std::array<std::string_view, static_cast<std::size_t>(Class::count_)> kKeys = {
    "ir.Call",
    "ir.Var",
    "relax.expr.DataflowVar",
    "ir.GenericConst",
    "ir.Tuple",
    "ir.TupleGetItem",
    "relax.expr.Function",
    "relax.expr.ExternFunc",
    "relax.expr.SeqExpr",
    "relax.expr.If",
    "ir.Op",
    "ir.GlobalVar",
    "relax.expr.ShapeExpr",
    "relax.expr.BindingBlock",
    "relax.expr.VarBinding",
    "relax.expr.MatchCast",
    "relax.TensorType",
    "ir.TupleType",
    "ir.PrimType",
    "ir.IntImm",
    "ffi.Array",
    "prim.Cast",
    "prim.Add",
    "prim.Sub",
    "prim.Mul",
    "prim.FloorDiv",
    "prim.FloorMod",
    "prim.Div",
    "prim.Mod",
    "prim.Min",
    "prim.Max",
    "ir.DictAttrs",
};

struct FieldName {
  Class cls;
  const char* name;
};
constexpr std::array<FieldName, static_cast<std::size_t>(Field::count_)> kFields = {{
    {Class::call, "op"},
    {Class::call, "args"},
    {Class::call, "attrs"},
    {Class::call, "ty"},
    {Class::var, "name"},
    {Class::tuple, "fields"},
    {Class::get_item, "tuple_value"},
    {Class::get_item, "index"},
    {Class::function, "params"},
    {Class::function, "body"},
    {Class::function, "attrs"},
    {Class::extern_func, "global_symbol"},
    {Class::seq, "blocks"},
    {Class::seq, "body"},
    {Class::block, "bindings"},
    {Class::if_, "cond"},
    {Class::if_, "true_branch"},
    {Class::if_, "false_branch"},
    {Class::op, "name"},
    {Class::shape_expr, "values"},
    {Class::var_binding, "var"},
    {Class::var_binding, "value"},
    {Class::match_cast, "value"},
    {Class::match_cast, "ty"},
    {Class::tensor_type, "shape"},
    {Class::tensor_type, "dtype"},
    {Class::tensor_type, "ndim"},
    {Class::tuple_type, "fields"},
    {Class::prim_type, "dtype"},
    {Class::int_imm, "value"},
    {Class::cast, "value"},
    {Class::add, "a"},
    {Class::add, "b"},
    {Class::dict_attrs, "__dict__"},
}};

DType from_dlpack(std::uint32_t code, std::uint32_t bits, std::uint32_t lanes) noexcept {
  if (lanes != 1) return DType::undefined;
  const auto sized = [&](DType b4, DType b8, DType b16, DType b32, DType b64) {
    return bits == 4 ? b4 : bits == 8 ? b8 : bits == 16 ? b16 : bits == 32 ? b32 : bits == 64 ? b64 : DType::undefined;
  };
  constexpr DType kNot = DType::undefined;
  switch (code) {  // DLDataTypeCode of dlpack.h
    case 0:
      return sized(DType::int4, DType::int8, DType::int16, DType::int32, DType::int64);
    case 1:
      return bits == 1 ? DType::boolean
                       : sized(DType::uint4, DType::uint8, DType::uint16, DType::uint32, DType::uint64);
    case 2:
      return sized(kNot, kNot, DType::float16, DType::float32, DType::float64);
    case 4:
      return bits == 16 ? DType::bfloat16 : kNot;
    case 6:
      return DType::boolean;
    default:
      break;
  }
  if (code >= 7 && code <= 14 && bits == 8) return DType::float8;
  return code == 17 && bits == 4 ? DType::float4 : kNot;
}

}  // namespace

Reflection::Reflection(const std::string& library) {
  void* handle = library.empty() ? nullptr : dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) handle = RTLD_DEFAULT;
  const auto bind = [&](auto& target, const char* name) {
    void* found = dlsym(handle, name);
    if (found == nullptr) throw AbiError(std::string("the loaded tvm-ffi does not export ") + name);
    target = reinterpret_cast<std::decay_t<decltype(target)>>(found);
  };
  struct Version {
    std::uint32_t major, minor, patch;
  } version{};
  void (*get_version)(Version*) = nullptr;
  bind(get_version, "TVMFFIGetVersion");
  get_version(&version);
  if (version.major != 0 || version.minor != 1) {
    throw AbiError("tvm-ffi " + std::to_string(version.major) + "." + std::to_string(version.minor) +
                   " may lay out its type information in another way than 0.1");
  }
  bind(type_info_, "TVMFFIGetTypeInfo");
  bind(key_to_index_, "TVMFFITypeKeyToIndex");
  bind(get_global_, "TVMFFIFunctionGetGlobal");
  bind(call_, "TVMFFIFunctionCall");
  bind(release_, "TVMFFIObjectDecRef");
  const Bytes count{"ffi.MapCount", 12};
  if (get_global_(&count, &map_count_) != 0 || map_count_ == nullptr) {
    throw AbiError("the loaded tvm-ffi has no function ffi.MapCount");
  }
  for (std::size_t c = 0; c < kKeys.size(); ++c) {
    const auto index = static_cast<std::size_t>(type_of(kKeys[c])->index);
    if (index >= class_of_index_.size()) class_of_index_.resize(index + 1, Class::count_);
    class_of_index_[index] = static_cast<Class>(c);
  }
  // A DataflowBlock is a BindingBlock whose variables are not seen outside; its class has no fields of its own.
  const auto dataflow = static_cast<std::size_t>(type_of("relax.expr.DataflowBlock")->index);
  if (dataflow >= class_of_index_.size()) class_of_index_.resize(dataflow + 1, Class::count_);
  class_of_index_[dataflow] = Class::block;
  for (std::size_t f = 0; f < kFields.size(); ++f) {
    const TypeInfo* type = type_of(kKeys[static_cast<std::size_t>(kFields[f].cls)]);
    const FieldInfo* found = find(type, kFields[f].name);
    if (found == nullptr) {
      throw AbiError(std::string(type->key.data, type->key.size) + " has no field '" + kFields[f].name + "'");
    }
    offset_[f] = static_cast<std::int32_t>(found->offset);
    size_[f] = static_cast<std::int32_t>(found->size);
  }
}

const Reflection::TypeInfo* Reflection::type_of(std::string_view key) const {
  const Bytes bytes{key.data(), key.size()};
  std::int32_t index = -1;
  if (key_to_index_(&bytes, &index) != 0 || index < 0) throw AbiError("there is no class " + std::string(key));
  const TypeInfo* info = type_info_(index);
  if (info == nullptr || std::string_view(info->key.data, info->key.size) != key) {
    throw AbiError("the type information of " + std::string(key) + " is laid out in another way");
  }
  return info;
}

const Reflection::FieldInfo* Reflection::find(const TypeInfo* type, std::string_view name) const noexcept {
  for (std::int32_t level = type->depth; level >= 0; --level) {
    const TypeInfo* at = level == type->depth ? type : type->ancestors[level];
    for (std::int32_t i = 0; i < at->field_count; ++i) {
      if (std::string_view(at->fields[i].name.data, at->fields[i].name.size) == name) return at->fields + i;
    }
  }
  return nullptr;
}

std::int32_t Reflection::offset_of(const std::string& type_key, const std::string& field) const {
  const FieldInfo* found = find(type_of(type_key), field);
  if (found == nullptr) throw AbiError(type_key + " has no field '" + field + "'");
  return static_cast<std::int32_t>(found->offset);
}

std::int64_t Reflection::integer(Handle object, Field field) const {
  const std::int32_t at = offset(field);
  switch (size_[static_cast<std::size_t>(field)]) {
    case 4:
      return load<std::int32_t>(object, at);
    case 8:
      return load<std::int64_t>(object, at);
    default: {  // a number of any size: one that fits into 64 bits lies in place
      const Any value = load<Any>(object, at);
      if (value.type_index != kInt) throw AbiError("a number of more than 64 bits");
      return value.integer;
    }
  }
}

std::string Reflection::text_of(const Any& value) {
  if (value.type_index == kSmallText) return {value.small, value.small_size};
  if (value.type_index != kText) return {};
  const Bytes bytes = load<Bytes>(value.object, 24);
  return {bytes.data, bytes.size};
}

std::string Reflection::text(Handle object, Field field) const { return text_of(load<Any>(object, offset(field))); }

DType Reflection::dtype(Handle tensor_type) const noexcept {
  Handle const type = child(tensor_type, Field::tensor_dtype);
  if (type == nullptr) return DType::undefined;
  const std::int32_t at = offset(Field::prim_dtype);
  return from_dlpack(load<std::uint8_t>(type, at), load<std::uint8_t>(type, at + 1), load<std::uint16_t>(type, at + 2));
}

std::string Reflection::dtype_name(Handle tensor_type) const {
  Handle const type = child(tensor_type, Field::tensor_dtype);
  if (type == nullptr) return "unknown";
  const std::int32_t at = offset(Field::prim_dtype);
  static constexpr std::array<const char*, 7> kCodes = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const auto code = load<std::uint8_t>(type, at);
  const auto lanes = load<std::uint16_t>(type, at + 2);
  std::string name = code < kCodes.size() ? kCodes[code] : "code " + std::to_string(code) + " of ";
  name += std::to_string(load<std::uint8_t>(type, at + 1));
  return lanes == 1 ? name : name + "x" + std::to_string(lanes);
}

std::string Reflection::type_key(Handle object) const {
  if (object == nullptr) return "nothing";
  const TypeInfo* info = type_info_(load<std::int32_t>(object, 8));
  return info == nullptr ? "an unknown class" : std::string(info->key.data, info->key.size);
}

void Reflection::release(const Any& value) const noexcept {
  if (value.type_index >= kFirstObject) release_(value.object);
}

bool Reflection::has_attribute(Handle function, const char* name) const {
  Handle const attrs = child(function, Field::function_attrs);
  if (class_of(attrs) != Class::dict_attrs) return false;
  Any arguments[2] = {};
  arguments[0].type_index = kMap;
  arguments[0].object = child(attrs, Field::dictionary);
  if (arguments[0].object == nullptr) return false;
  arguments[1].type_index = kRawText;
  arguments[1].object = const_cast<char*>(name);
  Any result = {};
  if (call_(map_count_, arguments, 2, &result) != 0) throw AbiError("ffi.MapCount failed");
  return result.integer != 0;
}

Reflection::Any Reflection::attribute(Handle object, const std::string& name) {
  const auto index = load<std::int32_t>(object, 8);
  auto [it, fresh] = attributes_.try_emplace({index, name}, nullptr);
  if (fresh) it->second = find(type_info_(index), name);
  if (it->second == nullptr) throw AbiError(type_key(object) + " has no field '" + name + "'");
  Any result = {};
  void* field = static_cast<unsigned char*>(object) + it->second->offset;
  if (it->second->getter(field, &result) != 0)
    throw AbiError(type_key(object) + ": field '" + name + "' cannot be read");
  return result;
}

std::vector<std::int64_t> Reflection::integers(Handle attrs, const std::string& name) {
  const Any value = attribute(attrs, name);
  const auto one = [&](const Any& any, std::vector<std::int64_t>& out) {
    if (any.type_index == kInt) {
      out.push_back(any.integer);
    } else if (any.type_index == kBool) {
      out.push_back(any.integer & 1);
    } else if (any.type_index >= kFirstObject && class_of(any.object) == Class::int_imm) {
      out.push_back(integer(any.object, Field::int_value));
    } else {
      return false;
    }
    return true;
  };
  std::vector<std::int64_t> out;
  if (!one(value, out) && value.type_index >= kFirstObject && class_of(value.object) == Class::array) {
    const std::int64_t size = array_size(value.object);
    const Handle data = load<Handle>(value.object, 24);
    for (std::int64_t i = 0; i < size; ++i) {
      if (!one(load<Any>(data, static_cast<std::int32_t>(16 * i)), out)) {
        out.clear();
        break;
      }
    }
  }
  release(value);
  return out;
}

std::string Reflection::text(Handle attrs, const std::string& name) {
  const Any value = attribute(attrs, name);
  std::string out = text_of(value);
  release(value);
  return out;
}

void Reflection::prefetch(Handle object) noexcept {
  const auto* at = static_cast<const char*>(object);
  __builtin_prefetch(at);
  __builtin_prefetch(at + 64);
}

void Reflection::prefetch_binding(Handle binding) const noexcept {
  prefetch(child(binding, Field::binding_value));
  prefetch(child(binding, Field::binding_var));
}

void Reflection::prefetch_call(Handle binding) const noexcept {
  Handle const value = child(binding, Field::binding_value);
  if (class_of(value) != Class::call) return;
  __builtin_prefetch(child(value, Field::expr_type));
  __builtin_prefetch(static_cast<const char*>(child(value, Field::expr_type)) + 32);
  prefetch(child(value, Field::call_args));
  __builtin_prefetch(child(value, Field::call_attrs));
}

Handle Reflection::shape_in_cache(Handle binding) const noexcept {
  Handle const value = child(binding, Field::binding_value);
  if (class_of(value) != Class::call) return nullptr;
  Handle const type = child(value, Field::expr_type);
  return class_of(type) == Class::tensor_type ? child(type, Field::tensor_shape) : nullptr;
}

void Reflection::prefetch_shape(Handle binding) const noexcept {
  Handle const shape = shape_in_cache(binding);
  if (shape == nullptr) return;
  __builtin_prefetch(shape);
  if (class_of(shape) == Class::shape_expr) prefetch(child(shape, Field::shape_values));
}

void Reflection::prefetch_sizes(Handle binding) const noexcept {
  Handle const shape = shape_in_cache(binding);
  if (class_of(shape) != Class::shape_expr) return;
  Handle const values = child(shape, Field::shape_values);
  const std::int64_t rank = std::min<std::int64_t>(array_size(values), 4);
  for (std::int64_t i = 0; i < rank; ++i) __builtin_prefetch(static_cast<const char*>(array_item(values, i)) + 40);
}

}  // namespace perfpass::relax
