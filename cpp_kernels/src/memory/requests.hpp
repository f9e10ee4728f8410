// What the planner and the count of saved activations share.
#pragma once

#include <cstdint>

#include "perfpass/memory.hpp"

namespace perfpass::detail {

/// Error(argument) for an alignment below 1 or a float_as that is not floating.
void check_options(const MemoryOptions& options);

/// Up to a multiple of the alignment.
std::int64_t rounded_bytes(std::int64_t bytes, std::int64_t alignment_bytes);

/// Bytes of one tensor's buffer, rounded up. Error(limit) past 2^62.
std::int64_t buffer_bytes(const OpGraph& graph, TensorId t, const MemoryOptions& options);

}  // namespace perfpass::detail
