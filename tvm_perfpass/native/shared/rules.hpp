// What an operator table (tvm_perfpass/operators.py, tvm_perfpass/relax/operators.py) says about one operator of TVM.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perfpass/operators.hpp"

namespace perfpass::ir {

enum class How : std::uint8_t { ints, pads, integer, axis, equation };
enum class Form : std::uint8_t {
  plain,
  conv,
  conv_transpose,
  pool,
  global_pool,
  adaptive_pool,
  first_output,
  dense_pack,
  attention,
  no_node,
  call_tir,
  packed,
  unsupported,
};

struct Read {
  std::string attribute;  // its name in TVM
  How how = How::integer;
  std::size_t column = 0;  // of NodeAttributes; the first of a group for ints, pad_begin_0 for pads
};

struct Rule {
  OpKind op = OpKind::unknown;
  std::vector<Read> reads;
  Form form = Form::plain;
  bool all_inputs = true;
  std::vector<std::size_t> inputs;  // argument positions, if not all_inputs
  std::vector<std::pair<std::size_t, std::int32_t>> fixed;
};

using RuleTable = std::unordered_map<std::string, Rule>;

/// Error(argument) for a name that is not in tvm_perfpass/rules.py's READS or FORMS, or not a column of NodeAttributes.
How how_from_name(std::string_view name);
Form form_from_name(std::string_view name);
/// `name` is a column ("axis") or the stem of a group ("kernel" for kernel_0; "pad" for pad_begin_0).
std::size_t column_from_name(std::string_view name);

}  // namespace perfpass::ir
