#include "support/descriptor.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#ifdef _WIN32
#include <io.h>

#include <algorithm>
#include <filesystem>
#include <new>
#else
#include <unistd.h>
#endif

namespace perfpass {

#ifdef _WIN32

namespace {

int open_to_read(const std::string& path) noexcept {
  try {
    const std::u8string text(path.begin(), path.end());
    return ::_wopen(std::filesystem::path(text).c_str(), _O_RDONLY | _O_BINARY | _O_NOINHERIT);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  } catch (...) {  // not UTF-8
    errno = EINVAL;
  }
  return -1;
}

}  // namespace

Descriptor::Descriptor(const std::string& path) noexcept : value_(open_to_read(path)) {}

Descriptor::~Descriptor() {
  if (value_ >= 0) ::_close(value_);
}

bool examine(int descriptor, FileStatus& status) noexcept {
  struct _stat64 found{};
  if (::_fstat64(descriptor, &found) != 0) return false;
  const int kind = found.st_mode & _S_IFMT;
  status.size = static_cast<std::uint64_t>(found.st_size);
  status.other_kind = kind == _S_IFREG   ? nullptr
                      : kind == _S_IFDIR ? "is a directory"
                      : kind == _S_IFIFO ? "is a named pipe"
                                         : "is a device";
  return true;
}

std::ptrdiff_t read_at(int descriptor, void* to, std::size_t size, std::uint64_t from) noexcept {
  if (::_lseeki64(descriptor, static_cast<std::int64_t>(from), SEEK_SET) < 0) return -1;
  return ::_read(descriptor, to, static_cast<unsigned>(std::min<std::size_t>(size, 1 << 30)));
}

#else

// O_NONBLOCK: opening a named pipe must not wait for a writer.
Descriptor::Descriptor(const std::string& path) noexcept
    : value_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}

Descriptor::~Descriptor() {
  if (value_ >= 0) ::close(value_);
}

bool examine(int descriptor, FileStatus& status) noexcept {
  struct stat found{};
  if (::fstat(descriptor, &found) != 0) return false;
  status.size = static_cast<std::uint64_t>(found.st_size);
  status.other_kind = S_ISREG(found.st_mode)    ? nullptr
                      : S_ISDIR(found.st_mode)  ? "is a directory"
                      : S_ISFIFO(found.st_mode) ? "is a named pipe"
                      : S_ISSOCK(found.st_mode) ? "is a socket"
                                                : "is a device";
  return true;
}

std::ptrdiff_t read_at(int descriptor, void* to, std::size_t size, std::uint64_t from) noexcept {
  for (;;) {
    const ssize_t got = ::pread(descriptor, to, size, static_cast<off_t>(from));
    if (got >= 0 || errno != EINTR) return got;
  }
}

#endif

}  // namespace perfpass
