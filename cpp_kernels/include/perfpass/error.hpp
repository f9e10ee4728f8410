// Typed errors of the core. Every failure that a caller can cause has a code; messages say what was found, what is
// allowed and what to do.
#pragma once

#include <stdexcept>
#include <string>

#include "perfpass/export.hpp"

namespace perfpass {

enum class ErrorCode {
  io,           // a file cannot be opened or read
  format,       // the bytes are not what they claim to be (truncated, wrong wire type, not ONNX)
  limit,        // a documented bound is exceeded (file size, nesting, rank, dimension product, node count)
  graph,        // the graph is inconsistent (cycle, two producers of a tensor, a missing tensor)
  shape,        // a shape is unresolved or contradictory (symbolic dimension without a value)
  argument,     // the caller passed a value outside the documented range
  unsupported,  // understood, but not handled; the message names it
};

class PERFPASS_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace perfpass
