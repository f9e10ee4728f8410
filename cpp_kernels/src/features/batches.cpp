#include "perfpass/batches.hpp"

#include <algorithm>
#include <string>

#include "perfpass/error.hpp"
#include "perfpass/operators.hpp"

namespace perfpass {
namespace {

/// Rows of all tables. Error(argument) for offsets that go back.
std::size_t rows_of(std::span<const std::int64_t> offset) {
  if (offset.empty() || offset.front() != 0 || !std::ranges::is_sorted(offset)) {
    throw Error(ErrorCode::argument, "tables: their offsets start at 0 and do not go back");
  }
  return static_cast<std::size_t>(offset.back());
}

void check_size(std::size_t found, std::size_t wanted) {
  if (found != wanted) {
    throw Error(ErrorCode::argument,
                "tables: a column of " + std::to_string(found) + " where " + std::to_string(wanted) + " are needed");
  }
}

}  // namespace

ScaledColumns at_batches(const BatchedColumns& c, std::span<const double> wanted) {
  const std::size_t rows = rows_of(c.offset), tables = c.offset.size() - 1;
  for (const auto& column : {c.op, c.op_class, c.constant, c.macs, c.flops, c.bytes_read, c.bytes_written, c.weights,
                             c.input_elements, c.output_elements, c.b, c.m, c.n, c.k}) {
    check_size(column.size(), rows);
  }
  check_size(c.batch.size(), tables);
  const std::size_t steps = tables == 0 ? 0 : wanted.size() / tables;
  check_size(wanted.size(), tables * steps);
  ScaledColumns found;
  found.offset.reserve(tables * steps + 1);
  found.offset.push_back(0);
  for (auto* column : {&found.macs, &found.flops, &found.bytes_read, &found.bytes_written, &found.input_elements,
                       &found.output_elements, &found.b, &found.m}) {
    column->resize(rows * steps);
  }
  std::size_t to = 0;
  for (std::size_t table = 0; table < tables; ++table) {
    const auto first = static_cast<std::size_t>(c.offset[table]), last = static_cast<std::size_t>(c.offset[table + 1]);
    for (std::size_t step = 0; step < steps; ++step) {
      const double grown = wanted[table * steps + step] / c.batch[table];
      for (std::size_t r = first; r < last; ++r, ++to) {
        const double scale = (static_cast<std::int64_t>(c.constant[r]) & 1) != 0 ? 1.0 : grown;
        const bool convolution = c.op_class[r] == static_cast<double>(OpClass::convolution);
        // A product with a weight has more rows, one of activations more matrices.
        const bool matrices =
            (c.weights[r] == 0.0 && !convolution) || c.op[r] == static_cast<double>(OpKind::attention);
        const double written = c.bytes_written[r] * scale, outputs = c.output_elements[r] * scale;
        // Weights that are themselves computed (standardized) are no weights of the table, and stay as large; what is
        // stored beside them is a number for each output.
        const double width = written / std::max(outputs, 1.0);
        const double channels = convolution ? c.b[r] * c.n[r] * width : 0.0;
        const double stored = c.weights[r] <= channels ? c.weights[r] : 0.0;
        const double kept = std::min(std::max(c.weights[r], channels * c.k[r] + stored), c.bytes_read[r]);
        found.macs[to] = c.macs[r] * scale;
        found.flops[to] = c.flops[r] * scale;
        found.bytes_read[to] = kept + (c.bytes_read[r] - kept) * scale;
        found.bytes_written[to] = written;
        found.input_elements[to] = c.input_elements[r] * scale;
        found.output_elements[to] = outputs;
        found.b[to] = c.b[r] * (matrices ? scale : 1.0);
        found.m[to] = c.m[r] * (matrices ? 1.0 : scale);
      }
      found.offset.push_back(static_cast<std::int64_t>(to));
    }
  }
  return found;
}

std::vector<std::uint8_t> repeated(std::span<const std::uint8_t> values, std::size_t size,
                                   std::span<const std::int64_t> offset, std::size_t times) {
  check_size(values.size(), rows_of(offset) * size);
  std::vector<std::uint8_t> found(values.size() * times);
  auto to = found.begin();
  for (std::size_t table = 0; table + 1 < offset.size(); ++table) {
    const auto first = static_cast<std::size_t>(offset[table]) * size;
    const auto part = values.subspan(first, static_cast<std::size_t>(offset[table + 1]) * size - first);
    for (std::size_t time = 0; time < times; ++time) to = std::ranges::copy(part, to).out;
  }
  return found;
}

std::vector<double> weighted_sums(std::span<const double> values, std::span<const double> weights,
                                  std::span<const std::int64_t> key, std::size_t sizes, std::size_t graphs,
                                  std::size_t groups) {
  const std::size_t rows = key.size();
  check_size(weights.size(), rows);
  check_size(values.size(), sizes * rows);
  std::vector<std::size_t> place(rows);  // of the first size
  for (std::size_t r = 0; r < rows; ++r) {
    if (key[r] < 0 || static_cast<std::size_t>(key[r]) >= graphs * groups) {
      throw Error(ErrorCode::argument,
                  "tables: a row of group " + std::to_string(key[r]) + " of " + std::to_string(graphs * groups));
    }
    const auto at = static_cast<std::size_t>(key[r]);
    place[r] = at / groups * sizes * groups + at % groups;
  }
  std::vector<double> found(graphs * sizes * groups);
  for (std::size_t s = 0; s < sizes; ++s) {
    const double* of = values.data() + s * rows;
    double* into = found.data() + s * groups;
    for (std::size_t r = 0; r < rows; ++r) into[place[r]] += of[r] * weights[r];
  }
  return found;
}

}  // namespace perfpass
