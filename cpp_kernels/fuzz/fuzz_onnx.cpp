// Fuzz target of the ONNX reader: any bytes give a graph or one perfpass::Error, never anything else, and the same
// whether they are read from memory or from a file without its tensor data.
//
// How it is built and run: replay.hpp.
#include "perfpass/onnx_reader.hpp"
#include "replay.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perfpass::OnnxOptions options;
  options.limits.nodes = 100'000;
  options.limits.whole_file = 0;
  const std::string path = perfpass::fuzzing::file_of(data, size);
  for (const std::int64_t batch : {0, 3}) {
    options.batch = batch;
    perfpass::fuzzing::compare([&] { return perfpass::read_onnx_bytes({data, size}, options); },
                               [&] { return perfpass::read_onnx_file(path, options); });
  }
  return 0;
}
