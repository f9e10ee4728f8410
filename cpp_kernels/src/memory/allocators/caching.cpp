// PyTorch's caching allocator, rule by rule: sizes are rounded, two pools keep free blocks by size and address, misses
// take a segment from the device, large enough blocks are split, neighbours merge when freed.
#include <algorithm>
#include <iterator>
#include <set>

#include "memory/allocators/events.hpp"

namespace perfpass {
namespace {

using detail::EventLedger;
using detail::round_up;

constexpr std::int64_t kMinBlock = 512;
constexpr std::int64_t kSmallSize = std::int64_t{1} << 20;       // largest request that the small pool serves
constexpr std::int64_t kSmallBuffer = std::int64_t{2} << 20;     // its segments
constexpr std::int64_t kLargeBuffer = std::int64_t{20} << 20;    // segments of requests between 1 and 10 MiB
constexpr std::int64_t kMinLargeAlloc = std::int64_t{10} << 20;  // from here on a segment of its own
constexpr std::int64_t kRoundLarge = std::int64_t{2} << 20;

class CachingAllocator {
 public:
  CachingAllocator(const MemoryEventView& events, const CachingOptions& options)
      : ledger_(events), options_(options), holder_(ledger_.block_count(), kNone) {
    const std::int64_t divisions = options.roundup_power2_divisions;
    if (divisions < 0 || divisions > 64 || (divisions & (divisions - 1)) != 0) {
      throw Error(ErrorCode::argument, "roundup_power2_divisions is " + std::to_string(divisions) +
                                           "; it must be 0 or a power of two to 64");
    }
    if (options.max_split_bytes <= kLargeBuffer) {
      throw Error(ErrorCode::argument, "max_split_bytes is " + std::to_string(options.max_split_bytes) +
                                           "; it must be above " + std::to_string(kLargeBuffer));
    }
    if (options.limit_bytes < 1 || options.limit_bytes > kUnlimited) {
      throw Error(ErrorCode::argument,
                  "limit_bytes is " + std::to_string(options.limit_bytes) + "; it must be 1 to 2^50");
    }
    if (!(options.garbage_collection_threshold >= 0.0 && options.garbage_collection_threshold < 1.0)) {
      throw Error(ErrorCode::argument, "garbage_collection_threshold must be 0 to below 1");
    }
  }

  AllocatorReport run() {
    for (std::size_t e = 0; e < ledger_.event_count(); ++e) {
      if (ledger_.frees(e)) {
        ledger_.check_free(e);
        const std::int32_t held = holder_[ledger_.block(e)];
        if (held != kNone) free_block(held);
        ledger_.freed(e);
        continue;
      }
      ledger_.check_allocation(e);
      if (ledger_.bytes(e) == 0) {  // no storage: the pointer is null
        ledger_.allocated(e, 0);
        continue;
      }
      const std::int32_t held = allocate(ledger_.bytes(e));
      if (held == kNone) {
        ledger_.report.failed_event = static_cast<std::int64_t>(e);
        break;
      }
      holder_[ledger_.block(e)] = held;
      ledger_.allocated(e, blocks_[held].size);
    }
    return std::move(ledger_.report);
  }

 private:
  struct Block {
    std::int64_t size = 0;
    std::int64_t address = 0;
    std::int32_t previous = kNone, next = kNone;
    std::int32_t pool = 0;   // 0 small, 1 large
    std::int64_t since = 0;  // searches of its pool before it became free
    bool used = false;
    bool mapped = true;  // expandable segments: whether memory stands behind the addresses
  };
  struct Key {
    std::int64_t size, address;
    std::int32_t block;
    bool operator<(const Key& other) const noexcept {
      return size != other.size ? size < other.size : address < other.address;
    }
  };
  struct AddressKey {
    std::int64_t address;
    std::int32_t block;
    bool operator<(const AddressKey& other) const noexcept { return address < other.address; }
  };

  Key key(std::int32_t b) const { return {blocks_[b].size, blocks_[b].address, b}; }
  std::int64_t granule(int pool) const { return pool == 0 ? kSmallBuffer : kLargeBuffer; }

  std::int64_t rounded(std::int64_t size) const {
    if (size < kMinBlock) return kMinBlock;
    const std::int64_t divisions = options_.roundup_power2_divisions;
    if (divisions > 1 && size > kMinBlock * divisions) {
      std::int64_t power = 1;
      while (power * 2 <= size) power *= 2;
      return size == power ? size : round_up(size, power / divisions);
    }
    return round_up(size, kMinBlock);
  }

