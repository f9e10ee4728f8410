// The entry points of flatbuffer_readers.hpp: every format becomes the parsed model that ONNX files become, and is
// lowered as they are.
#include <algorithm>

#include "executorch/read.hpp"
#include "flatbuffer/source.hpp"
#include "onnx/lowering.hpp"
#include "ort/read.hpp"
#include "perfpass/error.hpp"
#include "perfpass/flatbuffer_readers.hpp"
#include "support/reading_arena.hpp"
#include "tflite/read.hpp"

namespace perfpass {
namespace {

onnx::Model parsed(FlatBufferFormat format, const flatbuffer::Source& file, const OnnxLimits& limits,
                   std::pmr::memory_resource& arena) {
  switch (format) {
    case FlatBufferFormat::tflite:
      return tflite::read_model(file, limits, arena);
    case FlatBufferFormat::ort:
      return ort::read_model(file, limits, arena);
    case FlatBufferFormat::executorch:
      return executorch::read_model(file, limits, arena);
  }
  throw Error(ErrorCode::argument, "no such format of FlatBuffers");
}

/// Weights take most of a large file: the arena is made for what is left, and grows where that is more.
constexpr std::size_t kUsualStructure = 1 << 20;

OpGraph read(FlatBufferFormat format, const flatbuffer::Source& file, const OnnxOptions& options) {
  ReadingArena arena(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), kUsualStructure)));
  const onnx::Model model = parsed(format, file, options.limits, arena.resource());
  return onnx::Lowering(model, options, arena.resource()).run();
}

}  // namespace

OpGraph read_flatbuffer_file(FlatBufferFormat format, const std::string& path, const OnnxOptions& options) {
  return read(format, flatbuffer::Source(path, options.limits.file_bytes), options);
}

OpGraph read_flatbuffer_bytes(FlatBufferFormat format, std::span<const std::uint8_t> bytes,
                              const OnnxOptions& options) {
  if (bytes.size() > options.limits.file_bytes) {
    throw Error(ErrorCode::limit, "the model has " + std::to_string(bytes.size()) + " bytes; at most " +
                                      std::to_string(options.limits.file_bytes) + " are read");
  }
  return read(format, flatbuffer::Source(bytes), options);
}

std::vector<OnnxInput> flatbuffer_inputs_file(FlatBufferFormat format, const std::string& path,
                                              const OnnxLimits& limits) {
  const flatbuffer::Source file(path, limits.file_bytes);
  ReadingArena arena(std::size_t{1} << 16);
  return onnx::declared_inputs(parsed(format, file, limits, arena.resource()));
}

}  // namespace perfpass
