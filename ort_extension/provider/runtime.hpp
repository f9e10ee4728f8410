// The C API of the onnxruntime that loaded this library.
#pragma once

#include <onnxruntime_c_api.h>

#include <stdexcept>
#include <string>

namespace perfpass::ort {

/// onnxruntime refused a call.
class RuntimeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Runtime {
  const OrtApi* api = nullptr;
  const OrtEpApi* ep = nullptr;
  /// Whether a tensor type has a shape at all: without it a scalar and a tensor of unknown rank look the same. Null
  /// before 1.24.
  bool(ORT_API_CALL* has_shape)(const OrtTensorTypeAndShapeInfo*) = nullptr;

  void check(OrtStatus* status) const {
    if (status != nullptr) [[unlikely]]
      fail(status);
  }

 private:
  [[noreturn, gnu::cold]] void fail(OrtStatus* status) const {
    const std::string message = api->GetErrorMessage(status);
    api->ReleaseStatus(status);
    throw RuntimeError(message);
  }
};

}  // namespace perfpass::ort
