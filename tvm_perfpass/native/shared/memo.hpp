// The values of expressions, by expression and frame: an open-addressing table, because a walk looks up every argument.
#pragma once

#include <cstdint>
#include <vector>

#include "values.hpp"

namespace perfpass::ir {

class Memo {
 public:
  Memo() : slots_(kFirstSize) {}

  /// Forgets everything and keeps the memory.
  void clear() noexcept {
    used_ = 0;
    if (++generation_ == 0) {
      slots_.assign(slots_.size(), Slot{});
      generation_ = 1;
    }
  }
  const Value* find(Handle expression, std::int32_t frame) const noexcept {
    const Slot& slot = slots_[locate(slots_, expression, frame)];
    return slot.generation != generation_ ? nullptr : &slot.value;
  }
  void put(Handle expression, std::int32_t frame, Value value) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[locate(slots_, expression, frame)];
    if (slot.generation != generation_) ++used_;
    slot = {expression, frame, generation_, value};
  }

 private:
  static constexpr std::size_t kFirstSize = 1 << 15;  // a power of two; room for 16k expressions without growing
  struct Slot {
    Handle expression = nullptr;
    std::int32_t frame = 0;
    std::uint32_t generation = 0;  // the walk it belongs to; others' slots count as empty
    Value value;
  };
  std::size_t locate(const std::vector<Slot>& slots, Handle expression, std::int32_t frame) const noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(expression) >> 4;
    const std::size_t mask = slots.size() - 1;
    std::size_t at = ((address * 0x9E3779B97F4A7C15ULL) >> 20) + static_cast<std::size_t>(frame) * 0x85EBCA6BULL;
    for (at &= mask;; at = (at + 1) & mask) {
      const Slot& slot = slots[at];
      if (slot.generation != generation_ || (slot.expression == expression && slot.frame == frame)) return at;
    }
  }
  void grow() {
    std::vector<Slot> bigger(slots_.size() * 2);
    for (const Slot& slot : slots_) {
      if (slot.generation == generation_) bigger[locate(bigger, slot.expression, slot.frame)] = slot;
    }
    slots_.swap(bigger);
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::uint32_t generation_ = 1;
};

}  // namespace perfpass::ir
