#include "onnx/known_nodes.hpp"

#include <algorithm>
#include <bit>

#include "support/text_hash.hpp"

namespace perfpass::onnx {

KnownNodes::Key::Key(const InferContext& context) noexcept {
  constexpr std::size_t kOfNode = 4;
  const auto& attributes = context.node.attributes;
  const auto fits = [&] {
    if (kOfNode + attributes.size() > kMost) return false;
    add(reinterpret_cast<std::uintptr_t>(context.entry));
    add(static_cast<std::uint64_t>(context.opset));
    add(context.max_values);
    add(attributes.size() << 32 | context.inputs.size());
    for (const Attribute& attribute : attributes) add(reinterpret_cast<std::uintptr_t>(attribute.name.data()));
    const bool told = context.node.entry == nullptr ||
                      std::all_of(attributes.begin(), attributes.end(), [&](auto& one) { return add(one); });
    if (!told) return false;
    return std::all_of(context.inputs.begin(), context.inputs.end(), [&](const Value* value) {
      if (value != nullptr) return add(*value);
      if (size_ == kMost) return false;
      add(~std::uint64_t{0});
      return true;
    });
  };
  if (!fits()) {
    size_ = kMost + 1;
    return;
  }
  hash_ = hash_text({reinterpret_cast<const char*>(words_.data()), size_ * sizeof(std::uint64_t)});
}

bool KnownNodes::Key::add(const Attribute& attribute) noexcept {
  using Kind = Attribute::Kind;
  constexpr std::size_t kOfText = 2;
  if (attribute.kind == Kind::integers ? attribute.integers.size() >= kMost - size_ : kOfText > kMost - size_)
    return false;
  if (attribute.kind == Kind::integer) {
    add(static_cast<std::uint64_t>(attribute.integer));
  } else if (attribute.kind == Kind::integers) {
    add(attribute.integers.size());
    for (const std::int64_t number : attribute.integers) add(static_cast<std::uint64_t>(number));
  } else if (attribute.kind == Kind::text) {  // one of few that the reader has, each at its place
    add(reinterpret_cast<std::uintptr_t>(attribute.text.data()));
    add(attribute.text.size());
  } else {
    return false;
  }
  return true;
}

bool KnownNodes::Key::add(const Value& value) noexcept {
  const std::size_t sizes = value.shape.size() + value.integers.size() + value.reals.size();
  if (sizes >= kMost - size_ || value.has_elements) return false;
  const auto flags = static_cast<unsigned>(value.has_shape) | static_cast<unsigned>(value.has_values) << 1 |
                     static_cast<unsigned>(value.is_constant) << 2;
  add(static_cast<std::uint64_t>(value.dtype) | static_cast<std::uint64_t>(value.selects) << 8 |
      std::uint64_t{flags} << 16 | value.shape.size() << 24 | value.integers.size() << 32 | value.reals.size() << 40);
  for (const std::int64_t size : value.shape) add(static_cast<std::uint64_t>(size));
  for (const std::int64_t number : value.integers) add(static_cast<std::uint64_t>(number));
  for (const double number : value.reals) add(std::bit_cast<std::uint64_t>(number));
  return true;
}

bool KnownNodes::Key::operator==(const Key& other) const noexcept {
  return size_ == other.size_ && std::equal(words_.begin(), words_.begin() + size_, other.words_.begin());
}

bool KnownNodes::infer(InferContext& context) {
  const Key key(context);
  if (!key.is_whole()) return onnx::infer(context);
  std::uint16_t& place = place_[key.hash() >> (64 - kBits)];
  if (place != 0 && known_[place - 1].key == key) {
    context.attributes = known_[place - 1].attributes;
    context.outputs[0] = known_[place - 1].output;
    return true;
  }
  if (!onnx::infer(context)) return false;
  if (context.assumed) return true;  // who asks must learn of it
  const Known known{key, context.attributes, context.outputs[0]};
  if (place == 0) {
    known_.push_back(known);
    place = static_cast<std::uint16_t>(known_.size());
  } else {
    known_[place - 1] = known;
  }
  return true;
}

}  // namespace perfpass::onnx
