// onnxruntime: the arena that grows by doubling and coalesces its chunks (BFCArena), and the memory pattern, which lays
// all buffers of a run out in one block ahead of time.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "memory/allocators/events.hpp"

namespace perfpass {
namespace {

using detail::EventLedger;
using detail::round_up;

constexpr std::int64_t kChunk = 256;

class Arena {
 public:
  Arena(const MemoryEventView& events, const ArenaOptions& options)
      : ledger_(events),
        options_(options),
        holder_(ledger_.block_count(), kNone),
        region_(options.initial_chunk_bytes) {
    if (options.initial_chunk_bytes < 1 || options.max_dead_bytes < 1 || options.limit_bytes < 1) {
      throw Error(ErrorCode::argument, "an arena's initial chunk, dead bytes and limit must be 1 or more");
    }
    region_ = round_up(std::min(region_, options.limit_bytes), kChunk);
  }

  AllocatorReport run() {
    for (std::size_t e = 0; e < ledger_.event_count(); ++e) {
      if (ledger_.frees(e)) {
        ledger_.check_free(e);
        if (const std::int32_t held = holder_[ledger_.block(e)]; held != kNone) free_chunk(held);
        ledger_.freed(e);
        continue;
      }
      ledger_.check_allocation(e);
      if (ledger_.bytes(e) == 0) {
        ledger_.allocated(e, 0);
        continue;
      }
      const std::int32_t held = allocate(round_up(ledger_.bytes(e), kChunk));
      if (held == kNone) {
        ledger_.report.failed_event = static_cast<std::int64_t>(e);
        break;
      }
      holder_[ledger_.block(e)] = held;
      ledger_.allocated(e, chunks_[held].size);
    }
    return std::move(ledger_.report);
  }

 private:
  struct Chunk {
    std::int64_t size = 0;
    std::int64_t address = 0;
    std::int32_t previous = kNone, next = kNone;
    bool used = false;
  };
  // Bins hold sizes from a power of two to below the next, and within a bin the smallest comes first: over all bins
  // that is the order by size, except past the last bin's bound, which no size here reaches.
  struct Key {
    std::int64_t size, address;
    std::int32_t chunk;
    bool operator<(const Key& other) const noexcept {
      return size != other.size ? size < other.size : address < other.address;
    }
  };
  Key key(std::int32_t c) const { return {chunks_[c].size, chunks_[c].address, c}; }

  std::int32_t allocate(std::int64_t size) {
    auto it = free_.lower_bound(Key{size, 0, 0});
    if (it == free_.end()) {
      if (!extend(size)) return kNone;
      it = free_.lower_bound(Key{size, 0, 0});
    }
    const std::int32_t c = it->chunk;
    free_.erase(it);
    chunks_[c].used = true;
    if (chunks_[c].size >= size * 2 || chunks_[c].size - size >= options_.max_dead_bytes) split(c, size);
    return c;
  }

  void split(std::int32_t c, std::int64_t size) {
    const std::int32_t r = new_chunk();
    Chunk& chunk = chunks_[c];
    Chunk& rest = chunks_[r];
    rest.size = chunk.size - size;
    rest.address = chunk.address + size;
    rest.previous = c;
    rest.next = chunk.next;
    if (rest.next != kNone) chunks_[rest.next].previous = r;
    chunk.next = r;
    chunk.size = size;
    free_.insert(key(r));
  }

  bool extend(std::int64_t size) {
    const std::int64_t available = (options_.limit_bytes - ledger_.report.reserved) / kChunk * kChunk;
    if (size > available) return false;
    std::int64_t bytes = size;
    if (options_.power_of_two) {
      bool grown = false;
      while (size > region_) {
        region_ *= 2;
        grown = true;
      }
      bytes = std::min(region_, available);
      if (!grown) region_ *= 2;
    }
    const std::int32_t c = new_chunk();
    chunks_[c].size = bytes;
    chunks_[c].address = next_address_;
    next_address_ += bytes;
    ledger_.reserved(bytes);
    ++ledger_.report.segments;
    free_.insert(key(c));
    return true;
  }

  void free_chunk(std::int32_t c) {
    chunks_[c].used = false;
    if (const std::int32_t next = chunks_[c].next; next != kNone && !chunks_[next].used) {
      free_.erase(key(next));
      absorb(c, next);
    }
    if (const std::int32_t previous = chunks_[c].previous; previous != kNone && !chunks_[previous].used) {
      free_.erase(key(previous));
      absorb(previous, c);
      c = previous;
    }
    free_.insert(key(c));
  }
  void absorb(std::int32_t c, std::int32_t next) {
    chunks_[c].size += chunks_[next].size;
    chunks_[c].next = chunks_[next].next;
    if (chunks_[c].next != kNone) chunks_[chunks_[c].next].previous = c;
    spare_.push_back(next);
  }
  std::int32_t new_chunk() {
    if (!spare_.empty()) {
      const std::int32_t c = spare_.back();
      spare_.pop_back();
      chunks_[c] = Chunk{};
      return c;
    }
    chunks_.emplace_back();
    return static_cast<std::int32_t>(chunks_.size()) - 1;
  }

