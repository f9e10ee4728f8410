// Files by their descriptor: opening one to read, what it is, and bytes at a place. POSIX, or the C library of Windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace perfpass {

/// A file opened to read, closed with the object. Opening never waits: not for a writer of a named pipe either.
class Descriptor {
 public:
  /// `path` in UTF-8, or in bytes as the file system has them. Negative value() where it cannot be opened; errno says
  /// why.
  explicit Descriptor(const std::string& path) noexcept;
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int value() const noexcept { return value_; }

 private:
  int value_;
};

struct FileStatus {
  const char* other_kind = nullptr;  // "is a directory", ...; null for a regular file
  std::uint64_t size = 0;            // in bytes
};

/// False where the file cannot be examined; errno says why.
bool examine(int descriptor, FileStatus& status) noexcept;

/// At most `size` bytes from byte `from`. Returns how many there were, 0 at the end, -1 where reading fails; errno says
/// why.
std::ptrdiff_t read_at(int descriptor, void* to, std::size_t size, std::uint64_t from) noexcept;

}  // namespace perfpass
