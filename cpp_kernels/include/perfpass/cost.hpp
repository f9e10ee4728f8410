// Exact counting: MACs, FLOPs, bytes and parameters of every operator, forward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "perfpass/export.hpp"
#include "perfpass/graph.hpp"

namespace perfpass {

struct CostOptions {
  /// Count every floating tensor of 16 to 64 bits as this type (a precision other than the file's); undefined: as is.
  DType float_as = DType::undefined;
};

/// Columns of length N. All but `parameters` and `weight_bytes` are already multiplied by the node's `repeat`.
/// Conventions (docs/internals/costs.md): a MAC is two FLOPs;
/// every distinct input tensor is read once and every output written
/// once; a view moves nothing; gathers, slices and embeddings read what they return and not the table; a weight shared
/// by several nodes is a parameter of the first that reads it.
struct Costs {
  std::vector<std::int64_t> macs;
  std::vector<std::int64_t> flops;
  std::vector<std::int64_t> bytes_read;
  std::vector<std::int64_t> bytes_written;
  std::vector<std::int64_t> parameters;
  std::vector<std::int64_t> weight_bytes;  // bytes of the parameters counted at this node
  DType float_as = DType::undefined;       // at whose width floating tensors were counted, as in CostOptions
};

struct CostTotals {
  std::int64_t macs, flops, bytes_read, bytes_written, parameters, weight_bytes;
};

/// Error(limit) if a count passes 2^62.
PERFPASS_API Costs count_costs(const OpGraph& graph, const CostOptions& options = {});
PERFPASS_API CostTotals totals(const Costs& costs);

}  // namespace perfpass
