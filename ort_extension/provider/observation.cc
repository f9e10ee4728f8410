#include "observation.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "perfpass_ort.h"

namespace perfpass::ort {
namespace {

class Register {
 public:
  Register() {
    // A child that is forked while another thread holds the lock would wait for it for ever.
    ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                     [] { instance().mutex_.unlock(); });
  }

  /// Never destroyed: onnxruntime may release sessions after this library's static objects are gone.
  static Register& instance() {
    static auto& made = *new Register;
    return made;
  }

  std::uint64_t open() {
    auto made = std::make_shared<Observation>();
    const std::lock_guard lock(mutex_);
    observations_.emplace(++last_, std::move(made));
    return last_;
  }

  std::shared_ptr<Observation> find(std::uint64_t token) {
    const std::lock_guard lock(mutex_);
    const auto it = observations_.find(token);
    return it == observations_.end() ? nullptr : it->second;
  }

  void close(std::uint64_t token) {
    std::shared_ptr<Observation> last;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    const auto it = observations_.find(token);
    if (it == observations_.end()) return;
    last = std::move(it->second);
    observations_.erase(it);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Observation>> observations_;
  std::uint64_t last_ = 0;
};

}  // namespace

void Observation::set_graph(WireWriter model, std::uint64_t nodes, std::uint64_t walk_ns) {
  auto kept = std::make_unique<WireWriter>(std::move(model));
  const std::lock_guard lock(mutex_);
  graph_.model.swap(kept);
  graph_.nodes = nodes;
  graph_.walk_ns = walk_ns;
  ++graph_.walks;
  problem_.clear();
}

void Observation::set_problem(const char* text) noexcept {
  try {
    std::string copy(text, ::strnlen(text, 1024));
    std::unique_ptr<WireWriter> none;  // what was written down before is not this graph
    const std::lock_guard lock(mutex_);
    problem_.swap(copy);
    graph_.model.swap(none);
    graph_.nodes = 0;
    ++graph_.walks;
  } catch (...) {  // without memory for a sentence there is none
  }
}

std::shared_ptr<Observation> find_observation(std::uint64_t token) { return Register::instance().find(token); }

}  // namespace perfpass::ort

using perfpass::ort::find_observation;
using perfpass::ort::Observation;
using perfpass::ort::Register;
using perfpass::ort::RunLog;

#define PERFPASS_EXPORT extern "C" __attribute__((visibility("default")))

PERFPASS_EXPORT uint64_t perfpass_ort_open(void) try { return Register::instance().open(); } catch (...) {
  return 0;
}

PERFPASS_EXPORT void perfpass_ort_close(uint64_t token) { Register::instance().close(token); }

PERFPASS_EXPORT void perfpass_ort_seal(uint64_t token) {
  if (const auto observation = find_observation(token)) observation->sealed = true;
}

PERFPASS_EXPORT int perfpass_ort_read_state(uint64_t token, perfpass_ort_state* state) {
  const auto observation = find_observation(token);
  if (observation == nullptr || state == nullptr) return 0;
  *state = observation->read([](const Observation::Graph& graph, const std::string&) {
    return perfpass_ort_state{graph.walks, graph.nodes, graph.walk_ns,
                              graph.model == nullptr ? 0 : graph.model->bytes().size(), 0};
  });
  state->runs_lost = observation->runs.lost();
  return 1;
}

PERFPASS_EXPORT size_t perfpass_ort_model(uint64_t token, uint8_t* bytes, size_t capacity) {
  const auto observation = find_observation(token);
  if (observation == nullptr) return 0;
  return observation->read([&](const Observation::Graph& graph, const std::string&) -> size_t {
    if (graph.model == nullptr) return 0;
    const auto model = graph.model->bytes();
    if (bytes != nullptr && model.size() <= capacity) std::copy(model.begin(), model.end(), bytes);
    return model.size();
  });
}

PERFPASS_EXPORT size_t perfpass_ort_drain_runs(uint64_t token, double* rows, size_t capacity) {
  static_assert(sizeof(RunLog::Run) == 2 * sizeof(double));
  const auto observation = find_observation(token);
  if (observation == nullptr || rows == nullptr) return 0;
  return observation->runs.drain(reinterpret_cast<RunLog::Run*>(rows), capacity);
}

PERFPASS_EXPORT size_t perfpass_ort_problem(uint64_t token, char* text, size_t capacity) {
  const auto observation = find_observation(token);
  if (observation == nullptr) return 0;
  return observation->read([&](const Observation::Graph&, const std::string& problem) -> size_t {
    if (text != nullptr && capacity > 0) {
      const std::size_t n = std::min(problem.size(), capacity - 1);
      std::memcpy(text, problem.data(), n);
      text[n] = '\0';
    }
    return problem.size();
  });
}
