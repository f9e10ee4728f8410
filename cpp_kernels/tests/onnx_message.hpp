// Serialized ONNX messages for the tests of the reader, written with the few wire types that ONNX has.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace perfpass::testing {

inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value > 0x7f; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  return out += static_cast<char>(value);
}

inline std::string number(int field, std::int64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(static_cast<std::uint64_t>(value));
}

inline std::string bytes(int field, std::string_view payload) {
  return varint((static_cast<std::uint64_t>(field) << 3) | 2) + varint(payload.size()) + std::string(payload);
}

/// A ValueInfoProto of floats; a dimension below 0 has no value, with `symbol` as its name.
inline std::string value(std::string_view name, std::initializer_list<std::int64_t> shape,
                         std::string_view symbol = "") {
  std::string dims;
  for (const std::int64_t d : shape) {
    dims += bytes(1, d >= 0 ? number(1, d) : symbol.empty() ? std::string() : bytes(2, symbol));
  }
  return bytes(1, name) + bytes(2, bytes(1, number(1, 1) + bytes(2, dims)));
}

inline std::string node(std::string_view op, std::initializer_list<std::string_view> inputs,
                        std::initializer_list<std::string_view> outputs, std::string_view attributes = "") {
  std::string out;
  for (const auto name : inputs) out += bytes(1, name);
  for (const auto name : outputs) out += bytes(2, name);
  return out + bytes(4, op) + std::string(attributes);
}

/// A ModelProto of opset 17 around a serialized GraphProto.
inline std::string model(std::string_view graph) {
  return number(1, 8) + bytes(7, graph) + bytes(8, bytes(1, "") + number(2, 17));
}

inline std::span<const std::uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace perfpass::testing
