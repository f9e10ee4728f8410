// Operator tables at other batch sizes (perfpass.predictors.learned.ladder).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "perfpass/export.hpp"

namespace perfpass {

/// What changes with the batch, of N tables that lie one after another: those of table i from `offset[i]` on. Columns
/// of length R as numbers; `weights`, `n` and `k` do not change, and say what does.
struct BatchedColumns {
  std::span<const std::int64_t> offset;  // [N + 1]
  std::span<const double> batch;         // [N] what the tables were counted at
  std::span<const double> op, op_class, constant;
  std::span<const double> macs, flops, bytes_read, bytes_written, weights, input_elements, output_elements;
  std::span<const double> b, m, n, k;
};

/// The same at other batch sizes.
struct ScaledColumns {
  std::vector<std::int64_t> offset;  // [N * K + 1]
  std::vector<double> macs, flops, bytes_read, bytes_written, input_elements, output_elements, b, m;
};

/// The N tables at K batch sizes each, `wanted` [N, K]: N * K tables, those of one network side by side. Every row that
/// reads an input grows with the batch; weights do not. Error(argument) for columns of unequal lengths.
PERFPASS_API ScaledColumns at_batches(const BatchedColumns& columns, std::span<const double> wanted);

/// A column that no batch size changes, in that order: each table's part of `values` ([R] of `size` bytes) K times.
PERFPASS_API std::vector<std::uint8_t> repeated(std::span<const std::uint8_t> values, std::size_t size,
                                                std::span<const std::int64_t> offset, std::size_t times);

/// [N, S, groups] sums of `values` [S, R], S `sizes`, times `weights` [R]; `key` [R] is graph * groups + group, of N
/// graphs. Summed in the order of the rows. Error(argument) for sizes that do not fit together and keys beyond.
PERFPASS_API std::vector<double> weighted_sums(std::span<const double> values, std::span<const double> weights,
                                               std::span<const std::int64_t> key, std::size_t sizes, std::size_t graphs,
                                               std::size_t groups);

}  // namespace perfpass
