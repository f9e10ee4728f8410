// Tensor names of one graph to positions: an open-addressing table of text views. It allocates twice and never per
// name.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <utility>
#include <vector>

#include "text_hash.hpp"

namespace perfpass::onnx {

class NameTable {
 public:
  explicit NameTable(std::size_t expected, std::pmr::memory_resource& memory = *std::pmr::get_default_resource())
      : entries_(std::bit_ceil(std::max<std::size_t>(8, expected * 2)), &memory) {}

  static constexpr std::uint32_t kAbsent = ~std::uint32_t{0};

  std::uint32_t find(std::string_view name) const noexcept {
    const std::uint64_t h = hash_text(name);
    for (std::size_t i = h & mask();; i = (i + 1) & mask()) {
      const Entry& entry = entries_[i];
      if (entry.position == kAbsent) return kAbsent;
      if (entry.tag == static_cast<std::uint32_t>(h >> 32) && entry.name == name) return entry.position;
    }
  }

  /// The position kept under the name, and whether it was added now.
  std::pair<std::uint32_t, bool> insert(std::string_view name, std::uint32_t position) {
    if ((size_ + 1) * 2 > entries_.size()) grow();
    const std::uint64_t h = hash_text(name);
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

  std::size_t mask() const noexcept { return entries_.size() - 1; }

  void grow() {
    std::pmr::vector<Entry> old(entries_.size() * 2, entries_.get_allocator());
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.position == kAbsent) continue;
      std::size_t i = hash_text(entry.name) & mask();
      while (entries_[i].position != kAbsent) i = (i + 1) & mask();
      entries_[i] = entry;
    }
  }

  std::pmr::vector<Entry> entries_;  // a power of two, at most half full
  std::size_t size_ = 0;
};

}  // namespace perfpass::onnx
