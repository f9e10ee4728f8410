// The shapes of a model's inputs: what the file declares, with the caller's dimensions, shapes and batch put in.
#pragma once

#include <map>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onnx/model.hpp"

namespace perfpass::onnx {

class InputShapes {
 public:
  /// Error(argument) for names that the model does not have, Error(shape) for contradictions and for symbols that are
  /// left without a value: the message names them, their inputs and the options that set them.
  InputShapes(const Model& model, const OnnxOptions& options, std::pmr::memory_resource& arena);

  struct Input {
    const ValueInfo* declared;
    std::span<const std::int64_t> shape;
  };
  /// Inputs that are not initializers as well, in the order of the file.
  std::span<const Input> inputs() const noexcept { return inputs_; }

  /// The shape of a declared value when all its symbols have values; nothing otherwise, and nothing at all when an
  /// input has another size than the file was made for, because sizes in the file are then stale.
  std::optional<std::span<const std::int64_t>> resolve(const ValueInfo& info) const;

  bool stale() const noexcept { return stale_; }
  std::int64_t file_batch() const noexcept { return file_batch_; }  // 0 unless a fixed batch is rebound
  std::int64_t batch() const noexcept { return batch_; }
  std::span<const std::string> notes() const noexcept { return notes_; }

 private:
  void check_names(const Model& model, const OnnxOptions& options) const;
  void bind(Text symbol, std::int64_t value, const std::string& source);
  void apply_shapes(const OnnxOptions& options);
  void apply_batch(const OnnxOptions& options);
  void fill(const OnnxOptions& options);
  std::int64_t dimension(const ValueInfo& info, std::size_t axis) const;

  std::vector<Input> inputs_;
  std::map<std::string, std::int64_t, std::less<>> symbols_;
  std::vector<std::string> notes_;
  bool stale_ = false;
  std::int64_t file_batch_ = 0;
  std::int64_t batch_ = 0;
  std::pmr::memory_resource& arena_;
};

}  // namespace perfpass::onnx
