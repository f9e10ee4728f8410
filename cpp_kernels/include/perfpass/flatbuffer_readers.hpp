// Models in FlatBuffers to OpGraphs: TensorFlow Lite (LiteRT), ONNX Runtime's own format and ExecuTorch.
//
// A file's structure alone is read, block by block, with every offset checked; weights are never touched, and of
// constants only small ones that decide shapes. Options and limits are those of the ONNX reader.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perfpass/export.hpp"
#include "perfpass/graph.hpp"
#include "perfpass/onnx_reader.hpp"

namespace perfpass {

enum class FlatBufferFormat : std::uint8_t { tflite, ort, executorch };

PERFPASS_API OpGraph read_flatbuffer_file(FlatBufferFormat format, const std::string& path,
                                          const OnnxOptions& options = {});
PERFPASS_API OpGraph read_flatbuffer_bytes(FlatBufferFormat format, std::span<const std::uint8_t> bytes,
                                           const OnnxOptions& options = {});
/// The inputs as the file declares them.
PERFPASS_API std::vector<OnnxInput> flatbuffer_inputs_file(FlatBufferFormat format, const std::string& path,
                                                           const OnnxLimits& limits = {});

}  // namespace perfpass
