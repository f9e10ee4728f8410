// The memory that a model's structure is read into: one block of huge pages, then the heap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <span>

#include "support/page_block.hpp"

namespace perfpass {

class ReadingArena {
 public:
  /// In memory that outlives the arena.
  explicit ReadingArena(std::span<std::byte> memory) : resource_(memory.data(), memory.size()) {}
  /// For a model of so many bytes.
  explicit ReadingArena(std::size_t model_bytes)
      : block_(room_for(model_bytes)),
        // Without a block the resource goes to the heap at once.
        resource_(block_.data() == nullptr ? &spare_ : static_cast<void*>(block_.data()),
                  block_.data() == nullptr ? sizeof spare_ : block_.size()) {}
  ReadingArena(const ReadingArena&) = delete;
  ReadingArena& operator=(const ReadingArena&) = delete;

  std::pmr::memory_resource& resource() noexcept { return resource_; }

  /// Lists take three to six times the room of the structure they are read from. Capped at what some 40,000 nodes need;
  /// what goes beyond comes from the heap.
  static constexpr std::size_t room_for(std::size_t model_bytes) noexcept {
    return std::clamp<std::size_t>(model_bytes * 6, 1 << 16, 24 << 20);
  }

 private:
  PageBlock block_;
  std::max_align_t spare_{};
  std::pmr::monotonic_buffer_resource resource_;
};

}  // namespace perfpass
