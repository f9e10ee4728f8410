// Exact simulations of the allocators that frameworks put between tensors and devices. All read a stream of events in
// the order in which a program allocates and frees; none touches memory.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "perfpass/export.hpp"
#include "perfpass/graph.hpp"

namespace perfpass {

/// What a block holds, for the breakdown of a peak.
enum class MemoryUse : std::uint8_t { weights = 0, inputs, activations, gradients, optimizer, temporaries };
constexpr std::size_t kMemoryUses = 6;

/// E events. Event e allocates `bytes[e]` (>= 0) for block `block[e]`, or frees that block (`bytes[e]` == kFree). A
/// block is allocated once and freed at most once; blocks that are never freed live to the end.
struct MemoryEvents {
  static constexpr std::int64_t kFree = -1;
  std::vector<std::int32_t> block;
  std::vector<std::int64_t> bytes;
  std::vector<std::uint8_t> use;  // of allocations; ignored where the event frees
};
struct MemoryEventView {
  std::span<const std::int32_t> block;
  std::span<const std::int64_t> bytes;
  std::span<const std::uint8_t> use;  // empty: everything is an activation
};

/// What an allocator says after a stream of events. Bytes throughout.
struct AllocatorReport {
  std::int64_t peak_requested = 0;  // largest sum of live requests
  std::int64_t peak_allocated = 0;  // largest sum of live blocks, rounding and unsplit rest included
  std::int64_t peak_reserved = 0;   // largest amount held from the device
  std::int64_t reserved = 0;        // held at the end
  std::int64_t segments = 0;        // requests to the device in all
  std::int64_t releases = 0;        // times that cached segments were given back for want of memory
  std::int64_t failed_event = -1;   // the event that found no memory; the simulation stops before it
  std::vector<std::int64_t> peak_by_use = std::vector<std::int64_t>(kMemoryUses, 0);  // sums to peak_allocated
};

constexpr std::int64_t kUnlimited = std::int64_t{1} << 50;

/// PyTorch's CUDACachingAllocator (c10/cuda/CUDACachingAllocator.cpp), one stream, no graphs. The names are those of
/// PYTORCH_CUDA_ALLOC_CONF.
struct CachingOptions {
  std::int64_t limit_bytes = kUnlimited;      // memory of the device that the process can reserve
  std::int64_t max_split_bytes = kUnlimited;  // max_split_size_mb
  std::int64_t roundup_power2_divisions = 0;  // 0: round up to 512 bytes only
  double garbage_collection_threshold = 0.0;  // 0: never before an allocation fails
  bool expandable_segments = false;
};
PERFPASS_API AllocatorReport simulate_caching(const MemoryEventView& events, const CachingOptions& options = {});

/// onnxruntime's BFCArena (core/framework/bfc_arena.cc) with its defaults; kSameAsRequested where `power_of_two` is
/// off.
struct ArenaOptions {
  std::int64_t initial_chunk_bytes = std::int64_t{1} << 20;
  std::int64_t max_dead_bytes = std::int64_t{128} << 20;
  std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max();
  bool power_of_two = true;
};
PERFPASS_API AllocatorReport simulate_arena(const MemoryEventView& events, const ArenaOptions& options = {});

/// onnxruntime's memory pattern (core/framework/mem_pattern_planner.h): the offsets of all events in one buffer by best
/// fit over gaps. peak_reserved is the size of that buffer.
PERFPASS_API AllocatorReport simulate_pattern(const MemoryEventView& events);

/// TVM's GraphPlanMemory (src/relay/backend/token_allocator.cc, TokenAllocator1D): freed storage of up to 16 times or a
/// 16th of the size is used again, and grows to the largest of its tensors. Blocks of other uses than activations get
/// storage of their own. peak_reserved is the sum of all storage. `storage` [blocks], where asked for, is the storage
/// id of each block.
PERFPASS_API AllocatorReport simulate_storage_sharing(const MemoryEventView& events,
                                                      std::vector<std::int32_t>* storage = nullptr);

/// The events of one forward run of a graph: weights, then inputs, then every buffer from its producer to its last
/// reader, as `plan_memory` has them (views and in-place outputs share). A block's number is its tensor's. Sizes are
/// exact; rounding is the allocator's. `float_as` as in CostOptions.
PERFPASS_API MemoryEvents memory_events(const OpGraph& graph, DType float_as = DType::undefined);

}  // namespace perfpass
