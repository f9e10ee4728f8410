// When the runs of a session began and how long they took, the last few thousand of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace perfpass::ort {

class RunLog {
 public:
  using Clock = std::chrono::steady_clock;
  struct Run {
    double start_s;  // of the clock that Python calls time.monotonic
    double duration_s;
  };

  static constexpr std::size_t kKept = 4096;

  /// A run begins and ends on the same thread.
  void begin() {
    const Clock::time_point now = Clock::now();
    const std::thread::id self = std::this_thread::get_id();
    const std::lock_guard lock(mutex_);
    Open* free = nullptr;
    for (Open& open : open_) {
      if (open.thread == self) {  // a run that failed before onnxruntime told its end
        open.start = now;
        return;
      }
      if (open.thread == std::thread::id()) free = &open;
    }
    if (free != nullptr) {
      *free = {self, now};
    } else if (open_.size() < kKept) {
      open_.push_back({self, now});
    }
  }

  void end() {
    const Clock::time_point now = Clock::now();
    const std::thread::id self = std::this_thread::get_id();
    const std::lock_guard lock(mutex_);
    for (Open& open : open_) {
      if (open.thread != self) continue;
      using Seconds = std::chrono::duration<double>;
      keep({Seconds(open.start.time_since_epoch()).count(), Seconds(now - open.start).count()});
      open.thread = {};
      return;
    }
  }

  /// Moves at most `most` runs, oldest first.
  std::size_t drain(Run* to, std::size_t most) {
    const std::lock_guard lock(mutex_);
    const std::size_t n = std::min(most, kept_);
    for (std::size_t i = 0; i < n; ++i) to[i] = ring_[(first_ + i) % kKept];
    first_ = (first_ + n) % kKept;
    kept_ -= n;
    return n;
  }

  /// Runs that were overwritten before anybody took them.
  std::uint64_t lost() const {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  struct Open {
    std::thread::id thread;  // none: free
    Clock::time_point start;
  };

  void keep(const Run& run) {
    if (ring_.empty()) ring_.resize(kKept);
    ring_[(first_ + kept_) % kKept] = run;
    if (kept_ < kKept) {
      ++kept_;
    } else {
      first_ = (first_ + 1) % kKept;
      ++lost_;
    }
  }

  mutable std::mutex mutex_;
  std::vector<Open> open_;
  std::vector<Run> ring_;
  std::size_t first_ = 0, kept_ = 0;
  std::uint64_t lost_ = 0;
};

}  // namespace perfpass::ort
