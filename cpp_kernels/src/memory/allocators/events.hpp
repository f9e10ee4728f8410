// What every simulation does with its events: check them, keep track of what is live, and note the peaks.
#pragma once

#include <algorithm>
#include <string>

#include "perfpass/allocators.hpp"
#include "perfpass/error.hpp"

namespace perfpass::detail {

/// Error(argument), naming the event, where columns differ in length, a block is negative or past kMaxTensors, is
/// allocated twice, or is freed without being live.
class EventLedger {
 public:
  explicit EventLedger(const MemoryEventView& events) : events_(events) {
    if (events.bytes.size() != events.block.size() ||
        (!events.use.empty() && events.use.size() != events.block.size())) {
      throw Error(ErrorCode::argument, "events' columns differ in length: " + std::to_string(events.block.size()) +
                                           " blocks, " + std::to_string(events.bytes.size()) + " sizes, " +
                                           std::to_string(events.use.size()) + " uses");
    }
    std::int32_t blocks = 0;
    for (std::size_t e = 0; e < events.block.size(); ++e) {
      if (events.block[e] < 0 || static_cast<std::size_t>(events.block[e]) >= kMaxTensors)
        fail(e, "block out of range");
      blocks = std::max(blocks, events.block[e] + 1);
    }
    requested_.assign(static_cast<std::size_t>(blocks), kNever);
    taken_.assign(static_cast<std::size_t>(blocks), 0);
    use_.assign(static_cast<std::size_t>(blocks), static_cast<std::uint8_t>(MemoryUse::activations));
  }

  std::size_t block_count() const noexcept { return requested_.size(); }
  std::size_t event_count() const noexcept { return events_.block.size(); }
  std::int32_t block(std::size_t e) const noexcept { return events_.block[e]; }
  std::int64_t bytes(std::size_t e) const noexcept { return events_.bytes[e]; }
  bool frees(std::size_t e) const noexcept { return events_.bytes[e] == MemoryEvents::kFree; }
  MemoryUse use_of_event(std::size_t e) const noexcept {
    return events_.use.empty() ? MemoryUse::activations : static_cast<MemoryUse>(events_.use[e]);
  }

  /// Before anything is done for an allocation.
  void check_allocation(std::size_t e) const {
    if (bytes(e) < 0 || bytes(e) > kUnlimited) fail(e, "a size must be 0 to 2^50 bytes");
    if (requested_[block(e)] != kNever) fail(e, "the block was allocated before");
    if (static_cast<std::size_t>(use_of_event(e)) >= kMemoryUses) fail(e, "unknown use");
  }
  /// The allocation was served with `taken` bytes.
  void allocated(std::size_t e, std::int64_t taken) {
    const auto b = static_cast<std::size_t>(block(e));
    requested_[b] = bytes(e);
    taken_[b] = taken;
    use_[b] = static_cast<std::uint8_t>(use_of_event(e));
    live_requested_ += bytes(e);
    live_allocated_ += taken;
    live_by_use_[use_[b]] += taken;
    report.peak_requested = std::max(report.peak_requested, live_requested_);
    if (live_allocated_ > report.peak_allocated) {
      report.peak_allocated = live_allocated_;
      report.peak_by_use.assign(live_by_use_, live_by_use_ + kMemoryUses);
    }
  }
  void check_free(std::size_t e) const {
    const std::int64_t requested = requested_[block(e)];
    if (requested == kNever || requested == kFreed) fail(e, "the block is not live");
  }
  void freed(std::size_t e) {
    const auto b = static_cast<std::size_t>(block(e));
    live_requested_ -= requested_[b];
    live_allocated_ -= taken_[b];
    live_by_use_[use_[b]] -= taken_[b];
    requested_[b] = kFreed;
  }
  void reserved(std::int64_t bytes) {
    report.reserved += bytes;
    report.peak_reserved = std::max(report.peak_reserved, report.reserved);
  }

  AllocatorReport report;

 private:
  static constexpr std::int64_t kNever = -1, kFreed = -2;
  [[noreturn]] void fail(std::size_t e, const char* why) const {
    throw Error(ErrorCode::argument, "event " + std::to_string(e) + " (block " + std::to_string(events_.block[e]) +
                                         ", " + std::to_string(events_.bytes[e]) + " bytes): " + why);
  }

  MemoryEventView events_;
  std::vector<std::int64_t> requested_, taken_;
  std::vector<std::uint8_t> use_;
  std::int64_t live_requested_ = 0, live_allocated_ = 0;
  std::int64_t live_by_use_[kMemoryUses] = {};
};

inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace perfpass::detail