  EventLedger ledger_;
  ArenaOptions options_;
  std::vector<std::int32_t> holder_;
  std::vector<Chunk> chunks_;
  std::vector<std::int32_t> spare_;
  std::set<Key> free_;
  std::int64_t region_;
  std::int64_t next_address_ = 0;
};

/// Live buffers in order of their offsets; a new one goes into the gap that it wastes least of, else behind the last.
class Pattern {
 public:
  explicit Pattern(const MemoryEventView& events) : ledger_(events), offset_(ledger_.block_count(), 0) {}

  AllocatorReport run() {
    for (std::size_t e = 0; e < ledger_.event_count(); ++e) {
      const auto b = static_cast<std::size_t>(ledger_.block(e));
      if (ledger_.frees(e)) {
        ledger_.check_free(e);
        remove(ledger_.block(e));
        ledger_.freed(e);
        continue;
      }
      ledger_.check_allocation(e);
      if (ledger_.bytes(e) > 0) {
        offset_[b] = place(ledger_.bytes(e));
        insert(ledger_.block(e), ledger_.bytes(e));
        const std::int64_t end = offset_[b] + ledger_.bytes(e);
        if (end > ledger_.report.peak_reserved) ledger_.reserved(end - ledger_.report.peak_reserved);
      }
      ledger_.allocated(e, ledger_.bytes(e));
    }
    ledger_.report.segments = ledger_.report.peak_reserved > 0 ? 1 : 0;
    return std::move(ledger_.report);
  }

 private:
  struct Live {
    std::int64_t offset, size;
    std::int32_t block;
  };

  std::int64_t place(std::int64_t size) const {
    std::int64_t current = 0, waste = std::numeric_limits<std::int64_t>::max();
    std::int64_t best = live_.empty() ? 0 : live_.back().offset + live_.back().size;
    for (const Live& l : live_) {
      if (l.offset >= current) {
        const std::int64_t gap = l.offset - current;
        if (gap >= size && gap - size < waste) {
          waste = gap - size;
          best = current;
        }
      }
      current = std::max(current, l.offset + l.size);
    }
    return best;
  }
  void insert(std::int32_t block, std::int64_t size) {
    const Live made{offset_[static_cast<std::size_t>(block)], size, block};
    const auto at = std::find_if(live_.begin(), live_.end(), [&](const Live& l) {
      return l.offset > made.offset || (l.offset == made.offset && l.size > made.size);
    });
    live_.insert(at, made);
  }
  void remove(std::int32_t block) {
    const auto at = std::find_if(live_.begin(), live_.end(), [&](const Live& l) { return l.block == block; });
    if (at != live_.end()) live_.erase(at);
  }

  EventLedger ledger_;
  std::vector<std::int64_t> offset_;
  std::vector<Live> live_;
};

/// Storage by size, shared by tensors whose lives do not overlap and whose sizes are within a factor of 16.
class StorageSharing {
 public:
  explicit StorageSharing(const MemoryEventView& events) : ledger_(events), storage_(ledger_.block_count(), kNone) {}

  AllocatorReport run() {
    for (std::size_t e = 0; e < ledger_.event_count(); ++e) {
      const auto b = static_cast<std::size_t>(ledger_.block(e));
      if (ledger_.frees(e)) {
        ledger_.check_free(e);
        free_.emplace(bytes_[static_cast<std::size_t>(storage_[b])], storage_[b]);
        ledger_.freed(e);
        continue;
      }
      ledger_.check_allocation(e);
      const bool shares = ledger_.use_of_event(e) == MemoryUse::activations;
      std::int32_t found = shares ? request(ledger_.bytes(e)) : kNone;
      if (found == kNone) {
        found = static_cast<std::int32_t>(bytes_.size());
        bytes_.push_back(0);
        ++ledger_.report.segments;
      }
      storage_[b] = found;
      auto& bytes = bytes_[static_cast<std::size_t>(found)];
      if (ledger_.bytes(e) > bytes) {
        ledger_.reserved(ledger_.bytes(e) - bytes);
        bytes = ledger_.bytes(e);
      }
      ledger_.allocated(e, bytes);
    }
    return std::move(ledger_.report);
  }
  std::vector<std::int32_t> storage() && { return std::move(storage_); }

 private:
  static constexpr std::int64_t kRange = 16;

  std::int32_t request(std::int64_t size) {
    const auto first = free_.lower_bound(size / kRange), middle = free_.lower_bound(size),
               end = free_.upper_bound(size * kRange);
    if (middle != end) return take(middle);
    if (middle != first) return take(std::prev(middle));
    return kNone;
  }
  std::int32_t take(std::multimap<std::int64_t, std::int32_t>::iterator it) {
    const std::int32_t s = it->second;
    free_.erase(it);
    return s;
  }

  EventLedger ledger_;
  std::vector<std::int32_t> storage_;
  std::vector<std::int64_t> bytes_;
  std::multimap<std::int64_t, std::int32_t> free_;
};

}  // namespace

AllocatorReport simulate_arena(const MemoryEventView& events, const ArenaOptions& options) {
  return Arena(events, options).run();
}

AllocatorReport simulate_pattern(const MemoryEventView& events) { return Pattern(events).run(); }

AllocatorReport simulate_storage_sharing(const MemoryEventView& events, std::vector<std::int32_t>* storage) {
  StorageSharing sharing(events);
  AllocatorReport report = sharing.run();
  if (storage != nullptr) *storage = std::move(sharing).storage();
  return report;
}

}  // namespace perfpass
