// How the lowering of operators reads a source's attribute objects, whichever release of TVM they come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace perfpass::ir {

using Handle = void*;

class AttributeSource {
 public:
  virtual ~AttributeSource() = default;
  /// An array of numbers, or one number; empty when the attribute is None or holds something else (a symbolic size).
  virtual std::vector<std::int64_t> integers(Handle attrs, const std::string& name) = 0;
  /// Empty when the attribute is None or no text.
  virtual std::string text(Handle attrs, const std::string& name) = 0;

 protected:
  AttributeSource() = default;
  AttributeSource(const AttributeSource&) = default;
  AttributeSource& operator=(const AttributeSource&) = default;
};

}  // namespace perfpass::ir
