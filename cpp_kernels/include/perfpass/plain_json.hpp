// Whether a text is JSON without anything that a careful reader looks for.
#pragma once

#include <string_view>

#include "perfpass/export.hpp"

namespace perfpass {

/// True of UTF-8 that is one JSON value, nested at most 32 deep, in which no object has a key twice, no key has an
/// escape, no escape is half a character, every whole number fits into 64 bits and every other one is finite. Of
/// everything else false: it may still be JSON.
PERFPASS_API bool is_plain_json(std::string_view text);

}  // namespace perfpass
