// Tensor names of one graph to positions in the order they were added: an open-addressing table. It allocates three
// times and never per name. Its slots take eight bytes each: a lookup is a cache miss, so what it misses must be small.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <utility>
#include <vector>

#include "support/text_hash.hpp"

namespace perfpass::onnx {

class NameTable {
 public:
  explicit NameTable(std::size_t expected, std::pmr::memory_resource& memory = *std::pmr::get_default_resource())
      : entries_(std::bit_ceil(std::max<std::size_t>(8, expected * 2)), &memory), names_(&memory) {
    names_.reserve(expected);
  }

  static constexpr std::uint32_t kAbsent = ~std::uint32_t{0};

  static std::uint32_t hash(std::string_view name) noexcept { return static_cast<std::uint32_t>(hash_text(name)); }

  /// Asks for the memory that a lookup of the hash will read, some nodes ahead of it.
  void prefetch(std::uint32_t hash) const noexcept { __builtin_prefetch(&entries_[hash & mask()]); }

  std::uint32_t find(std::string_view name) const noexcept { return find(name, hash(name)); }
  std::uint32_t find(std::string_view name, std::uint32_t hash) const noexcept {
    for (std::size_t i = hash & mask();; i = (i + 1) & mask()) {
      const Entry& entry = entries_[i];
      if (entry.position == kAbsent || (entry.hash == hash && names_[entry.position] == name)) return entry.position;
    }
  }

  /// The position of the name, and whether it was added now.
  std::pair<std::uint32_t, bool> insert(std::string_view name) { return insert(name, hash(name)); }
  std::pair<std::uint32_t, bool> insert(std::string_view name, std::uint32_t hash) {
    if ((names_.size() + 1) * 2 > entries_.size()) grow();
    for (std::size_t i = hash & mask();; i = (i + 1) & mask()) {
      Entry& entry = entries_[i];
      if (entry.position == kAbsent) {
        entry = {hash, static_cast<std::uint32_t>(names_.size())};
        names_.push_back(name);
        return {entry.position, true};
      }
      if (entry.hash == hash && names_[entry.position] == name) return {entry.position, false};
    }
  }

 private:
  struct Entry {
    std::uint32_t hash = 0;
    std::uint32_t position = kAbsent;
  };

  std::size_t mask() const noexcept { return entries_.size() - 1; }

  void grow() {
    std::pmr::vector<Entry> old(entries_.size() * 2, entries_.get_allocator());
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.position == kAbsent) continue;
      std::size_t i = entry.hash & mask();
      while (entries_[i].position != kAbsent) i = (i + 1) & mask();
      entries_[i] = entry;
    }
  }

  std::pmr::vector<Entry> entries_;  // a power of two, at most half full
  std::pmr::vector<std::string_view> names_;
};

}  // namespace perfpass::onnx
