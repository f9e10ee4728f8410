// What was seen of the sessions that carry one token, and the register of all tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "run_log.hpp"
#include "wire_writer.hpp"

namespace perfpass::ort {

/// Filled by onnxruntime's threads, read by whoever opened it.
class Observation {
 public:
  struct Graph {
    std::unique_ptr<WireWriter> model;  // none: no session was created yet
    std::uint64_t nodes = 0;
    std::uint64_t walk_ns = 0;
    std::uint64_t walks = 0;
  };

  /// The newest graph counts: onnxruntime shows a graph again after it has inlined functions.
  void set_graph(WireWriter model, std::uint64_t nodes, std::uint64_t walk_ns);
  void set_problem(const char* text) noexcept;

  template <typename Read>
  auto read(Read read) const {
    const std::lock_guard lock(mutex_);
    return read(graph_, problem_);
  }

  RunLog runs;
  std::atomic<bool> sealed = false;  // no further session is shown to it

 private:
  mutable std::mutex mutex_;
  Graph graph_;
  std::string problem_;
};

/// The observation with this token; none where nobody opened it or it was closed.
std::shared_ptr<Observation> find_observation(std::uint64_t token);

}  // namespace perfpass::ort
