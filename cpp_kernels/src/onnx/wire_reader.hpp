// What the readers of ONNX messages share: bounded lists in the arena, checked wire types, texts.
#pragma once

#include <array>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <type_traits>

#include "onnx/model.hpp"
#include "onnx/protobuf_fields.hpp"
#include "support/text_hash.hpp"

namespace perfpass::onnx {

using Bytes = std::span<const std::uint8_t>;

/// For payloads that are left out although their bytes matter: they are longer than any that a model has.
[[noreturn, gnu::cold, gnu::noinline]] inline void fail_missing(const FieldReader& reader, const Field& field,
                                                                const char* what) {
  reader.fail("has " + std::string(what) + " of " + std::to_string(field.value) + " bytes, too many to be one");
}

/// Numbers of a repeated scalar field, packed or not, in order of appearance.
template <typename Visit>
void each_number(const Field& field, const Excerpt& file, Wire element, Visit visit) {
  if (field.wire == element) {
    visit(field.value);
    return;
  }
  FieldReader reader(field.payload, file);
  if (field.is_missing()) fail_missing(reader, field, "a list");
  if (element == Wire::varint) {
    for (std::uint64_t value = 0; reader.next_packed_varint(value);) visit(value);
  } else if (element == Wire::fixed32) {
    for (std::uint64_t value = 0; reader.next_packed<std::uint32_t>(value);) visit(value);
  } else {
    for (std::uint64_t value = 0; reader.next_packed<std::uint64_t>(value);) visit(value);
  }
}

/// Short messages and what was read of them, by hash, the last one wins: the layers of a model repeat some dozens of
/// types and attributes.
template <typename T>
class KnownMessages {
 public:
  struct Entry {
    Text message;
    T value;
  };

  /// The place of a message, which may hold another one; nullptr where messages like it are not kept.
  Entry* place(Text message) noexcept {
    constexpr std::size_t kLongest = 128;
    if (message.empty() || message.size() > kLongest) return nullptr;
    return &entries_[hash_text(message) % entries_.size()];
  }

 private:
  std::array<Entry, 256> entries_{};
};

class WireReader {
 protected:
  WireReader(const Excerpt& file, const OnnxLimits& limits, std::pmr::memory_resource& arena)
      : file_(file), limits_(limits), arena_(arena) {}

  /// Room for n elements, not yet initialised: a file that claims a million nodes and fails at the first must not make
  /// a million nodes' memory resident.
  template <typename T>
  std::span<T> make(std::size_t n) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (n == 0) return {};
    return {static_cast<T*>(arena_.allocate(n * sizeof(T), alignof(T))), n};
  }

  template <typename T>
  T& make_one() {
    return *std::construct_at(make<T>(1).data());
  }

  /// The next element of a list from make, initialised.
  template <typename T>
  static T& fresh(std::span<T> list, std::size_t& i) {
    return *std::construct_at(&list[i++]);
  }

  static void require_name(Text name, const char* what) {
    if (name.empty()) throw Error(ErrorCode::format, std::string(what) + " has no name; the file is damaged");
  }

  static void expect(const FieldReader& reader, const Field& field, Wire wire, const char* name) {
    if (field.wire != wire) fail_wire(reader, field.wire, wire, name);
  }

  /// A repeated scalar: its own wire type, or packed bytes.
  static void expect_list(const FieldReader& reader, const Field& field, Wire wire, const char* name) {
    if (field.wire != Wire::bytes) expect(reader, field, wire, name);
  }

  static void bound(std::size_t found, std::size_t allowed, const char* what) {
    if (found > allowed) fail_bound(found, allowed, what);
  }

  Text text(const FieldReader& reader, const Field& field, const char* name) const {
    expect(reader, field, Wire::bytes, name);
    if (field.value > limits_.string_bytes) fail_text(field.value, limits_.string_bytes, name);
    return view(field.payload);
  }

  static Text view(Bytes payload) { return {reinterpret_cast<const char*>(payload.data()), payload.size()}; }

  void check_depth(int depth) const {
    if (depth <= limits_.nesting) return;
    throw Error(ErrorCode::limit, "subgraphs or types nested more than " + std::to_string(limits_.nesting) +
                                      " deep; at most " + std::to_string(limits_.nesting) + " levels are allowed");
  }

 private:
  // Out of line, so that the checks above stay a comparison each.
  [[noreturn, gnu::cold, gnu::noinline]] static void fail_wire(const FieldReader& reader, Wire found, Wire wanted,
                                                               const char* name) {
    static constexpr std::array<const char*, 6> kNames = {"a varint", "a fixed64", "bytes", "", "", "a fixed32"};
    reader.fail(std::string("stores ") + name + " as " + kNames[static_cast<std::size_t>(found)] + ", not as " +
                kNames[static_cast<std::size_t>(wanted)]);
  }
  [[noreturn, gnu::cold, gnu::noinline]] static void fail_bound(std::size_t found, std::size_t allowed,
                                                                const char* what) {
    throw Error(ErrorCode::limit, std::to_string(found) + " " + std::string(what) + "; at most " +
                                      std::to_string(allowed) + " are allowed");
  }
  [[noreturn, gnu::cold, gnu::noinline]] static void fail_text(std::uint64_t found, std::size_t allowed,
                                                               const char* name) {
    throw Error(ErrorCode::limit, std::string(name) + " of " + std::to_string(found) + " bytes; at most " +
                                      std::to_string(allowed) + " are allowed");
  }

 protected:
  const Excerpt& file_;
  const OnnxLimits& limits_;
  std::pmr::memory_resource& arena_;
};

}  // namespace perfpass::onnx
