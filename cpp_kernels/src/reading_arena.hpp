// The memory that a model's structure is read into: one block of huge pages, then the heap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory_resource>

#include "page_block.hpp"

namespace perfpass::onnx {

class ReadingArena {
 public:
  /// `file_bytes` is a hint: lists take about two and a half times the room of the structure they were read from. The
  /// block is capped at what some 12,000 nodes need; what goes beyond comes from the heap.
  explicit ReadingArena(std::size_t file_bytes)
      : block_(std::clamp<std::size_t>(file_bytes * 5 / 2, 1 << 16, 8 << 20)),
        // Without a block the resource goes to the heap at once.
        resource_(block_.data() == nullptr ? &spare_ : static_cast<void*>(block_.data()),
                  block_.data() == nullptr ? sizeof spare_ : block_.size()) {}
  ReadingArena(const ReadingArena&) = delete;
  ReadingArena& operator=(const ReadingArena&) = delete;

  std::pmr::memory_resource& resource() noexcept { return resource_; }

 private:
  PageBlock block_;
  std::max_align_t spare_{};
  std::pmr::monotonic_buffer_resource resource_;
};

}  // namespace perfpass::onnx
