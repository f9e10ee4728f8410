// What the fuzz targets share: any bytes give a graph or one perfpass::Error, and the same from memory and from a file.
//
// With clang and -DPERFPASS_LIBFUZZER=ON libFuzzer has the main. With any compiler: a main that reads the files and
// folders it is given and, with --mutate SECONDS, damages them at random (splices, flips, insertions) from a fixed
// seed.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "perfpass/cost.hpp"
#include "perfpass/error.hpp"
#include "perfpass/graph.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace perfpass::fuzzing {

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
inline std::string file_of(const std::uint8_t* data, std::size_t size) {
  static const int descriptor = ::memfd_create("fuzz", 0);
  if (descriptor < 0 || ::ftruncate(descriptor, 0) != 0 ||
      ::pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size)) {
    std::abort();
  }
  return "/proc/self/fd/" + std::to_string(descriptor);
}

/// Both fail, or both give the same graph. Messages may differ in what a list that is too long would hold.
template <typename FromMemory, typename FromFile>
void compare(FromMemory from_memory, FromFile from_file) {
  const Outcome memory = outcome(from_memory), file = outcome(from_file);
  if (memory.error.empty() == file.error.empty() && (!memory.error.empty() || memory == file)) return;
  std::cerr << "from memory: " << memory.error << "\nfrom a file: " << file.error << "\n";
  std::abort();
}

}  // namespace perfpass::fuzzing

#ifndef PERFPASS_LIBFUZZER

namespace perfpass::fuzzing {

using Bytes = std::vector<std::uint8_t>;

inline Bytes read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// One to eight random edits: bits, bytes, runs removed or repeated, and pieces of another seed.
inline Bytes mutate(Bytes bytes, const Bytes& other, std::mt19937_64& random) {
  static constexpr std::uint64_t kInteresting[] = {0, 1, 0x7f, 0x80, 0xff, 0x0a, 0x12, 0x2a, 0x3a};
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random() % n); };
  for (std::size_t edit = 1 + below(8); edit > 0 && !bytes.empty(); --edit) {
    const std::size_t at = below(bytes.size());
    const std::size_t length = std::min(bytes.size() - at, 1 + below(24));
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(6)) {
      case 0:
        bytes[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:
        bytes[at] = static_cast<std::uint8_t>(kInteresting[below(std::size(kInteresting))]);
        break;
      case 2:
        bytes[at] = static_cast<std::uint8_t>(random());
        break;
      case 3:
        bytes.erase(from, from + static_cast<std::ptrdiff_t>(length));
        break;
      case 4: {
        const Bytes copy(from, from + static_cast<std::ptrdiff_t>(length));
        bytes.insert(from, copy.begin(), copy.end());
        break;
      }
      default: {
        if (other.empty()) break;
        const std::size_t start = below(other.size());
        const std::size_t size = std::min({other.size() - start, length, bytes.size() - at});
        std::memcpy(bytes.data() + at, other.data() + start, size);
      }
    }
  }
  return bytes;
}

}  // namespace perfpass::fuzzing

int main(int argc, char** argv) {
  using namespace perfpass::fuzzing;
  std::vector<Bytes> seeds;
  double seconds = 0.0;
  std::uint64_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--mutate" && i + 1 < argc) {
      seconds = std::stod(argv[++i]);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::stoull(argv[++i]);
    } else if (std::filesystem::is_directory(argument)) {
      for (const auto& entry : std::filesystem::directory_iterator(argument)) {
        if (entry.is_regular_file()) seeds.push_back(read_file(entry.path()));
      }
    } else {
      seeds.push_back(read_file(argument));
    }
  }
  for (const Bytes& bytes : seeds) LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  std::cout << seeds.size() << " files replayed\n";

  // Mutating large seeds finds little and takes long.
  std::erase_if(seeds, [](const Bytes& bytes) { return bytes.empty() || bytes.size() > 200'000; });
  if (seeds.empty()) return 0;
  std::mt19937_64 random(seed);
  std::size_t runs = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  while (elapsed() < seconds) {
    const Bytes bytes = mutate(seeds[random() % seeds.size()], seeds[random() % seeds.size()], random);
    // The input that brings the process down stays behind for whoever looks into it.
    if (const char* keep = std::getenv("PERFPASS_FUZZ_KEEP")) {
      std::ofstream(keep, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    ++runs;
  }
  if (seconds > 0) std::cout << runs << " mutations in " << elapsed() << " s\n";
  return 0;
}

#endif
