// The fields of one message of Protocol Buffers, for readers of formats that are read in another language.
// Encoding: https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "perfpass/export.hpp"

namespace perfpass {

/// One field: a number's value in `first`, or where the bytes of anything else begin and end.
struct MessageField {
  std::uint64_t number = 0;  // the field's
  bool is_number = false;
  std::uint64_t first = 0, last = 0;
};

/// The fields of the message at [begin, end) of `data` one after the other; what lies inside of one is not read.
class PERFPASS_API MessageFields {
 public:
  /// Error(argument) where that is not within `data`.
  MessageFields(std::span<const std::uint8_t> data, std::size_t begin, std::size_t end);

  /// Whether there is one more, which is then in `field`. Error(format) for bytes that are no message, or that end
  /// before it does.
  bool next(MessageField& field);

  /// The number at the place: varints that stand one after the other are the values of a packed field. Error(format).
  std::uint64_t number();

  bool more() const noexcept { return at_ < end_; }
  std::size_t at() const noexcept { return at_; }

 private:
  std::uint64_t number(bool& wide);
  std::size_t skipped(std::uint64_t kind);

  std::span<const std::uint8_t> data_;
  std::size_t at_, end_;
};

/// How many fields may still be read of a file, which is `what` ("Core ML model").
class PERFPASS_API FieldBudget {
 public:
  FieldBudget(std::size_t most, std::string what) : most_(most), left_(most), what_(std::move(what)) {}

  std::size_t left() const noexcept { return left_; }

  /// Error(limit) beyond that.
  void take(std::size_t count);

 private:
  std::size_t most_, left_;
  std::string what_;
};

}  // namespace perfpass
