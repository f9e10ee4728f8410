// Fuzz target of the fields of protobuf messages, for readers in Python: any bytes are fields that lie within the
// message, or one perfpass::Error; so are the messages inside, to a depth that no format passes. How it is built and
// run: replay.hpp.
#include "perfpass/message_fields.hpp"
#include "replay.hpp"

namespace {

constexpr std::size_t kMost = 100'000;

void walk(std::span<const std::uint8_t> data, std::size_t begin, std::size_t end, int depth) {
  std::vector<perfpass::MessageField> fields;
  try {
    fields = perfpass::message_fields(data, begin, end, kMost);
  } catch (const perfpass::Error&) {  // any typed error is an answer
    return;
  }
  if (fields.size() > kMost + 1) std::abort();
  for (const perfpass::MessageField& field : fields) {
    if (field.is_number) continue;
    if (field.first < begin || field.first > field.last || field.last > end) std::abort();
    if (depth > 0) walk(data, field.first, field.last, depth - 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  walk({data, size}, 0, size, 12);
  return 0;
}
