// Tables, vectors and strings of a FlatBuffer, every access checked against the file.
//
// Offsets point forward, so nothing leads in a circle; how deep tables nest and how often one is shared is for the
// reader of a schema to bound (Source::spend counts the entries of every list).
#pragma once

#include <bit>
#include <cstring>
#include <optional>
#include <string_view>

#include "flatbuffer/source.hpp"

namespace perfpass::flatbuffer {

static_assert(std::endian::native == std::endian::little, "FlatBuffers are little-endian and are read in place");

/// A string longer than this is no name. Error(limit).
constexpr std::size_t kMostText = 1 << 16;

[[noreturn]] void fail_format(const char* what);
[[noreturn]] void fail_text(std::uint32_t length);

template <typename T>
T scalar_at(const std::uint8_t* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Where the offset stored at `at` leads.
inline std::uint64_t followed(const Source& source, std::uint64_t at) {
  const auto offset = scalar_at<std::uint32_t>(source.at(at, sizeof(std::uint32_t)));
  if (offset == 0) fail_format("an offset of 0");
  return at + offset;
}

inline std::string_view text_at(const Source& source, std::uint64_t at) {
  const auto length = scalar_at<std::uint32_t>(source.at(at, sizeof(std::uint32_t)));
  if (length > kMostText) fail_text(length);
  return {reinterpret_cast<const char*>(source.at(at + sizeof(std::uint32_t), length)), length};
}

class Table;

/// A list of numbers; empty where the field is absent.
template <typename T>
class Numbers {
 public:
  Numbers() = default;
  Numbers(const Source& source, std::uint64_t at) {
    size_ = scalar_at<std::uint32_t>(source.at(at, sizeof(std::uint32_t)));
    data_ = source.at(at + sizeof(std::uint32_t), std::uint64_t{size_} * sizeof(T));
    source.spend(size_);
  }
  std::size_t size() const noexcept { return size_; }
  T operator[](std::size_t i) const noexcept { return scalar_at<T>(data_ + i * sizeof(T)); }

 private:
  const std::uint8_t* data_ = nullptr;
  std::uint32_t size_ = 0;
};

/// A list of tables or strings.
class References {
 public:
  References() = default;
  References(const Source& source, std::uint64_t at) : source_(&source), first_(at + sizeof(std::uint32_t)) {
    size_ = scalar_at<std::uint32_t>(source.at(at, sizeof(std::uint32_t)));
    source.at(first_, std::uint64_t{size_} * sizeof(std::uint32_t));
    source.spend(size_);
  }
  std::size_t size() const noexcept { return size_; }
  Table table(std::size_t i) const;
  std::string_view text(std::size_t i) const { return text_at(*source_, target(i)); }

 private:
  std::uint64_t target(std::size_t i) const { return followed(*source_, first_ + i * sizeof(std::uint32_t)); }

  const Source* source_ = nullptr;
  std::uint64_t first_ = 0;
  std::uint32_t size_ = 0;
};

/// A place in the file with the length of what lies there: contents that are read only on request.
struct Extent {
  std::uint64_t at = 0;
  std::uint64_t length = 0;
};

class Table {
 public:
  /// A table without any field: what an absent one reads as.
  Table() = default;
  Table(const Source& source, std::uint64_t at) : source_(&source), at_(at) {
    const auto back = scalar_at<std::int32_t>(source.at(at, sizeof(std::int32_t)));
    const std::int64_t vtable = static_cast<std::int64_t>(at) - back;
    if (vtable < 0) fail_format("a table whose description lies before the file");
    const auto place = static_cast<std::uint64_t>(vtable);
    entries_ = scalar_at<std::uint16_t>(source.at(place, 2 * sizeof(std::uint16_t)));
    vtable_ = source.at(place, entries_);
    size_ = entries_ < 4 ? 0 : scalar_at<std::uint16_t>(vtable_ + 2);
    if (entries_ < 4 || entries_ % 2 != 0 || size_ < 4) fail_format("a table whose description has no valid size");
    data_ = source.at(at, size_);
  }

  const Source& source() const noexcept { return *source_; }
  std::uint64_t at() const noexcept { return at_; }
  bool has(unsigned slot) const { return field(slot) != 0; }

  template <typename T>
  T scalar(unsigned slot, T fallback = {}) const {
    const std::uint16_t offset = field(slot);
    if (offset == 0) return fallback;
    if (offset + sizeof(T) > size_) fail_format("a field that reaches past its table");
    return scalar_at<T>(data_ + offset);
  }
  std::string_view text(unsigned slot) const {
    const std::uint64_t place = target(slot);
    return place == 0 ? std::string_view() : text_at(*source_, place);
  }
  Table table(unsigned slot) const {
    const std::uint64_t place = target(slot);
    return place == 0 ? Table() : Table(*source_, place);
  }
  template <typename T>
  Numbers<T> numbers(unsigned slot) const {
    const std::uint64_t place = target(slot);
    return place == 0 ? Numbers<T>() : Numbers<T>(*source_, place);
  }
  References references(unsigned slot) const {
    const std::uint64_t place = target(slot);
    return place == 0 ? References() : References(*source_, place);
  }
  /// The bytes of a list of bytes, which are not read.
  Extent bytes(unsigned slot) const {
    const std::uint64_t place = target(slot);
    if (place == 0) return {};
    return {place + sizeof(std::uint32_t), scalar_at<std::uint32_t>(source_->at(place, sizeof(std::uint32_t)))};
  }

 private:
  std::uint16_t field(unsigned slot) const {
    const unsigned at = 4 + 2 * slot;
    return at + 2 > entries_ ? std::uint16_t{0} : scalar_at<std::uint16_t>(vtable_ + at);
  }
  std::uint64_t target(unsigned slot) const {
    const std::uint16_t offset = field(slot);
    if (offset == 0) return 0;
    if (offset + sizeof(std::uint32_t) > size_) fail_format("a field that reaches past its table");
    return followed(*source_, at_ + offset);
  }

  const Source* source_ = nullptr;
  const std::uint8_t* vtable_ = nullptr;
  const std::uint8_t* data_ = nullptr;
  std::uint64_t at_ = 0;
  std::uint16_t entries_ = 0;  // bytes of the description
  std::uint16_t size_ = 0;     // bytes of the table
};

inline Table References::table(std::size_t i) const { return Table(*source_, target(i)); }

/// The root of a file with this identifier. Error(format) where it has another: `what` is the format's name.
Table root(const Source& source, std::string_view identifier, const char* what);

}  // namespace perfpass::flatbuffer
