// Attributes that a reader of another format gives a node, under the names that the rules of shapes read.
#pragma once

#include <memory>
#include <span>
#include <stdexcept>

#include "onnx/model.hpp"

namespace perfpass::onnx {

class AttributeList {
 public:
  AttributeList() noexcept {}  // makes no attribute: most operators have one or none, and room for eight is a kilobyte

  void integer(Text name, std::int64_t value) { added(name, Attribute::Kind::integer).integer = value; }
  void integers(Text name, std::span<const std::int64_t> values) {
    added(name, Attribute::Kind::integers).integers = values;
  }
  void text(Text name, Text value) { added(name, Attribute::Kind::text).text = value; }
  std::span<const Attribute> list() const noexcept { return {list_, size_}; }

 private:
  Attribute& added(Text name, Attribute::Kind kind) {
    if (size_ == kMost) throw std::out_of_range("more attributes than an operator has");
    Attribute& attribute = *std::construct_at(&list_[size_++]);
    attribute.name = name;
    attribute.kind = kind;
    return attribute;
  }

  static constexpr std::size_t kMost = 8;  // no operator has more

  union {
    Attribute list_[kMost];  // the first size_ are made
  };
  std::size_t size_ = 0;
};

}  // namespace perfpass::onnx