  static std::int64_t segment_bytes(std::int64_t size) {
    if (size <= kSmallSize) return kSmallBuffer;
    if (size < kMinLargeAlloc) return kLargeBuffer;
    return round_up(size, kRoundLarge);
  }

  std::int32_t new_block() {
    if (!spare_.empty()) {
      const std::int32_t b = spare_.back();
      spare_.pop_back();
      blocks_[b] = Block{};
      return b;
    }
    blocks_.emplace_back();
    return static_cast<std::int32_t>(blocks_.size()) - 1;
  }

  std::int32_t allocate(std::int64_t requested) {
    const std::int64_t size = rounded(requested);
    const int pool = size <= kSmallSize ? 0 : 1;
    std::int32_t found = free_block_of(size, pool);
    if (found == kNone) {
      const std::int64_t segment = segment_bytes(size);
      if (options_.garbage_collection_threshold > 0.0) collect_garbage();
      found = grow(size, segment, pool);
      if (found == kNone && release_oversize(size, pool)) found = grow(size, segment, pool);
      if (found == kNone) {
        release_cached();
        found = grow(size, segment, pool);
      }
      if (found == kNone) return kNone;
    }
    Block& block = blocks_[found];
    block.used = true;
    if (splits(block, size)) split_rest(found, size);
    return found;
  }

  bool splits(const Block& block, std::int64_t size) const {
    const std::int64_t rest = block.size - size;
    if (block.pool == 0 || options_.expandable_segments) return rest >= kMinBlock;
    return size < options_.max_split_bytes && rest > kSmallSize;
  }

  /// Cuts a block down to `size`; what is left follows it and becomes free.
  std::int32_t cut(std::int32_t b, std::int64_t size) {
    const std::int32_t r = new_block();
    Block& block = blocks_[b];
    Block& rest = blocks_[r];
    rest.size = block.size - size;
    rest.address = block.address + size;
    rest.pool = block.pool;
    rest.mapped = block.mapped;
    rest.previous = b;
    rest.next = block.next;
    if (rest.next != kNone) blocks_[rest.next].previous = r;
    block.next = r;
    block.size = size;
    return r;
  }
  void split_rest(std::int32_t b, std::int64_t size) { insert(cut(b, size)); }
  void insert(std::int32_t b) {
    blocks_[b].since = searches_[blocks_[b].pool];
    free_[blocks_[b].pool].insert(key(b));
  }

  std::int32_t free_block_of(std::int64_t size, int pool) {
    ++searches_[pool];
    auto& free = free_[pool];
    auto it = free.lower_bound(Key{size, 0, 0});
    if (it == free.end()) return kNone;
    if (options_.expandable_segments) {
      // Of the blocks that fit, the one with the least room to grow behind it.
      const auto room = [&](std::int32_t b) {
        const std::int32_t next = blocks_[b].next;
        return blocks_[b].size + (next != kNone && !blocks_[next].mapped ? blocks_[next].size : 0);
      };
      for (auto next = std::next(it); next != free.end() && room(next->block) < room(it->block); ++next) it = next;
    }
    if (size < options_.max_split_bytes && it->size >= options_.max_split_bytes) return kNone;
    if (size >= options_.max_split_bytes && it->size >= size + kLargeBuffer) return kNone;
    const std::int32_t found = it->block;
    free.erase(it);
    return found;
  }

  std::int32_t grow(std::int64_t size, std::int64_t segment, int pool) {
    if (options_.expandable_segments) return expand(size, pool);
    if (ledger_.report.reserved + segment > options_.limit_bytes) return kNone;
    const std::int32_t b = new_block();
    blocks_[b].size = segment;
    blocks_[b].address = next_address_;
    blocks_[b].pool = pool;
    next_address_ += segment;
    ledger_.reserved(segment);
    ++ledger_.report.segments;
    return b;
  }

  // -- Expandable segments: one range of addresses per pool, memory mapped behind it granule by granule.
  // ---------------

