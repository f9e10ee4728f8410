// ONNX model files to OpGraphs: a bounded protobuf wire reader.
//
// Tensor data is never read, except small integer, boolean and float constants that decide shapes (kMaxShapeConstant
// elements at most). Of large files it is not even copied into memory. External data files are never opened.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "perfpass/export.hpp"
#include "perfpass/graph.hpp"

namespace perfpass {

struct OnnxLimits {
  std::uint64_t file_bytes = std::uint64_t{64} << 30;
  int nesting = 32;  // subgraphs and functions within one another
  std::size_t string_bytes = 1 << 16;
  std::size_t nodes = 1'000'000;                      // after inlining functions and subgraphs
  std::size_t shape_constant = 4096;                  // elements of a constant that shape inference may read
  std::uint64_t whole_file = std::uint64_t{4} << 20;  // larger files are read without their tensor data
};

/// A tensor that a node reads or writes; absent where it is optional and left out.
struct TensorType {
  DType dtype = DType::undefined;
  std::vector<std::int64_t> shape;
  bool present = true;
};

/// A node whose operator the vocabulary does not know, as its file has it; `name` is "domain::operator".
struct SourceNode {
  std::string name;
  std::vector<TensorType> inputs;
  std::size_t outputs = 0;
  std::map<std::string, std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>>> attributes;
};

/// What the user says of operators that the vocabulary does not know.
class StatedOperators {
 public:
  struct Lowered {
    OpKind op = OpKind::unknown;
    NodeAttributes attributes;
    StatedCosts costs;
  };
  virtual ~StatedOperators() = default;
  /// The node's outputs; none where nothing is stated of them.
  virtual std::vector<TensorType> outputs(const SourceNode& node) = 0;
  /// What the node is counted as, its outputs known.
  virtual std::optional<Lowered> lowered(const SourceNode& node, const std::vector<TensorType>& outputs) = 0;
};

struct OnnxOptions {
  /// Values of symbolic dimensions by name ("batch" -> 8).
  std::map<std::string, std::int64_t> dims;
  /// Values of whole input shapes by input name; they override what the file says.
  std::map<std::string, std::vector<std::int64_t>> input_shapes;
  /// Rebind the leading dimension of every graph input; 0: leave as it is. If the file fixes another batch, shape
  /// constants that repeat it (Reshape targets and the like) are scaled along; Error(shape) where that is
  /// contradictory.
  std::int64_t batch = 0;
  /// How many boxes of an image pass a detector's threshold, where only values could tell; 0: kUsualDetections, and as
  /// many behind a NonMaxSuppression as the node itself limits. The graph's notes begin with kAssumedDetections then.
  std::int64_t detections = 0;
  OnnxLimits limits;
  StatedOperators* stated = nullptr;  // asked for every operator that is unknown otherwise
};
/// COCO's evaluation counts so many boxes of an image, and detectors are cut there.
constexpr std::int64_t kUsualDetections = 100;
inline constexpr char kAssumedDetections[] = "detections are assumed";

/// One graph input as the file declares it.
struct OnnxInput {
  std::string name;
  DType dtype = DType::undefined;
  std::vector<std::int64_t> shape;   // kUnknownDim where symbolic
  std::vector<std::string> symbols;  // per axis, empty where fixed
  bool has_shape = false;
};
constexpr std::int64_t kUnknownDim = -1;

PERFPASS_API OpGraph read_onnx_file(const std::string& path, const OnnxOptions& options = {});
PERFPASS_API OpGraph read_onnx_bytes(std::span<const std::uint8_t> bytes, const OnnxOptions& options = {});
/// The inputs (initializers excluded) without reading the nodes' shapes: for messages and command-line help.
PERFPASS_API std::vector<OnnxInput> onnx_inputs_file(const std::string& path, const OnnxLimits& limits = {});

}  // namespace perfpass
