// Messages and field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
//
// The file is read front to back in blocks into one buffer; where a payload is left out, what was read of it is
// dropped and reading goes on behind it, with small blocks again. Neither mapping the file nor reading it whole would
// do: a mapping makes the kernel map runs of cached pages around every byte that is touched, hundreds of megabytes of
// weights, and a file that is cut off by another process meanwhile would end this one.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <system_error>

#include "onnx/file.hpp"
#include "onnx/model.hpp"
#include "onnx/protobuf_fields.hpp"
#include "perfpass/error.hpp"
#include "support/descriptor.hpp"
#include "support/reading_arena.hpp"
#include "support/text.hpp"

namespace perfpass::onnx {
namespace {

constexpr std::size_t kFirstReserve = 32 << 20;  // of address space; pages are taken when they are written
constexpr std::size_t kFirstBlock = kMinGap;     // behind a gap: mostly one tensor's head
constexpr std::size_t kLastBlock = 256 << 10;
constexpr std::uint64_t kLongestHeader = 20;  // a tag and a length, ten bytes each at most
constexpr std::uint64_t kTailKept = 1024;     // of a damaged message: the parser stops at the same byte
constexpr std::uint64_t kLongestVarint = 10;
constexpr std::uint64_t kAttributeList = std::uint64_t{kLongestVarint} << 20;  // the parser reads 2^20 elements at most
constexpr std::uint64_t kDeclaration = 1 << 20;  // types nest: the parser finds those that nest too deep

enum class Message : std::uint8_t {
  model,
  graph,
  node,
  attribute,
  function,
  tensor,
  sparse_tensor,
  flat,  // with texts and no messages that can hold tensors
};

/// The message that a field holds, where its parts can be left out.
std::optional<Message> part(Message message, std::uint64_t number) {
  switch (message) {
    case Message::model:
      if (number == 7) return Message::graph;
      if (number == 8) return Message::flat;
      if (number == 25) return Message::function;
      break;
    case Message::graph:
      if (number == 1) return Message::node;
      if (number == 5) return Message::tensor;
      if (number >= 11 && number <= 13) return Message::flat;
      if (number == 15) return Message::sparse_tensor;
      break;
    case Message::node:
      if (number == 5) return Message::attribute;
      break;
    case Message::attribute:
      if (number == 5) return Message::tensor;
      if (number == 6) return Message::graph;
      break;
    case Message::function:
      if (number == 7) return Message::node;
      if (number == 9 || number == 12) return Message::flat;
      if (number == 11) return Message::attribute;
      break;
    case Message::sparse_tensor:
      if (number == 1) return Message::tensor;
      break;
    default:
      break;
  }
  return std::nullopt;
}

struct Header {
  std::uint64_t number;
  Wire wire;
  std::size_t size;     // in bytes, with a number's value but without a payload
  std::uint64_t value;  // or length
};

/// The header of a field of which `left` bytes of its message are left; nothing where reading cannot go on behind it.
/// What is wrong in other ways stays for the parser to find.
std::optional<Header> read_header(std::span<const std::uint8_t> bytes, std::uint64_t left) {
  std::size_t at = 0;
  const auto varint = [&](std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 70 && at < bytes.size(); shift += 7) {
      const std::uint8_t byte = bytes[at++];
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  std::uint64_t tag = 0, value = 0;
  if (!varint(tag)) return std::nullopt;
  const auto wire = static_cast<Wire>(tag & 7);
  switch (wire) {
    case Wire::varint:
      if (!varint(value)) return std::nullopt;
      break;
    case Wire::bytes:
      if (!varint(value) || value > left - at) return std::nullopt;
      break;
    case Wire::fixed64:
    case Wire::fixed32: {
      const std::size_t width = wire == Wire::fixed64 ? 8 : 4;
      if (left - at < width) return std::nullopt;
      at += width;
      break;
    }
    default:
      return std::nullopt;
  }
  return Header{tag >> 3, wire, at, value};
}

bool is_tensor_data(std::uint64_t number) {
  return number == 4 || number == 5 || number == 7 || number == 9 || number == 10 || number == 11;
}

}  // namespace

class Skimmer {
 public:
  Skimmer(ModelFile& file, int descriptor, std::uint64_t size, const std::string& path, const OnnxLimits& limits)
      : file_(file), descriptor_(descriptor), size_(size), path_(path), limits_(limits) {}

  void skim() {
    walk(Message::model, size_, 0);
    fill(at_);
  }

  void copy_whole() {
    block_ = static_cast<std::size_t>(size_);
    fill(block_);
  }

 private:
  std::uint64_t place() const noexcept { return at_ + skipped_; }
  std::uint8_t* bytes() const noexcept { return reinterpret_cast<std::uint8_t*>(file_.block_.data()); }