  std::int32_t expand(std::int64_t size, int pool) {
    if (range_[pool] == kNone) {
      const std::int32_t b = new_block();
      blocks_[b].size = kUnlimited * 4;
      blocks_[b].address = pool == 0 ? 0 : kUnlimited * 8;
      blocks_[b].pool = pool;
      blocks_[b].mapped = false;
      range_[pool] = b;
      unmapped_[pool].insert(AddressKey{blocks_[b].address, b});
    }
    for (const AddressKey& entry : unmapped_[pool]) {
      std::int32_t start = entry.block;
      const std::int32_t before = blocks_[start].previous;
      if (before != kNone && !blocks_[before].used) start = before;
      if (room_from(start, size) < size) continue;
      return map_from(start, size, pool);
    }
    return kNone;
  }
  std::int64_t room_from(std::int32_t b, std::int64_t enough) const {
    std::int64_t bytes = 0;
    for (; b != kNone && !blocks_[b].used && bytes < enough; b = blocks_[b].next) bytes += blocks_[b].size;
    return bytes;
  }
  std::int32_t map_from(std::int32_t start, std::int64_t size, int pool) {
    if (!blocks_[start].mapped) {
      start = map(start, std::min(blocks_[start].size, size), pool);
      if (start == kNone) return kNone;
    }
    while (blocks_[start].size < size) {
      const std::int32_t next = blocks_[start].next;
      const std::int32_t grown = map(next, std::min(size - blocks_[start].size, blocks_[next].size), pool);
      if (grown == kNone) return kNone;
      start = grown;
    }
    free_[pool].erase(key(start));
    return start;
  }
  /// Maps at least `size` bytes at the start of an unmapped block; the free block that they end up in, kNone where the
  /// device has no more.
  std::int32_t map(std::int32_t b, std::int64_t size, int pool) {
    const std::int64_t bytes = std::min(round_up(size, granule(pool)), blocks_[b].size);
    if (ledger_.report.reserved + bytes > options_.limit_bytes) return kNone;
    unmapped_[pool].erase(AddressKey{blocks_[b].address, b});
    if (bytes < blocks_[b].size) {
      const std::int32_t rest = cut(b, bytes);
      unmapped_[pool].insert(AddressKey{blocks_[rest].address, rest});
    }
    blocks_[b].mapped = true;
    ledger_.reserved(bytes);
    ++ledger_.report.segments;
    const std::int32_t merged = merge(b);
    insert(merged);
    return merged;
  }

  // -- Freeing
  // ---------------------------------------------------------------------------------------------------------

  void free_block(std::int32_t b) {
    blocks_[b].used = false;
    insert(merge(b));
  }
  /// Merges a free block that is in no pool with its free neighbours, which leave theirs.
  std::int32_t merge(std::int32_t b) {
    const std::int32_t next = blocks_[b].next;
    if (next != kNone && mergeable(b, next)) absorb(b, next);
    const std::int32_t previous = blocks_[b].previous;
    if (previous != kNone && mergeable(b, previous)) {
      free_[blocks_[previous].pool].erase(key(previous));
      swallow(previous, b);
      return previous;
    }
    return b;
  }
  bool mergeable(std::int32_t a, std::int32_t b) const {
    return !blocks_[b].used && blocks_[a].mapped == blocks_[b].mapped;
  }
  void absorb(std::int32_t b, std::int32_t next) {
    free_[blocks_[next].pool].erase(key(next));
    swallow(b, next);
  }
  void swallow(std::int32_t b, std::int32_t next) {
    blocks_[b].size += blocks_[next].size;
    blocks_[b].next = blocks_[next].next;
    if (blocks_[b].next != kNone) blocks_[blocks_[b].next].previous = b;
    spare_.push_back(next);
  }

  // -- Giving back to the device
  // ---------------------------------------------------------------------------------------

  void release(std::int32_t b) {
    ledger_.report.reserved -= blocks_[b].size;
    free_[blocks_[b].pool].erase(key(b));
    spare_.push_back(b);
  }
  bool is_segment(std::int32_t b) const { return blocks_[b].previous == kNone && blocks_[b].next == kNone; }

  /// Segments too large to be split (max_split_size): the smallest that is enough, else the largest until it is enough.
  bool release_oversize(std::int64_t size, int pool) {
    if (options_.max_split_bytes == kUnlimited || options_.expandable_segments) return false;
    const std::int64_t wanted = std::max(size, options_.max_split_bytes);
    auto& free = free_[pool];
    const auto enough = free.lower_bound(Key{wanted, 0, 0});
    if (enough != free.end()) {
      release(enough->block);
      return true;
    }
    std::int64_t released = 0;
    while (released < wanted && !free.empty() && std::prev(free.end())->size >= options_.max_split_bytes) {
      released += std::prev(free.end())->size;
      release(std::prev(free.end())->block);
    }
    return released >= wanted;
  }

