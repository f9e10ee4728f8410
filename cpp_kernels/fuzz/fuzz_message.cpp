// Fuzz target of the fields of protobuf messages, for readers in Python: any bytes are fields that lie within the
// message, or one perfpass::Error; so are the messages inside, to a depth that no format passes, and packed numbers.
// How it is built and run: replay.hpp.
#include "perfpass/error.hpp"
#include "perfpass/message_fields.hpp"
#include "replay.hpp"

namespace {

constexpr std::size_t kMost = 100'000;

void walk(std::span<const std::uint8_t> data, std::size_t begin, std::size_t end, int depth,
          perfpass::FieldBudget& budget) {
  perfpass::MessageFields fields(data, begin, end);
  perfpass::MessageField field;
  while (fields.next(field)) {
    budget.take(1);
    if (field.is_number) continue;
    if (field.first < begin || field.first > field.last || field.last > end) std::abort();
    try {
      perfpass::MessageFields packed(data, field.first, field.last);
      while (packed.more()) packed.number();
      if (packed.at() != field.last) std::abort();
    } catch (const perfpass::Error& error) {
      if (error.code() != perfpass::ErrorCode::format) std::abort();
    }
    if (depth == 0) continue;
    try {
      walk(data, field.first, field.last, depth - 1, budget);
    } catch (const perfpass::Error& error) {
      if (error.code() != perfpass::ErrorCode::format) throw;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perfpass::FieldBudget budget(kMost, "input");
  try {
    walk({data, size}, 0, size, 12, budget);
  } catch (const perfpass::Error&) {  // any typed error is an answer
  }
  return 0;
}
