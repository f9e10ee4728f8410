#include "onnx/wire_tensor.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "onnx/contents.hpp"
#include "perfpass/error.hpp"
#include "support/text.hpp"

namespace perfpass::onnx {
namespace {

/// TensorProto.DataType by number. Two- and six-bit types count as the next wider type of the core.
constexpr std::array kDataTypes = {DType::undefined,  DType::float32,  DType::uint8,  DType::int8,   DType::uint16,
                                   DType::int16,      DType::int32,    DType::int64,  DType::string, DType::boolean,
                                   DType::float16,    DType::float64,  DType::uint32, DType::uint64, DType::complex64,
                                   DType::complex128, DType::bfloat16, DType::float8, DType::float8, DType::float8,
                                   DType::float8,     DType::uint4,    DType::int4,   DType::float4, DType::float8,
                                   DType::uint4,      DType::int4,     DType::float8, DType::float8};

std::int64_t as_signed(std::uint64_t value) { return static_cast<std::int64_t>(value); }

DType data_type(std::uint64_t number, Text tensor) {
  if (number < kDataTypes.size()) return kDataTypes[static_cast<std::size_t>(number)];
  throw Error(ErrorCode::unsupported, "tensor " + quoted(tensor) + " has element type " + std::to_string(number) +
                                          "; known are 1 to " + std::to_string(kDataTypes.size() - 1));
}

std::int64_t checked(const Constant& constant) {
  try {
    return checked_elements(constant.shape);
  } catch (const Error& e) {
    throw Error(e.code(), "constant " + quoted(constant.name) + ": " + e.what());
  }
}

/// A stored length that contradicts the shape betrays damage without a look at the data.
void check_raw_size(const Constant& constant, std::int64_t elements, std::uint64_t type, std::uint64_t found) {
  const bool narrow = type >= 25;  // two- and six-bit types are widened in kDataTypes
  if (constant.dtype == DType::string || constant.dtype == DType::undefined || narrow) return;
  const std::int64_t wanted = bytes_for(elements, bits_of(constant.dtype));
  if (wanted == static_cast<std::int64_t>(found)) return;
  throw Error(ErrorCode::format, "constant " + quoted(constant.name) + " needs " + std::to_string(wanted) +
                                     " bytes for its shape and stores " + std::to_string(found) +
                                     "; the file is damaged");
}

double real_value(DType dtype, std::uint64_t bits, Wire wire) {
  return wire == Wire::fixed32 ? real_element(DType::float32, bits) : real_element(dtype, bits);
}

}  // namespace

std::span<const std::int64_t> TensorReader::dims(Bytes message, std::uint32_t number, const char* name) {
  std::array<std::int64_t, kMaxRank> found{};
  std::size_t rank = 0;
  FieldReader reader(message, file_);
  for (Field f; reader.next(f);) {
    if (f.number != number) continue;
    expect_list(reader, f, Wire::varint, name);
    each_number(f, file_, Wire::varint, [&](std::uint64_t value) {
      if (rank == kMaxRank) {
        throw Error(ErrorCode::limit, "a constant of rank " + std::to_string(rank + 1) + " or more; at most " +
                                          std::to_string(kMaxRank) + " dimensions are allowed");
      }
      found[rank++] = as_signed(value);
    });
  }
  auto list = make<std::int64_t>(rank);
  std::copy_n(found.begin(), rank, list.begin());
  return list;
}

void TensorReader::constant(Bytes message, Constant& result) {
  std::uint64_t type = 0;
  bool external = false;
  Field raw;
  std::size_t typed = 0;  // fields of typed data lists
  std::array<std::int64_t, kMaxRank> shape{};
  std::size_t rank = 0;
  FieldReader reader(message, file_);
  for (Field f; reader.next(f);) {
    switch (f.number) {
      case 1:
        expect_list(reader, f, Wire::varint, "TensorProto.dims");
        each_number(f, file_, Wire::varint, [&](std::uint64_t value) {
          if (rank == kMaxRank) {
            throw Error(ErrorCode::limit, "a constant of more than " + std::to_string(kMaxRank) +
                                              " dimensions; at most " + std::to_string(kMaxRank) + " are allowed");
          }
          shape[rank++] = as_signed(value);
        });
        break;
      case 2:
        expect(reader, f, Wire::varint, "TensorProto.data_type");
        type = f.value;
        break;
      case 4:
      case 10:
        expect_list(reader, f, f.number == 4 ? Wire::fixed32 : Wire::fixed64, "TensorProto data");
        ++typed;
        break;
      case 5:
      case 7:
      case 11:
        expect_list(reader, f, Wire::varint, "TensorProto data");
        ++typed;
        break;
      case 8:
        result.name = text(reader, f, "TensorProto.name");
        break;
      case 9:
        expect(reader, f, Wire::bytes, "TensorProto.raw_data");
        raw = f;
        break;
      case 14:
        expect(reader, f, Wire::varint, "TensorProto.data_location");
        external = f.value == 1;
        break;
      default:
        break;
    }
  }
  result.dtype = data_type(type, result.name);
  auto list = make<std::int64_t>(rank);
  std::copy_n(shape.begin(), rank, list.begin());
  result.shape = list;
  const std::int64_t elements = checked(result);
  if (external) return;  // where the data lies is nobody's business here
  if (raw.value > 0) check_raw_size(result, elements, type, raw.value);
  if (typed + raw.value == 0 || elements > most_contents(result.dtype, limits_)) return;
  read_values(message, result, elements, type, raw);
}

void TensorReader::read_values(Bytes message, Constant& constant, std::int64_t elements, std::uint64_t type,
                               const Field& raw) {
  const auto n = static_cast<std::size_t>(elements);
  const bool real = is_floating(constant.dtype);
  auto reals = make<double>(real ? n : 0);
  auto integers = make<std::int64_t>(real ? 0 : n);
  std::size_t found = 0;
  const auto put_bits = [&](std::uint64_t bits, Wire wire) {
    if (found < n) {
      if (real) {
        reals[found] = real_value(constant.dtype, bits, wire);
      } else {
        integers[found] = as_signed(bits);
      }
    }
    ++found;
  };
  if (raw.value > 0) {
    // Only where a second type follows the data: what is kept of a payload is decided by the first.
    if (raw.is_missing()) fail_missing(FieldReader(message, file_), raw, "data of a constant");
    const std::size_t width = static_cast<std::size_t>(bits_of(constant.dtype)) / 8;
    for (; found < n;) put_bits(element_bits(constant.dtype, raw.payload.subspan(found * width, width)), Wire::bytes);
  } else {
    FieldReader reader(message, file_);
    for (Field f; reader.next(f);) {
      const Wire wire = f.number == 4 ? Wire::fixed32 : f.number == 10 ? Wire::fixed64 : Wire::varint;
      const bool is_data = f.number == 4 || f.number == 5 || f.number == 7 || f.number == 10 || f.number == 11;
      if (is_data) each_number(f, file_, wire, [&](std::uint64_t bits) { put_bits(bits, wire); });
    }
  }
  if (found != n) {
    throw Error(ErrorCode::format, "constant " + quoted(constant.name) + " needs " + std::to_string(n) +
                                       " elements of type " + std::to_string(type) + " for its shape and stores " +
                                       std::to_string(found) + "; the file is damaged");
  }
  constant.has_values = true;
  constant.reals = reals;
  constant.integers = integers;
}

void TensorReader::sparse_constant(Bytes message, Constant& result) {
  FieldReader reader(message, file_);
  for (Field f; reader.next(f);) {
    if (f.number != 1) continue;
    expect(reader, f, Wire::bytes, "SparseTensorProto.values");
    Constant values;
    constant(f.payload, values);
    result.name = values.name;
    result.dtype = values.dtype;
  }
  result.shape = dims(message, 3, "SparseTensorProto.dims");
  checked(result);
}

// ---- Declared values

void TensorReader::value_info(Bytes message, ValueInfo& result) {
  FieldReader reader(message, file_);
  Bytes type;
  for (Field f; reader.next(f);) {
    if (f.number == 1) result.name = text(reader, f, "ValueInfoProto.name");
    if (f.number == 2) {
      expect(reader, f, Wire::bytes, "ValueInfoProto.type");
      if (f.is_missing()) fail_missing(reader, f, "a type");
      type = f.payload;
    }
  }
  require_name(result.name, "a graph input, output or declared value");
  declared_type(type, result);
}

void TensorReader::declared_type(Bytes message, ValueInfo& result) {
  auto* known = known_types_.place(view(message));
  if (known == nullptr || known->message != view(message)) {
    type(message, result, 0);
    if (known != nullptr) *known = {view(message), result};
    return;
  }
  const Text name = result.name;
  result = known->value;
  result.name = name;
}

void TensorReader::type(Bytes message, ValueInfo& result, int depth) {
  check_depth(depth);
  FieldReader reader(message, file_);
  for (Field f; reader.next(f);) {
    switch (f.number) {
      case 1:
      case 8:  // tensor, sparse tensor
        expect(reader, f, Wire::bytes, "TypeProto.tensor_type");
        tensor_type(f.payload, result);
        break;
      case 4:
      case 5:  // sequence, map
        result.is_tensor = false;
        [[fallthrough]];
      case 9:  // an optional counts as present
        expect(reader, f, Wire::bytes, "TypeProto");
        element_type(f.payload, f.number == 5 ? 2 : 1, result, depth);
        break;
      default:
        break;
    }
  }
}

void TensorReader::element_type(Bytes message, std::uint32_t number, ValueInfo& result, int depth) {
  FieldReader reader(message, file_);
  for (Field f; reader.next(f);) {
    if (f.number != number) continue;
    expect(reader, f, Wire::bytes, "TypeProto.elem_type");
    type(f.payload, result, depth + 1);
  }
}

void TensorReader::tensor_type(Bytes message, ValueInfo& result) {
  FieldReader reader(message, file_);
  for (Field f; reader.next(f);) {
    if (f.number == 1) {
      expect(reader, f, Wire::varint, "TypeProto.Tensor.elem_type");
      result.dtype = data_type(f.value, result.name);
    }
    if (f.number == 2) {
      expect(reader, f, Wire::bytes, "TypeProto.Tensor.shape");
      shape(f.payload, result);
    }
  }
}

void TensorReader::shape(Bytes message, ValueInfo& result) {
  std::array<std::int64_t, kMaxRank> found{};
  std::array<Text, kMaxRank> symbols{};
  std::size_t rank = 0;
  bool named = false;
  FieldReader reader(message, file_);
  for (Field f; reader.next(f);) {
    if (f.number != 1) continue;
    expect(reader, f, Wire::bytes, "TensorShapeProto.dim");
    if (rank == kMaxRank) {
      throw Error(ErrorCode::limit, "value " + quoted(result.name) + " has more than " + std::to_string(kMaxRank) +
                                        " dimensions; at most " + std::to_string(kMaxRank) + " are allowed");
    }
    found[rank] = kUnknownDim;
    FieldReader dim(f.payload, file_);
    for (Field d; dim.next(d);) {
      if (d.number == 1) {
        expect(dim, d, Wire::varint, "TensorShapeProto.Dimension.dim_value");
        found[rank] = as_signed(d.value);
      }
      if (d.number == 2) {
        const Text name = text(dim, d, "TensorShapeProto.Dimension.dim_param");
        if (name.empty()) continue;
        found[rank] = kUnknownDim;
        if (is_placeholder(name)) continue;
        symbols[rank] = name;
        named = true;
      }
    }
    if (found[rank] < kUnknownDim) {  // some exporters write -1 for "unknown"
      throw Error(ErrorCode::limit, "value " + quoted(result.name) + " has a dimension of " +
                                        std::to_string(found[rank]) + "; dimensions must be 0 or more");
    }
    ++rank;
  }
  auto list = make<std::int64_t>(rank);
  std::copy_n(found.begin(), rank, list.begin());
  result.shape = list;
  result.has_shape = true;
  if (named) {
    auto names = make<Text>(rank);
    std::copy_n(symbols.begin(), rank, names.begin());
    result.symbols = names;
  }
}

}  // namespace perfpass::onnx
