// The fields of one message of Protocol Buffers, for readers of formats that are read in another language.
// Encoding: https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "perfpass/export.hpp"

namespace perfpass {

/// One field: a number's value in `first`, or where the bytes of anything else begin and end.
struct MessageField {
  std::uint64_t number = 0;  // the field's
  bool is_number = false;
  std::uint64_t first = 0, last = 0;
};

/// The fields of the message at [begin, end) of `data`, at most one more than `most`; what lies inside is not read.
/// Error(format) for bytes that are no message, or that end before it does.
PERFPASS_API std::vector<MessageField> message_fields(std::span<const std::uint8_t> data, std::size_t begin,
                                                      std::size_t end, std::size_t most);

}  // namespace perfpass
