#include "flatbuffer/source.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "perfpass/error.hpp"
#include "support/text.hpp"

namespace perfpass::flatbuffer {
namespace {

constexpr std::uint64_t kOffsets = std::uint64_t{4} << 30;  // FlatBuffers have 32-bit offsets
constexpr std::uint64_t kStructure = std::uint64_t{1}
                                     << 30;  // of a file without its weights: a million nodes take less
constexpr std::uint64_t kFewEntries = std::uint64_t{1} << 16;  // any file may have so many
constexpr std::uint64_t kMostEntries = std::uint64_t{1} << 25;

[[noreturn]] void fail_io(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::io, quoted(path) + " " + what);
}

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

// An entry takes a byte at least, unless it is shared.
std::uint64_t entries_of(std::uint64_t size) { return std::clamp(size, kFewEntries, kMostEntries); }

}  // namespace

Source::Source(std::span<const std::uint8_t> bytes)
    : size_(bytes.size()),
      reach_(std::min<std::uint64_t>(bytes.size(), kOffsets)),
      data_(bytes.data()),
      entries_left_(entries_of(bytes.size())) {}

Source::Source(const std::string& path, std::uint64_t most_bytes) : path_(path) {
  if (path.find('\0') != std::string::npos) fail_io(path, "holds a zero byte and cannot name a file");
  file_ = std::make_unique<Descriptor>(path);
  if (file_->value() < 0) fail_io(path, "cannot be opened: " + reason(errno));
  FileStatus status;
  if (!examine(file_->value(), status)) fail_io(path, "cannot be examined: " + reason(errno));
  if (status.other_kind != nullptr) fail_io(path, std::string(status.other_kind) + "; give the path of a model file");
  if (status.size > most_bytes) {
    throw Error(ErrorCode::limit, quoted(path) + " has " + std::to_string(status.size) + " bytes; at most " +
                                      std::to_string(most_bytes) + " are read");
  }
  size_ = status.size;
  reach_ = std::min(size_, kOffsets);
  entries_left_ = entries_of(size_);
  space_ = ReservedSpace(static_cast<std::size_t>((reach_ + kBlock - 1) / kBlock * kBlock));
  if (reach_ > 0 && space_.data() == nullptr) {
    fail_io(path, "cannot be read: the system gives no room for its " + std::to_string(reach_) + " bytes");
  }
  data_ = reinterpret_cast<const std::uint8_t*>(space_.data());
  is_in_blocks_ = size_ > kSmall;
  if (is_in_blocks_) {
    loaded_.resize((reach_ + kBlock - 1) / kBlock);
  } else {
    fill(0, reach_);
  }
}

void Source::load_block(std::uint64_t block) const {
  const std::uint64_t from = block * kBlock;
  const std::uint64_t length = std::min(kBlock, reach_ - from);
  loaded_bytes_ += length;
  if (loaded_bytes_ > kStructure) {
    throw Error(ErrorCode::limit, quoted(path_) + " spreads its structure over more than " +
                                      std::to_string(kStructure) + " bytes; no real model does");
  }
  fill(from, length);
  loaded_[block] = 1;
}

void Source::fill(std::uint64_t from, std::uint64_t length) const {
  if (length == 0) return;
  std::byte* to = space_.commit_at_once(static_cast<std::size_t>(from), static_cast<std::size_t>(length));
  if (to == nullptr) fail_io(path_, "cannot be read: no memory is left");
  for (std::uint64_t done = 0; done < length;) {
    const std::ptrdiff_t got = read_at(file_->value(), to + done, static_cast<std::size_t>(length - done), from + done);
    if (got < 0) fail_io(path_, "cannot be read: " + reason(errno));
    if (got == 0) fail_io(path_, "became shorter while it was read; read it again when nobody writes it");
    done += static_cast<std::uint64_t>(got);
  }
}

void Source::fail_outside(std::uint64_t offset, std::uint64_t length) const {
  throw Error(ErrorCode::format, "an offset leads to byte " + std::to_string(offset) + " for " +
                                     std::to_string(length) + " bytes; the file has " + std::to_string(size_) +
                                     " and is damaged or cut short");
}

void Source::fail_shared() const {
  throw Error(ErrorCode::limit, "the lists of the file have more entries than its " + std::to_string(size_) +
                                    " bytes can hold, or more than " + std::to_string(kMostEntries) +
                                    "; it is damaged or not meant to be read");
}

}  // namespace perfpass::flatbuffer
