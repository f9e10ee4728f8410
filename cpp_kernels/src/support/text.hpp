// Text of a file in messages and names: what is not printable UTF-8 is escaped.
#pragma once

#include <string>
#include <string_view>

namespace perfpass {

/// A name for a message: in single quotes, cut at 80 bytes, with bytes that are not printable UTF-8 written as \xNN.
std::string quoted(std::string_view text);
/// All of the text, with the same bytes escaped: for the names that a graph keeps.
std::string escaped(std::string_view text);

}  // namespace perfpass
