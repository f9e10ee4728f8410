// The memory that a model's structure is read into: one block of huge pages, then the heap.
//
// A file of 9,000 nodes fills some 6 MB. Faulting those in by pages of 4 KiB takes as long as filling them (2.6 ms for
// 6 MB on a virtual machine, against 0.13 ms in pages of 2 MiB).
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>

namespace perfpass::onnx {

class ReadingArena {
 public:
  /// `file_bytes` is a hint: lists take about two and a half times the room of the structure they were read from. The
  /// block is capped at what some 12,000 nodes need; what goes beyond comes from the heap. Untouched pages cost
  /// nothing.
  explicit ReadingArena(std::size_t file_bytes)
      : size_(std::clamp<std::size_t>(file_bytes * 5 / 2, 1 << 16, 8 << 20)),
        mapping_(::mmap(nullptr, size_ + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        resource_(block(), mapping_ == MAP_FAILED ? sizeof spare_ : size_) {}
  ~ReadingArena() {
    if (mapping_ != MAP_FAILED) ::munmap(mapping_, size_ + kHugePage);
  }
  ReadingArena(const ReadingArena&) = delete;
  ReadingArena& operator=(const ReadingArena&) = delete;

  std::pmr::memory_resource& resource() noexcept { return resource_; }

 private:
  static constexpr std::size_t kHugePage = 2 << 20;

  void* block() noexcept {
    if (mapping_ == MAP_FAILED) return &spare_;  // the resource then goes to the heap at once
    auto* first = static_cast<std::byte*>(mapping_);
    if (size_ < kHugePage / 2) return first;
    const auto past = reinterpret_cast<std::uintptr_t>(first) % kHugePage;
    std::byte* aligned = past == 0 ? first : first + (kHugePage - past);
    ::madvise(aligned, size_, MADV_HUGEPAGE);  // a request: refused where the system has none
    return aligned;
  }

  std::size_t size_;
  void* mapping_;
  std::max_align_t spare_{};
  std::pmr::monotonic_buffer_resource resource_;
};

}  // namespace perfpass::onnx
