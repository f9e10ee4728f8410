// Independent pieces of work on a few threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace perfpass::detail {

/// Joined at the end, also where starting one of them fails. (Not std::jthread: Apple's library does not have it.)
struct Threads {
  std::vector<std::thread> started;

  Threads() = default;
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() {
    for (std::thread& thread : started) thread.join();
  }
};

/// Calls `work(i)` for all i below `count` on `threads` threads, the caller's included; when all have ended, the
/// failure of the first thread that failed is thrown again.
template <typename Work>
void in_parallel(std::size_t count, unsigned threads, const Work& work) {
  std::atomic<std::size_t> next = 0;
  const std::size_t used = std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(count, 1));
  std::vector<std::exception_ptr> failures(used);
  const auto loop = [&](std::exception_ptr& failure) noexcept {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      failure = std::current_exception();
      next = count;
    }
  };
  {
    Threads others;
    for (std::size_t t = 1; t < used; ++t) others.started.emplace_back([&, t] { loop(failures[t]); });
    loop(failures[0]);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace perfpass::detail
