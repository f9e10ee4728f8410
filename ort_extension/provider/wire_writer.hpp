// A protobuf message, written from its end to its beginning: when a message's length is due, its contents stand there
// already. Fields therefore appear in the opposite order of the calls.
// Encoding: https://protobuf.dev/programming-guides/encoding
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>

namespace perfpass::ort {

static_assert(std::endian::native == std::endian::little, "fixed32 and raw tensor data are written as they lie");

class WireWriter {
 public:
  /// `expected` bytes are reserved at once; past `limit` every call throws std::length_error.
  WireWriter(std::size_t expected, std::size_t limit) : limit_(limit) { grow(expected); }

  /// A place to hand to close(): what is written after it is the message's payload.
  std::size_t mark() const noexcept { return written_; }
  std::span<const std::uint8_t> bytes() const noexcept { return {buffer_.get() + capacity_ - written_, written_}; }

  void number(std::uint32_t field, std::uint64_t value) {
    room(2 * kLongestVarint);
    varint(value);
    varint(field << 3);
  }
  void real(std::uint32_t field, float value) {
    room(4 + kLongestVarint);
    copy(&value, 4);
    varint(field << 3 | 5);
  }
  void text(std::uint32_t field, std::string_view value) {
    room(value.size() + 2 * kLongestVarint);
    copy(value.data(), value.size());
    varint(value.size());
    varint(field << 3 | 2);
  }
  /// The last element of a packed list; elements come in reverse.
  void packed(std::uint64_t value) {
    room(kLongestVarint);
    varint(value);
  }
  void close(std::uint32_t field, std::size_t mark) {
    room(2 * kLongestVarint);
    varint(written_ - mark);
    varint(field << 3 | 2);
  }

 private:
  static constexpr std::size_t kLongestVarint = 10;

  void room(std::size_t more) {
    if (capacity_ - written_ < more) grow(more);
  }

  void grow(std::size_t more) {
    if (more > limit_ || written_ > limit_ - more) throw std::length_error("the graph's description is too long");
    const std::size_t capacity = 2 * capacity_ + more;
    auto buffer = std::make_unique_for_overwrite<std::uint8_t[]>(capacity);
    if (written_ > 0) std::memcpy(buffer.get() + capacity - written_, bytes().data(), written_);
    buffer_ = std::move(buffer);
    capacity_ = capacity;
  }

  void copy(const void* from, std::size_t size) noexcept {
    written_ += size;
    if (size > 0) std::memcpy(buffer_.get() + capacity_ - written_, from, size);
  }

  void varint(std::uint64_t value) noexcept {
    if (value < 0x80) {
      buffer_[capacity_ - ++written_] = static_cast<std::uint8_t>(value);
      return;
    }
    std::uint8_t encoded[kLongestVarint];
    std::size_t size = 0;
    for (; value >= 0x80; value >>= 7) encoded[size++] = static_cast<std::uint8_t>(value | 0x80);
    encoded[size++] = static_cast<std::uint8_t>(value);
    copy(encoded, size);
  }

  std::unique_ptr<std::uint8_t[]> buffer_;
  std::size_t capacity_ = 0;
  std::size_t written_ = 0;
  std::size_t limit_;
};

}  // namespace perfpass::ort