  void release_cached() {
    ++ledger_.report.releases;
    if (options_.expandable_segments) {
      for (int pool = 0; pool < 2; ++pool) unmap_free(pool);
      return;
    }
    std::vector<std::int32_t> segments;
    for (const auto& pool : free_) {
      for (const Key& entry : pool) {
        if (is_segment(entry.block)) segments.push_back(entry.block);
      }
    }
    for (const std::int32_t b : segments) release(b);
  }
  /// Expandable segments: whole granules inside free blocks go back, the rest stays.
  void unmap_free(int pool) {
    std::vector<std::int32_t> blocks;
    for (const Key& entry : free_[pool]) blocks.push_back(entry.block);
    for (std::int32_t b : blocks) {
      const std::int64_t unit = granule(pool), origin = blocks_[range_[pool]].address;
      const std::int64_t begin = origin + round_up(blocks_[b].address - origin, unit);
      const std::int64_t end = origin + (blocks_[b].address + blocks_[b].size - origin) / unit * unit;
      if (end <= begin) continue;
      free_[pool].erase(key(b));
      if (begin > blocks_[b].address) {
        const std::int32_t inside = cut(b, begin - blocks_[b].address);
        insert(b);
        b = inside;
      }
      if (blocks_[b].size > end - begin) {
        const std::int32_t after = cut(b, end - begin);
        insert(after);
      }
      ledger_.report.reserved -= end - begin;
      blocks_[b].mapped = false;
      unmapped_[pool].insert(AddressKey{blocks_[b].address, b});
      merge_unmapped(b, pool);
    }
  }
  void merge_unmapped(std::int32_t b, int pool) {
    const std::int32_t next = blocks_[b].next;
    if (next != kNone && !blocks_[next].mapped) {
      unmapped_[pool].erase(AddressKey{blocks_[next].address, next});
      swallow(b, next);
    }
    const std::int32_t previous = blocks_[b].previous;
    if (previous != kNone && !blocks_[previous].mapped) {
      unmapped_[pool].erase(AddressKey{blocks_[b].address, b});
      swallow(previous, b);
    }
  }

  /// garbage_collection_threshold: above that share of the limit, free segments older than the average go back.
  void collect_garbage() {
    const auto threshold =
        static_cast<std::int64_t>(options_.garbage_collection_threshold * static_cast<double>(options_.limit_bytes));
    const std::int64_t target = ledger_.report.reserved - threshold;
    if (target <= 0) return;
    const auto age = [&](std::int32_t b) { return searches_[1] - blocks_[b].since; };
    std::vector<std::int32_t> freeable;
    for (const Key& entry : free_[1]) {
      if (is_segment(entry.block)) freeable.push_back(entry.block);
    }
    std::int64_t released = 0, total_age = 0;
    for (const std::int32_t b : freeable) total_age += age(b);
    for (bool again = true; released < target && again && !freeable.empty();) {
      const double average = static_cast<double>(total_age) / static_cast<double>(freeable.size());
      std::vector<std::int32_t> kept;
      for (const std::int32_t b : freeable) {
        if (static_cast<double>(age(b)) < average) {
          kept.push_back(b);
          continue;
        }
        released += blocks_[b].size;
        total_age -= age(b);
        release(b);
      }
      again = kept.size() < freeable.size();
      freeable = std::move(kept);
    }
  }

  EventLedger ledger_;
  CachingOptions options_;
  std::vector<std::int32_t> holder_;  // [blocks of events] the allocator's block
  std::vector<Block> blocks_;
  std::vector<std::int32_t> spare_;
  std::set<Key> free_[2];
  std::set<AddressKey> unmapped_[2];
  std::int32_t range_[2] = {kNone, kNone};
  std::int64_t next_address_ = 0;
  std::int64_t searches_[2] = {0, 0};
};

}  // namespace

AllocatorReport simulate_caching(const MemoryEventView& events, const CachingOptions& options) {
  return CachingAllocator(events, options).run();
}

}  // namespace perfpass
