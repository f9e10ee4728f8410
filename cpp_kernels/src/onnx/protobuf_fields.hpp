// Fields of a protobuf message, one after the other. Encoding: https://protobuf.dev/programming-guides/encoding
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "onnx/excerpt.hpp"
#include "perfpass/error.hpp"

namespace perfpass::onnx {

static_assert(std::endian::native == std::endian::little, "fixed32 and fixed64 are read as they lie in the file");

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, group_start = 3, group_end = 4, fixed32 = 5 };

/// A field as it lies in the file. Of Wire::bytes, `value` is the length in the file and `payload` what is there of it.
struct Field {
  std::uint32_t number = 0;
  Wire wire = Wire::varint;
  std::uint64_t value = 0;
  std::span<const std::uint8_t> payload;

  /// Left out of the excerpt whole. (A message may also be there with payloads left out of it.)
  bool is_missing() const noexcept { return payload.empty() && value > 0; }
};

/// Walks the fields of one message. Payloads are skipped by their length: their pages are not touched.
class FieldReader {
 public:
  /// `file` is what the message is part of: errors tell places in it.
  FieldReader(std::span<const std::uint8_t> message, const Excerpt& file) noexcept
      : at_(message.data()), end_(message.data() + message.size()), file_(file) {}

  /// False at the end of the message; Error(format) on bytes that are no field. Inlined: a model is some 100,000
  /// fields.
  [[gnu::always_inline]] bool next(Field& field) {
    if (at_ == end_) return false;
    start_ = at_;
    const std::uint64_t tag = varint();
    field.number = static_cast<std::uint32_t>(tag >> 3);
    field.wire = static_cast<Wire>(tag & 7);
    if (tag >> 32 != 0 || field.number == 0) fail_text("has an invalid field tag");
    switch (field.wire) {
      case Wire::varint:
        field.value = varint();
        return true;
      case Wire::bytes: {
        field.value = varint();
        const auto left = static_cast<std::uint64_t>(end_ - at_);
        const std::size_t present =
            field.value < kMinGap && field.value <= left ? static_cast<std::size_t>(field.value) : large(field.value);
        field.payload = {at_, present};
        at_ += present;
        return true;
      }
      case Wire::fixed64:
        field.value = fixed<std::uint64_t>();
        return true;
      case Wire::fixed32:
        field.value = fixed<std::uint32_t>();
        return true;
      default:
        fail_wire(field.wire);
    }
  }

  /// Elements of a packed list, where the reader walks the list's payload; false at its end.
  bool next_packed_varint(std::uint64_t& value) {
    if (at_ == end_) return false;
    start_ = at_;
    value = varint();
    return true;
  }
  template <typename T>
  bool next_packed(std::uint64_t& value) {
    if (at_ == end_) return false;
    start_ = at_;
    value = fixed<T>();
    return true;
  }

  [[noreturn, gnu::cold, gnu::noinline]] void fail(const std::string& what) const {
    throw Error(ErrorCode::format,
                "the file " + what + " (at byte " + std::to_string(file_.place(start_)) +
                    "): it is truncated or damaged, or not an ONNX model; export or download it again");
  }

 private:
  /// How much is there of a payload that may have gaps.
  [[gnu::noinline]] std::size_t large(std::uint64_t length) const {
    const std::uint64_t left = file_.distance(at_, end_);
    if (length > left) fail_length(length, left);
    return file_.present(at_, length, end_);
  }
  [[noreturn, gnu::cold, gnu::noinline]] void fail_length(std::uint64_t length, std::uint64_t left) const {
    fail("has a field of " + std::to_string(length) + " bytes where " + std::to_string(left) + " are left");
  }
  [[noreturn, gnu::cold, gnu::noinline]] void fail_wire(Wire wire) const {
    fail("has wire type " + std::to_string(static_cast<int>(wire)) + ", which ONNX does not use");
  }
  [[noreturn, gnu::cold, gnu::noinline]] void fail_text(const char* what) const { fail(what); }

  [[gnu::always_inline]] std::uint64_t varint() { return at_ != end_ && *at_ < 0x80 ? *at_++ : long_varint(); }

  std::uint64_t long_varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ == end_) fail_text("ends within a number");
      const std::uint8_t byte = *at_++;
      if (shift == 63 && byte > 1) break;
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail_text("has a number of more than 64 bits");
  }

  template <typename T>
  T fixed() {
    if (static_cast<std::size_t>(end_ - at_) < sizeof(T)) fail_text("ends within a number");
    T value;
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  const Excerpt& file_;
  const std::uint8_t* start_ = nullptr;  // of the field read last
};

}  // namespace perfpass::onnx
