// Fuzz target of the ONNX reader: any bytes give a graph or one perfpass::Error, never anything else, and the same
// whether they are read from memory or from a file without its tensor data
// (damaging_main.hpp says how it runs).
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "perfpass/cost.hpp"
#include "perfpass/error.hpp"
#include "perfpass/onnx_reader.hpp"

namespace {

struct Outcome {
  std::size_t nodes = 0, tensors = 0, edges = 0;
  std::string error;
  bool operator==(const Outcome&) const = default;
};

template <typename Read>
Outcome outcome(Read read) {
  try {
    const perfpass::OpGraph graph = read();
    perfpass::count_costs(graph);
    return {graph.node_count(), graph.tensor_count(), graph.edge_count(), ""};
  } catch (const perfpass::Error& e) {  // any typed error is an answer
    return {0, 0, 0, e.what()};
  }
}

/// The same bytes as a file in memory.
std::string file_of(const std::uint8_t* data, std::size_t size) {
  static const int descriptor = ::memfd_create("fuzz", 0);
  if (descriptor < 0 || ::ftruncate(descriptor, 0) != 0 ||
      ::pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size)) {
    std::abort();
  }
  return "/proc/self/fd/" + std::to_string(descriptor);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perfpass::OnnxOptions options;
  options.limits.nodes = 100'000;
  options.limits.whole_file = 0;
  const std::string path = file_of(data, size);
  for (const std::int64_t batch : {0, 3}) {
    options.batch = batch;
    const Outcome memory = outcome([&] { return perfpass::read_onnx_bytes({data, size}, options); });
    const Outcome file = outcome([&] { return perfpass::read_onnx_file(path, options); });
    // Both fail, or both give the same graph. Messages may differ in what a list that is too long would hold.
    if (memory.error.empty() != file.error.empty() || (memory.error.empty() && memory != file)) {
      std::cerr << "from memory: " << memory.error << "\nfrom a file: " << file.error << "\n";
      std::abort();
    }
  }
  return 0;
}

#include "damaging_main.hpp"
