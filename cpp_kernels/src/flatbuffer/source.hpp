// The bytes of a FlatBuffer: all of them in memory, or a file of which only the blocks that are asked for are read.
//
// Weights lie between the tables of a file. What is asked for stays where it is for as long as the object lives, so
// that text can be a view; what happens to the file afterwards does not matter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support/descriptor.hpp"
#include "support/reserved_space.hpp"

namespace perfpass::flatbuffer {

class Source {
 public:
  explicit Source(std::span<const std::uint8_t> bytes);
  /// Error(io) where there is no readable regular file or it shrinks while it is read, Error(limit) past `most_bytes`.
  Source(const std::string& path, std::uint64_t most_bytes);
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  std::uint64_t size() const noexcept { return size_; }

  /// `length` bytes from `offset` on. Error(format) where they are not all in the file.
  const std::uint8_t* at(std::uint64_t offset, std::uint64_t length) const {
    if (length > reach_ || offset > reach_ - length) fail_outside(offset, length);
    if (is_in_blocks_ && length > 0) load(offset, length);
    return data_ + offset;
  }

  /// Counts entries of lists: tables that are shared a thousandfold would make a small file a large model.
  /// Error(limit).
  void spend(std::uint64_t entries) const {
    if (entries > entries_left_) fail_shared();
    entries_left_ -= entries;
  }

 private:
  [[noreturn]] void fail_shared() const;
  [[noreturn]] void fail_outside(std::uint64_t offset, std::uint64_t length) const;
  void load(std::uint64_t offset, std::uint64_t length) const {
    const std::uint64_t last = (offset + length - 1) / kBlock;
    for (std::uint64_t block = offset / kBlock; block <= last; ++block) {
      if (!loaded_[block]) load_block(block);
    }
  }
  void load_block(std::uint64_t block) const;
  void fill(std::uint64_t from, std::uint64_t length) const;

  static constexpr std::uint64_t kBlock = 16 << 10;
  static constexpr std::uint64_t kSmall = 4 << 20;  // a file that is read whole: what is asked for is most of it

  std::uint64_t size_ = 0;
  std::uint64_t reach_ = 0;  // what 32-bit offsets can reach
  const std::uint8_t* data_ = nullptr;
  std::string path_;
  std::unique_ptr<Descriptor> file_;
  bool is_in_blocks_ = false;
  ReservedSpace space_;
  mutable std::vector<std::uint8_t> loaded_;  // by block
  mutable std::uint64_t loaded_bytes_ = 0;
  mutable std::uint64_t entries_left_ = 0;
};

}  // namespace perfpass::flatbuffer
