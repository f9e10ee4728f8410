// TensorProto, SparseTensorProto and ValueInfoProto: types and shapes, and the contents of small constants.
#pragma once

#include "onnx/wire_reader.hpp"

namespace perfpass::onnx {

class TensorReader : protected WireReader {
 protected:
  using WireReader::WireReader;

  /// Error(format) where stored data contradicts the shape. The data is read only where it is small and can decide
  /// shapes.
  void constant(Bytes message, Constant& result);
  /// A sparse tensor counts as a dense constant of its full shape: that is how runtimes hold it.
  void sparse_constant(Bytes message, Constant& result);
  void value_info(Bytes message, ValueInfo& result);

 private:
  std::span<const std::int64_t> dims(Bytes message, std::uint32_t number, const char* name);
  void read_values(Bytes message, Constant& constant, std::int64_t elements, std::uint64_t type, const Field& raw);
  void declared_type(Bytes message, ValueInfo& result);
  void type(Bytes message, ValueInfo& result, int depth);
  void element_type(Bytes message, std::uint32_t number, ValueInfo& result, int depth);
  void tensor_type(Bytes message, ValueInfo& result);
  void shape(Bytes message, ValueInfo& result);

  KnownMessages<ValueInfo> known_types_;  // their names are of other values
};

}  // namespace perfpass::onnx
