// A block of Core ML's ML Programs (MIL) to a graph, where operations that are alike are lowered once.
//
// What an operation means is known elsewhere (perfpass.importers.formats.coreml.program): of every signature, which is
// all that its lowering looks at, one is lowered there, and what came of it is repeated here for the others. Fields by
// number: MIL.proto of coremltools 9.0.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perfpass/export.hpp"
#include "perfpass/graph.hpp"
#include "perfpass/message_fields.hpp"

namespace perfpass {

/// What values of one type are, or constants of one type and content.
struct MilValue {
  DType dtype = DType::undefined;
  std::vector<std::int64_t> shape;
  TensorRole role = TensorRole::activation;
  bool is_tensor = true;  // a text is none
};

/// A value that an operation reads: its name, and its number among the values that were asked for.
struct MilRead {
  std::string_view name;
  std::uint32_t value = 0;
};

/// What an operation became.
struct MilLowered {
  std::int32_t same_as = -1;  // no operator: its first output is what it reads at this place
  OpKind op = OpKind::unknown;
  std::string source;
  NodeAttributes attributes;
  std::vector<std::int32_t> inputs;  // by place among those it reads; -1 left out; -2 - i: the i-th of `constants`
  std::vector<MilValue> constants;   // that stand in the operation itself
};

/// Bytes of the file.
struct MilSpan {
  std::size_t begin = 0, end = 0;
};

/// Who knows what types and operations mean.
struct MilMeaning {
  /// The next value: of the type in these bytes, and, of a constant, its contents where it has some.
  std::function<MilValue(MilSpan type, bool is_constant, std::optional<MilSpan> given)> value;
  /// The operator of the operation there; nothing where it is not to be repeated.
  std::function<std::optional<MilLowered>(MilSpan operation, std::span<const MilRead> read)> operation;
};

/// An input of the program; inputs are the first values, in their order.
struct MilInput {
  std::string_view name;
  MilValue value;
};

/// The graph of the block in these bytes; nothing for a block that is to be read operation by operation: with blocks in
/// it, weights that are unpacked, names that are no ASCII, or damage, which that reading names. Errors of `meaning` are
/// its own; Error(limit) for too many fields, Error(graph).
PERFPASS_API std::optional<OpGraph> read_mil_block(std::span<const std::uint8_t> data, MilSpan block,
                                                   FieldBudget& budget, std::span<const MilInput> inputs,
                                                   const MilMeaning& meaning);

}  // namespace perfpass
