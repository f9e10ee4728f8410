// Fuzz target of the readers of FlatBuffers: any bytes are a graph or one perfpass::Error in every format, never
// anything else, and the same whether they are read from memory or, block by block, from a file. How it is built and
// run: replay.hpp.
#include "perfpass/flatbuffer_readers.hpp"
#include "replay.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using enum perfpass::FlatBufferFormat;
  perfpass::OnnxOptions options;
  options.limits.nodes = 100'000;
  const std::string path = perfpass::fuzzing::file_of(data, size);
  for (const perfpass::FlatBufferFormat format : {tflite, ort, executorch}) {
    for (const std::int64_t batch : {0, 3}) {
      options.batch = batch;
      perfpass::fuzzing::compare([&] { return perfpass::read_flatbuffer_bytes(format, {data, size}, options); },
                                 [&] { return perfpass::read_flatbuffer_file(format, path, options); });
    }
  }
  return 0;
}
