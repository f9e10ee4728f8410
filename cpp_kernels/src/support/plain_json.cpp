#include "perfpass/plain_json.hpp"

#include "support/json_cursor.hpp"

namespace perfpass {

bool is_plain_json(std::string_view text) {
  JsonCursor cursor(text);
  std::string_view value;
  return cursor.value(value) && cursor.at_end();
}

}  // namespace perfpass
