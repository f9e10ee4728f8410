// What the walk collects before it builds the graph, and what an expression stands for during it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attribute_source.hpp"
#include "perfpass/graph.hpp"
#include "rules.hpp"

namespace perfpass::ir {

/// A tensor (a: its record), a tuple (a, b: first and number in Records::tuples) or a function (a: closure).
struct Value {
  enum class Kind : std::uint8_t { none, tensor, tuple, function } kind = Kind::none;
  std::int32_t a = 0;
  std::int32_t b = 0;
};

struct TensorRecord {
  std::int32_t first_dim;
  std::int32_t rank;
  DType dtype;
  TensorRole role;
  std::int32_t name;      // into Records::names, kNone for no name
  bool constant = false;  // its elements are in the module: what is computed from it alone can be folded
};

struct NodeRecord {
  OpKind op;
  std::int32_t source;  // into Records::sources
  NodeAttributes attributes;
  std::int32_t first_input, inputs;
  std::int32_t first_output, outputs;
  std::int32_t group;
};

struct Records {
  std::vector<TensorRecord> tensors;
  std::vector<std::int64_t> dims;
  std::vector<NodeRecord> nodes;
  std::vector<TensorId> links;  // inputs and outputs of nodes
  std::vector<Value> tuples;
  std::vector<std::string> names;
  std::vector<std::string> sources;
  std::vector<std::string> notes;

  /// Forgets everything and keeps the memory.
  void clear() noexcept {
    tensors.clear();
    dims.clear();
    nodes.clear();
    links.clear();
    tuples.clear();
    names.clear();
    sources.clear();
    notes.clear();
  }
  std::span<const std::int64_t> shape(TensorId t) const {
    return {dims.data() + tensors[t].first_dim, static_cast<std::size_t>(tensors[t].rank)};
  }
  /// Gives a tensor another shape of the same number of elements (the logical shape of a blocked layout).
  void reshape(TensorId t, std::span<const std::int64_t> shape) {
    tensors[t].first_dim = static_cast<std::int32_t>(dims.size());
    tensors[t].rank = static_cast<std::int32_t>(shape.size());
    dims.insert(dims.end(), shape.begin(), shape.end());
  }
  /// Appends the tensors a value stands for, tuples flattened. False if it holds a function.
  bool flatten(Value value, std::vector<TensorId>& out) const {
    if (value.kind == Value::Kind::tensor) {
      out.push_back(value.a);
      return true;
    }
    if (value.kind != Value::Kind::tuple) return false;
    for (std::int32_t i = 0; i < value.b; ++i) {
      if (!flatten(tuples[value.a + i], out)) return false;
    }
    return true;
  }
};

/// The attributes of one operator call. May narrow `op` (an adaptive pooling to 1 x 1 is a global one) and give blocked
/// tensors among inputs and outputs their logical shape.
NodeAttributes lower(AttributeSource& from, const Rule& rule, const std::string& source, Handle attrs,
                     std::span<const TensorId> inputs, std::span<const TensorId> outputs, Records& records, OpKind& op);

}  // namespace perfpass::ir
