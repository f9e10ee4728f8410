// A range of addresses that takes memory only where it is written: room for a file of which little will be read.
#pragma once

#include <cstddef>
#include <utility>

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <sys/mman.h>
#endif

namespace perfpass {

class ReservedSpace {
 public:
  ReservedSpace() noexcept = default;
  /// Empty where the system gives none.
  explicit ReservedSpace(std::size_t size) noexcept : data_(size == 0 ? nullptr : reserve(size)), size_(size) {}
  ~ReservedSpace() {
    if (data_ != nullptr) release(data_, size_);
  }
  ReservedSpace(ReservedSpace&& other) noexcept { swap(other); }
  ReservedSpace& operator=(ReservedSpace&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const noexcept { return data_; }

  /// A part of the range, ready to be written; nullptr where no memory is left.
  std::byte* commit(std::size_t from, std::size_t length) const noexcept {
#ifdef _WIN32
    return ::VirtualAlloc(data_ + from, length, MEM_COMMIT, PAGE_READWRITE) == nullptr ? nullptr : data_ + from;
#else
    static_cast<void>(length);
    return data_ + from;
#endif
  }

  /// The same, with its pages made at once where the system can: a fault for each takes several times as long.
  std::byte* commit_at_once(std::size_t from, std::size_t length) const noexcept {
#ifdef MADV_POPULATE_WRITE
    ::madvise(data_ + from, length, MADV_POPULATE_WRITE);  // a request: older kernels refuse it
#endif
    return commit(from, length);
  }

 private:
#ifdef _WIN32
  static std::byte* reserve(std::size_t size) noexcept {
    return static_cast<std::byte*>(::VirtualAlloc(nullptr, size, MEM_RESERVE, PAGE_READWRITE));
  }
  static void release(void* at, std::size_t) noexcept { ::VirtualFree(at, 0, MEM_RELEASE); }
#else
  static std::byte* reserve(std::size_t size) noexcept {
#ifdef MAP_NORESERVE
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#else
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
#endif
    void* mapping = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, kFlags, -1, 0);
    return mapping == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapping);
  }
  static void release(void* at, std::size_t size) noexcept { ::munmap(at, size); }
#endif

  void swap(ReservedSpace& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace perfpass
