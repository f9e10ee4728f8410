#include "stablehlo/parser.hpp"

namespace perfpass::stablehlo {
namespace {

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

}  // namespace

Type read_type(std::string_view text) {
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

}  // namespace perfpass::stablehlo
