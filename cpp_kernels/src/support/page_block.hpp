// Memory from the kernel, in huge pages where it is large and the system has them.
//
// Faulting in 6 MB by pages of 4 KiB takes as long as filling them (2.6 ms on a virtual machine, against 0.13 ms in
// pages of 2 MiB). Pages that are not touched cost nothing. A block that is given back is kept for the next one: who
// reads model after model has the kernel clear its pages once. What a block holds at first is therefore not known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

#include "support/reserved_space.hpp"

namespace perfpass {

class PageBlock {
 public:
  PageBlock() noexcept = default;
  /// Of `size` bytes or more. Empty where the kernel gives none.
  explicit PageBlock(std::size_t size) noexcept {
    take_kept(size);
    if (data_ == nullptr) make(size);
  }
  ~PageBlock() { keep(); }
  PageBlock(PageBlock&& other) noexcept { swap(other); }
  PageBlock& operator=(PageBlock&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t kHugePage = 2 << 20;
  static constexpr std::size_t kLargestKept = 32 << 20;  // of addresses; what is written of them stays in memory

  struct Kept;
  static Kept& kept() noexcept;

  void make(std::size_t size) noexcept {
    space_ = ReservedSpace(size + kHugePage);
    if (space_.data() == nullptr) return;
    data_ = space_.commit(0, size + kHugePage);
    if (data_ == nullptr) return;
    size_ = size;
    if (size < kHugePage / 2) return;
    const auto past = reinterpret_cast<std::uintptr_t>(data_) % kHugePage;
    if (past != 0) data_ += kHugePage - past;
#ifdef MADV_HUGEPAGE
    ::madvise(data_, size_, MADV_HUGEPAGE);  // a request: refused where the system has none
#endif
  }
  void take_kept(std::size_t size) noexcept;
  void keep() noexcept;

  void swap(PageBlock& other) noexcept {
    std::swap(space_, other.space_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  ReservedSpace space_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

struct PageBlock::Kept {
  std::mutex mutex;
  PageBlock block;
};

/// One of the process, never destroyed: threads may read models while it ends.
inline PageBlock::Kept& PageBlock::kept() noexcept {
  alignas(Kept) static std::byte memory[sizeof(Kept)];
  static Kept& made = *new (memory) Kept;
  return made;
}

// Nobody waits: another thread's turn, or a process forked in the middle of one, has a block of its own made.
inline void PageBlock::take_kept(std::size_t size) noexcept {
  Kept& store = kept();
  const std::unique_lock lock(store.mutex, std::try_to_lock);
  if (lock.owns_lock() && store.block.size_ >= size) swap(store.block);
}

inline void PageBlock::keep() noexcept {
  if (data_ == nullptr || size_ > kLargestKept) return;
  Kept& store = kept();
  const std::unique_lock lock(store.mutex, std::try_to_lock);
  if (lock.owns_lock() && store.block.size_ < size_) swap(store.block);
}

}  // namespace perfpass
