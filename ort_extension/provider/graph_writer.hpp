// An OrtGraph as the bytes of an ONNX model without weights. What the ONNX reader of the core makes of a file it makes
// of these bytes, so that a session's graph and a file's graph cannot come to differ by a second lowering.
#pragma once

#include <string>
#include <vector>

#include "runtime.hpp"
#include "wire_writer.hpp"

namespace perfpass::ort {

class GraphWriter {
 public:
  explicit GraphWriter(const Runtime& runtime) : runtime_(runtime), api_(*runtime.api), scratch_(kScratch) {}

  /// A serialized ModelProto. Throws RuntimeError, std::length_error past kMostBytes, std::bad_alloc.
  WireWriter model(const OrtGraph* graph);
  /// Nodes written, subgraphs included.
  std::size_t nodes() const noexcept { return nodes_; }

  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;

 private:
  // Bytes of an attribute's value: what is made room for at first, and the most. Longer ones (compiled blobs,
  // tokenizers, tree ensembles) are named, not copied.
  static constexpr std::size_t kScratch = 1024;
  static constexpr std::size_t kLongestAttribute = std::size_t{1} << 20;
  static constexpr int kDeepest = 40;  // subgraphs within one another: more than the reader takes

  void graph(WireWriter& out, const OrtGraph* graph, int depth);
  void node(WireWriter& out, const OrtNode* node, int depth);
  void subgraphs(WireWriter& out, const OrtNode* node, int depth);
  void attributes(WireWriter& out, const OrtNode* node);
  void attribute(WireWriter& out, const OrtOpAttr* attribute);
  void value(WireWriter& out, std::uint32_t field, const OrtValueInfo* info, std::string_view name, bool is_input);
  void type(WireWriter& out, const OrtTypeInfo* info, bool is_input, int depth);
  void contained_type(WireWriter& out, std::uint32_t field, OrtTypeInfo* owned, bool is_input, int depth);
  void tensor_type(WireWriter& out, const OrtTensorTypeAndShapeInfo* info, bool is_input);
  void initializer(WireWriter& out, const OrtValueInfo* info);
  void tensor(WireWriter& out, ONNXTensorElementDataType type, const OrtValue* contents);
  void read_dims(const OrtTensorTypeAndShapeInfo* info);
  const char* name_of(const OrtValueInfo* info) const;

  const Runtime& runtime_;
  const OrtApi& api_;
  std::size_t nodes_ = 0;
  std::vector<const OrtValueInfo*> inputs_, outputs_;
  std::vector<std::string_view> names_;
  std::vector<const OrtOpAttr*> attributes_;
  std::vector<std::int64_t> dims_;
  std::vector<const char*> symbols_;
  std::vector<char> scratch_;
};

}  // namespace perfpass::ort
