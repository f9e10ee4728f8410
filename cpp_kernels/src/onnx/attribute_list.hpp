// Attributes that a reader of another format gives a node, under the names that the rules of shapes read.
#pragma once

#include <array>
#include <span>

#include "onnx/model.hpp"

namespace perfpass::onnx {

class AttributeList {
 public:
  void integer(Text name, std::int64_t value) { added(name, Attribute::Kind::integer).integer = value; }
  void integers(Text name, std::span<const std::int64_t> values) {
    added(name, Attribute::Kind::integers).integers = values;
  }
  void text(Text name, Text value) { added(name, Attribute::Kind::text).text = value; }
  std::span<const Attribute> list() const noexcept { return {list_.data(), size_}; }

 private:
  Attribute& added(Text name, Attribute::Kind kind) {
    Attribute& attribute = list_.at(size_++);
    attribute.name = name;
    attribute.kind = kind;
    return attribute;
  }

  std::array<Attribute, 8> list_{};  // no operator has more
  std::size_t size_ = 0;
};

}  // namespace perfpass::onnx
