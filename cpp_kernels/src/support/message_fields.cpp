#include "perfpass/message_fields.hpp"

#include <limits>

#include "perfpass/error.hpp"

namespace perfpass {
namespace {

constexpr int kWidestNumber = 70;  // bits, in bytes of seven

std::string grouped(std::size_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; digits.insert(at -= 3, ",")) {
  }
  return digits;
}

}  // namespace

MessageFields::MessageFields(std::span<const std::uint8_t> data, std::size_t begin, std::size_t end)
    : data_(data), at_(begin), end_(end) {
  if (begin > end || end > data.size()) {
    throw Error(ErrorCode::argument, "a message at " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
                                         std::to_string(data.size()) + " bytes");
  }
}

bool MessageFields::next(MessageField& field) {
  if (!more()) return false;
  const std::uint64_t tag = number();
  field.number = tag >> 3;
  field.is_number = (tag & 7) == 0;
  field.last = 0;
  if (field.is_number) {
    field.first = number();
  } else {
    field.first = skipped(tag & 7);
    field.last = at_;
  }
  return true;
}

std::uint64_t MessageFields::number() {
  bool wide = false;
  return number(wide);
}

/// Bits past the 64th are dropped, as of a number they are by every reader; `wide` says so.
std::uint64_t MessageFields::number(bool& wide) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < kWidestNumber && at_ < end_; shift += 7) {
    const std::uint64_t byte = data_[at_++];
    if (shift == 63) wide = (byte & 127) > 1;
    value |= (byte & 127) << shift;
    if (byte < 128) return value;
  }
  throw Error(ErrorCode::format, "a number without an end; the file is damaged or no protobuf message");
}

/// How many bytes follow, which are skipped: where they begin.
std::size_t MessageFields::skipped(std::uint64_t kind) {
  bool wide = false;
  std::uint64_t length = 0;
  switch (kind) {
    case 1:
      length = 8;
      break;
    case 2:
      length = number(wide);
      break;
    case 5:
      length = 4;
      break;
    default:
      throw Error(ErrorCode::format, "a field of wire type " + std::to_string(kind) +
                                         ", which protobuf no longer has; the file is damaged");
  }
  if (wide || length > end_ - at_) {
    if (wide) length = std::numeric_limits<std::uint64_t>::max();
    throw Error(ErrorCode::format, "a field of " + std::to_string(length) + " bytes where " +
                                       std::to_string(end_ - at_) + " are left; the file is cut short");
  }
  const std::size_t begin = at_;
  at_ += static_cast<std::size_t>(length);
  return begin;
}

void FieldBudget::take(std::size_t count) {
  if (count > left_) {
    throw Error(ErrorCode::limit,
                "more than " + grouped(most_) + " fields; no " + what_ + " that is read here has as many");
  }
  left_ -= count;
}

}  // namespace perfpass