  /// Walks the fields of a message from the place reached to `end`, a place in the file.
  void walk(Message message, std::uint64_t end, int depth) {
    std::uint64_t type = 0;  // of a tensor
    while (place() < end) {
      const std::size_t start = at_;
      const std::uint64_t left = end - place();
      fill(at_ + static_cast<std::size_t>(std::min(left, kLongestHeader)));
      const auto visible = std::min<std::uint64_t>({file_.used_ - at_, left, kLongestHeader});
      const std::optional<Header> field = read_header({bytes() + at_, static_cast<std::size_t>(visible)}, left);
      if (!field) return abandon(start, end);
      at_ += field->size;
      if (field->wire != Wire::bytes) {
        if (message == Message::tensor && field->number == 2) type = field->value;
        continue;
      }
      const std::uint64_t length = field->value;
      if (length < kMinGap) {
        at_ += static_cast<std::size_t>(length);
      } else if (const auto inner = part(message, field->number)) {
        const int inner_depth = depth + (message == Message::attribute && *inner == Message::graph ? 1 : 0);
        if (inner_depth > limits_.nesting) {
          leave_out(length);
        } else {
          walk(*inner, place() + length, inner_depth);
        }
      } else if (length > longest_kept(message, field->number, type)) {
        leave_out(length);
      } else {
        at_ += static_cast<std::size_t>(length);
      }
    }
  }

  /// Bytes of a field that the parser may read.
  std::uint64_t longest_kept(Message message, std::uint64_t number, std::uint64_t type) const {
    if (message == Message::tensor && is_tensor_data(number)) {
      // Of the types whose values decide shapes by the thousand; of the others the parser reads 64 elements.
      const bool integers = type == 0 || type == 6 || type == 7 || type == 9 || type == 12 || type == 13;
      return integers ? kLongestVarint * limits_.shape_constant : kMinGap;
    }
    if (message == Message::attribute && (number == 7 || number == 8)) return kAttributeList;
    if (message == Message::flat) return kDeclaration;
    return limits_.string_bytes;
  }

  void leave_out(std::uint64_t length) {
    if (length < kMinGap) {
      at_ += static_cast<std::size_t>(length);
      return;
    }
    fill(at_);
    file_.used_ = at_;
    file_.gaps_.push_back({at_, length, skipped_});
    skipped_ += length;
    block_ = kFirstBlock;
  }

  /// Of a message that is damaged at `start`, keeps what shows the damage.
  void abandon(std::size_t start, std::uint64_t end) {
    at_ = start + static_cast<std::size_t>(std::min<std::uint64_t>(kTailKept, end - (start + skipped_)));
    fill(at_);
    leave_out(end - place());
  }

  /// Reads on until the buffer holds `wanted` bytes.
  void fill(std::size_t wanted) {
    while (file_.used_ < wanted) {
      const std::uint64_t from = file_.used_ + skipped_;
      const auto size =
          static_cast<std::size_t>(std::min<std::uint64_t>(std::max(wanted - file_.used_, block_), size_ - from));
      file_.reserve(file_.used_ + size);
      const std::ptrdiff_t got = read_at(descriptor_, bytes() + file_.used_, size, from);
      if (got < 0) {
        throw Error(ErrorCode::io,
                    quoted(path_) + " cannot be read: " + std::error_code(errno, std::generic_category()).message());
      }
      if (got == 0) {
        throw Error(ErrorCode::io, quoted(path_) + " had " + std::to_string(size_) + " bytes and ends now at byte " +
                                       std::to_string(from) +
                                       ": another program is writing it; read it again when that is done");
      }
      if (from < file_.head_.size() && from == file_.used_) keep_head(static_cast<std::size_t>(got));
      file_.used_ += static_cast<std::size_t>(got);
      block_ = std::min(block_ * 2, kLastBlock);
    }
  }

  void keep_head(std::size_t got) {
    auto& head = file_.head_;
    const std::size_t size = std::min(got, head.size() - file_.used_);
    std::copy_n(bytes() + file_.used_, size, head.begin() + static_cast<std::ptrdiff_t>(file_.used_));
    file_.head_size_ = file_.used_ + size;
  }

  ModelFile& file_;
  int descriptor_;
  std::uint64_t size_;
  const std::string& path_;
  const OnnxLimits& limits_;
  std::size_t at_ = 0;         // in the buffer; may run ahead of what is read
  std::uint64_t skipped_ = 0;  // lengths of all gaps so far
  std::size_t block_ = kLastBlock;
};

ModelFile::ModelFile(int descriptor, std::uint64_t size, const std::string& path, const OnnxLimits& limits) {
  read(descriptor, size, path, limits);
}

void ModelFile::read(int descriptor, std::uint64_t size, const std::string& path, const OnnxLimits& limits) {
  if (size == 0) return;
  Skimmer skimmer(*this, descriptor, size, path, limits);
  if (size <= limits.whole_file) {
    block_ = PageBlock(size + ReadingArena::room_for(size));
    skimmer.copy_whole();
  } else {
    skimmer.skim();
  }
}

void ModelFile::reserve(std::size_t bytes) {
  if (bytes <= block_.size()) return;
  PageBlock larger(std::max(bytes + bytes / 2 + ReadingArena::room_for(bytes), kFirstReserve));
  if (larger.data() == nullptr) throw std::bad_alloc();
  if (used_ > 0) std::memcpy(larger.data(), block_.data(), used_);
  block_ = std::move(larger);
}

}  // namespace perfpass::onnx
