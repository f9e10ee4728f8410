// A model file as bytes, and what a file is that turns out not to be an ONNX model.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "perfpass/onnx_reader.hpp"

namespace perfpass::onnx {

/// A regular file, mapped read-only and private for as long as the object lives.
class MappedFile {
 public:
  /// Error(io) where there is no readable regular file, Error(limit) past limits.file_bytes.
  MappedFile(const std::string& path, const OnnxLimits& limits);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::uint8_t> bytes() const noexcept { return {data_, size_}; }

 private:
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

/// "a JPEG image", "a ZIP archive (...)": the format that the first bytes show; empty where they show none.
std::string recognised_format(std::span<const std::uint8_t> bytes);

}  // namespace perfpass::onnx
