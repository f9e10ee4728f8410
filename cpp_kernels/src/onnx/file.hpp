// A model file without its tensor data, and what a file is that turns out not to be an ONNX model.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "onnx/excerpt.hpp"
#include "perfpass/onnx_reader.hpp"
#include "support/page_block.hpp"

namespace perfpass::onnx {

/// What a model file holds besides tensor data, read once and kept for as long as the object lives: what happens to the
/// file afterwards does not matter.
class ModelFile {
 public:
  /// Error(io) where there is no readable regular file or it shrinks while it is read, Error(limit) past
  /// limits.file_bytes. Of a damaged file, what the parser needs to find the damage.
  ModelFile(const std::string& path, const OnnxLimits& limits);
  /// The same of an open file, of the size that it had when it was opened; `path` is for messages.
  ModelFile(int descriptor, std::uint64_t size, const std::string& path, const OnnxLimits& limits);

  /// Memory behind the excerpt that nobody uses, for the lists that are read from it: one block of huge pages for both.
  std::span<std::byte> spare() const noexcept {
    const std::size_t from = std::min((used_ + 63) / 64 * 64, block_.size());
    return {block_.data() + from, block_.size() - from};
  }

  Excerpt excerpt() const noexcept {
    return {{reinterpret_cast<const std::uint8_t*>(block_.data()), used_}, gaps_, {head_.data(), head_size_}};
  }

 private:
  friend class Skimmer;

  void read(int descriptor, std::uint64_t size, const std::string& path, const OnnxLimits& limits);
  void reserve(std::size_t bytes);

  PageBlock block_;
  std::size_t used_ = 0;
  std::vector<Gap> gaps_;
  std::array<std::uint8_t, 512> head_{};
  std::size_t head_size_ = 0;
};

/// "a JPEG image", "a ZIP archive (...)": the format that the first bytes show; empty where they show none.
std::string recognised_format(std::span<const std::uint8_t> bytes);

}  // namespace perfpass::onnx
