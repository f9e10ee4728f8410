// The layers of a TensorRT engine, as its inspector writes them (JSON), to a graph where layers that are alike are
// lowered once.
//
// What a layer means is known elsewhere (perfpass.importers.formats.tensorrt): of every signature, the members that are
// read there and the types and sizes of its tensors, one layer is lowered there and repeated here for the others.
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

namespace perfpass {

/// Type and sizes of a tensor.
struct EngineTensor {
  DType dtype = DType::undefined;
  std::vector<std::int64_t> shape;
};

/// What a layer became. Its weights, named after it, stand behind the first tensor that it reads.
struct EngineLayer {
  struct Weight {
    std::string part;
    EngineTensor tensor;
  };
  OpKind op = OpKind::unknown;
  std::string source;
  NodeAttributes attributes;
  std::vector<Weight> weights;
};

/// Who knows what members and formats mean.
struct EngineMeaning {
  std::vector<std::string> members;  // of a layer that its lowering reads, beside its name and its tensors
  std::function<DType(std::string_view format)> dtype;
  /// The operator of a layer with these members (an object of JSON); nothing where it is not to be repeated.
  std::function<std::optional<EngineLayer>(const std::string& members, std::span<const EngineTensor> read,
                                           std::span<const EngineTensor> written)>
      layer;
};

/// The graph of the engine in this text; nothing for one that is to be read by a parser of JSON: with characters beyond
/// ASCII, names with escapes, open sizes, or damage, which that reading names. Errors of `meaning` are its own.
PERFPASS_API std::optional<OpGraph> read_engine_layers(std::string_view text, const EngineMeaning& meaning);

}  // namespace perfpass
