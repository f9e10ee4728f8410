#include "perfpass/message_fields.hpp"

#include <limits>
#include <string>

#include "perfpass/error.hpp"

namespace perfpass {
namespace {

constexpr int kWidestNumber = 70;  // bits, in bytes of seven

/// Numbers of one message, each within its end.
class Walk {
 public:
  Walk(std::span<const std::uint8_t> data, std::size_t at, std::size_t end) : data_(data), at_(at), end_(end) {}

  std::size_t at() const noexcept { return at_; }
  bool more() const noexcept { return at_ < end_; }

  /// Bits past the 64th are dropped, as of a number they are by every reader.
  std::uint64_t number() {
    bool wide = false;
    return number(wide);
  }

  /// How many bytes follow, which are skipped: where they begin.
  std::size_t skipped(std::uint64_t kind) {
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

 private:
  std::uint64_t number(bool& wide) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < kWidestNumber && at_ < end_; shift += 7) {
      const std::uint64_t byte = data_[at_++];
      if (shift == 63) wide = (byte & 127) > 1;
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
    throw Error(ErrorCode::format, "a number without an end; the file is damaged or no protobuf message");
  }

  std::span<const std::uint8_t> data_;
  std::size_t at_, end_;
};

}  // namespace

std::vector<MessageField> message_fields(std::span<const std::uint8_t> data, std::size_t begin, std::size_t end,
                                         std::size_t most) {
  if (begin > end || end > data.size()) {
    throw Error(ErrorCode::argument, "a message at " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
                                         std::to_string(data.size()) + " bytes");
  }
  std::vector<MessageField> found;
  Walk walk(data, begin, end);
  while (walk.more() && found.size() <= most) {
    const std::uint64_t tag = walk.number();
    MessageField field{tag >> 3, (tag & 7) == 0, 0, 0};
    if (field.is_number) {
      field.first = walk.number();
    } else {
      field.first = walk.skipped(tag & 7);
      field.last = walk.at();
    }
    found.push_back(field);
  }
  return found;
}

}  // namespace perfpass
