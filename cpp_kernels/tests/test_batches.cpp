// Operator tables at other batch sizes, and products in whole tiles; tests in Python hold both to plain twins.
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "perfpass/batches.hpp"
#include "perfpass/operators.hpp"
#include "perfpass/tiles.hpp"

namespace {

using perfpass::ErrorCode;
using Numbers = std::vector<double>;

struct Columns {
  std::vector<std::int64_t> offset{0, 2};
  Numbers batch{2}, op{0, 0}, op_class{0, 0}, constant{0, 1}, hundred{100, 100}, none{0, 0}, weights{40, 0}, four{4, 4};
  perfpass::BatchedColumns view() const {
    return {offset,  batch,   op,      op_class, constant, hundred, hundred, hundred,
            hundred, weights, hundred, hundred,  four,     four,    four,    four};
  }
};

TEST(batches_scale_what_reads_an_input_and_keep_weights) {
  const Columns columns;
  const auto found = perfpass::at_batches(columns.view(), Numbers{2, 6});
  CHECK_EQUAL(found.offset, (std::vector<std::int64_t>{0, 2, 4}));
  CHECK_EQUAL(found.macs, (Numbers{100, 100, 300, 100}));
  CHECK_EQUAL(found.bytes_read, (Numbers{100, 100, 40 + 60 * 3, 100}));
  CHECK_EQUAL(found.m, (Numbers{4, 4, 12, 4}));  // a product with a weight has more rows
  CHECK_EQUAL(found.b, (Numbers{4, 4, 4, 4}));
}

TEST(batches_of_shorter_columns_are_refused) {
  Columns columns;
  columns.weights.pop_back();
  CHECK_ERROR(perfpass::at_batches(columns.view(), Numbers{2}), ErrorCode::argument, "a column of 1 where 2");
  columns = {};
  columns.offset = {0, 3};
  CHECK_ERROR(perfpass::at_batches(columns.view(), Numbers{2}), ErrorCode::argument, "a column of 2 where 3");
  columns.offset = {0, 2, 1};
  CHECK_ERROR(perfpass::at_batches(columns.view(), Numbers{2}), ErrorCode::argument, "do not go back");
}

TEST(repeated_columns_lie_table_by_table) {
  const std::vector<std::uint8_t> values{1, 2, 3};
  const std::vector<std::int64_t> offset{0, 1, 3};
  CHECK_EQUAL(perfpass::repeated(values, 1, offset, 2), (std::vector<std::uint8_t>{1, 1, 2, 3, 2, 3}));
  CHECK_ERROR(perfpass::repeated(values, 2, offset, 2), ErrorCode::argument, "a column of 3 where 6");
}

TEST(whole_tiles_count_what_they_do_not_need) {
  const perfpass::Tiling tiling{{{64, 64, 1.0, 0.5}}, {1.0}, 1.0, 0.0, 1.0};
  CHECK_EQUAL(perfpass::whole_tiles(tiling, 1, 64, 64, 8, false, false), 1.0);
  CHECK_EQUAL(perfpass::whole_tiles(tiling, 1, 64, 64, 8, false, true), 2.0);  // at half of the rate
  CHECK_EQUAL(perfpass::whole_tiles(tiling, 1, 32, 64, 8, false, false), 2.0);
  CHECK_EQUAL(perfpass::whole_tiles(tiling, 0, 0, 64, 0, false, false), 64.0);
}

}  // namespace
