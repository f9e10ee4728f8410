// Tensor names of one graph to positions: an open-addressing table of text views. It allocates twice and never per
// name.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace perfpass::onnx {

class NameTable {
 public:
  explicit NameTable(std::size_t expected) : entries_(std::bit_ceil(std::max<std::size_t>(8, expected * 2))) {}

  static constexpr std::uint32_t kAbsent = ~std::uint32_t{0};

  std::uint32_t find(std::string_view name) const noexcept {
    const std::uint64_t h = hash(name);
    for (std::size_t i = h & mask();; i = (i + 1) & mask()) {
      const Entry& entry = entries_[i];
      if (entry.position == kAbsent) return kAbsent;
      if (entry.tag == static_cast<std::uint32_t>(h >> 32) && entry.name == name) return entry.position;
    }
  }

  /// The position kept under the name, and whether it was added now.
  std::pair<std::uint32_t, bool> insert(std::string_view name, std::uint32_t position) {
    if ((size_ + 1) * 2 > entries_.size()) grow();
    const std::uint64_t h = hash(name);
    for (std::size_t i = h & mask();; i = (i + 1) & mask()) {
      Entry& entry = entries_[i];
      if (entry.position == kAbsent) {
        entry = {name, position, static_cast<std::uint32_t>(h >> 32)};
        ++size_;
        return {position, true};
      }
      if (entry.tag == static_cast<std::uint32_t>(h >> 32) && entry.name == name) return {entry.position, false};
    }
  }

 private:
  struct Entry {
    std::string_view name;
    std::uint32_t position = kAbsent;
    std::uint32_t tag = 0;  // upper half of the hash: names are compared only where it agrees
  };

  /// Multiply and fold, eight bytes at a time. The seed differs from process to process (the address of a stack
  /// variable, which the kernel randomises), so that no file can be made to collide on purpose.
  static std::uint64_t hash(std::string_view name) noexcept {
    static const std::uint64_t seed = [] {
      const int here = 0;
      return reinterpret_cast<std::uintptr_t>(&here) * 0x9e3779b97f4a7c15ULL;
    }();
    std::uint64_t h = seed ^ name.size();
    const char* at = name.data();
    std::size_t left = name.size();
    for (; left >= 8; at += 8, left -= 8) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      h = fold(h ^ word);
    }
    if (left > 0) {
      std::uint64_t word = 0;
      std::memcpy(&word, at, left);
      h = fold(h ^ word);
    }
    return fold(h);
  }

  static std::uint64_t fold(std::uint64_t value) noexcept {
    value *= 0xd6e8feb86659fd93ULL;
    return value ^ (value >> 32);
  }

  std::size_t mask() const noexcept { return entries_.size() - 1; }

  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.position == kAbsent) continue;
      std::size_t i = hash(entry.name) & mask();
      while (entries_[i].position != kAbsent) i = (i + 1) & mask();
      entries_[i] = entry;
    }
  }

  std::vector<Entry> entries_;  // a power of two, at most half full
  std::size_t size_ = 0;
};

}  // namespace perfpass::onnx
