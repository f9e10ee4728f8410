#include "flatbuffer/table.hpp"

#include "perfpass/error.hpp"
#include "support/text.hpp"

namespace perfpass::flatbuffer {

void fail_format(const char* what) {
  throw Error(ErrorCode::format, std::string("the file has ") + what + "; it is damaged or cut short");
}

void fail_text(std::uint32_t length) {
  throw Error(ErrorCode::limit,
              "a text of " + std::to_string(length) + " bytes; at most " + std::to_string(kMostText) + " are read");
}

Table root(const Source& source, std::string_view identifier, const char* what) {
  constexpr std::uint64_t kHead = 8;  // the offset of the root and the identifier
  if (source.size() < kHead) {
    throw Error(ErrorCode::format,
                "not " + std::string(what) + ": " + std::to_string(source.size()) + " bytes are too few for one");
  }
  const std::string_view found(reinterpret_cast<const char*>(source.at(4, 4)), 4);
  if (found != identifier) {
    throw Error(ErrorCode::format,
                "not " + std::string(what) + ": bytes 4 to 8 are " + quoted(found) + ", not " + quoted(identifier));
  }
  return Table(source, followed(source, 0));
}

}  // namespace perfpass::flatbuffer
