// Sequences of tensors, optional values and text features. The Value of a sequence is the type of its elements and the
// shape they share; where they share none, the shape is unknown.
#include <algorithm>

#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {

bool infer_sequence_construct(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims first = shape_of(c, 0);
  for (const Value* v : c.inputs) {
    if (v == nullptr || !v->has_shape || !std::equal(v->shape.begin(), v->shape.end(), first.begin(), first.end())) {
      return false;
    }
  }
  set(c, 0, dtype_of(c, 0), first);
  return true;
}

bool infer_sequence_insert(InferContext& c, const Operator&) {
  // sequence, tensor, position; an empty sequence has no shape, the tensor then decides
  set_dtype(c, 0, dtype_of(c, 1));
  if (!ready(c, {1}) || input(c, 0) == nullptr) return false;
  const Dims tensor = shape_of(c, 1), sequence = shape_of(c, 0);
  if (c.inputs[0]->has_shape && !std::equal(tensor.begin(), tensor.end(), sequence.begin(), sequence.end()))
    return false;
  set(c, 0, dtype_of(c, 1), tensor);
  return true;
}

bool infer_sequence_element(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (input(c, 0) == nullptr || !c.inputs[0]->has_shape) return false;
  set(c, 0, dtype_of(c, 0), shape_of(c, 0));
  return true;
}

bool infer_sequence_length(InferContext& c, const Operator&) {
  set(c, 0, DType::int64, Shape{});
  return true;
}

bool infer_split_to_sequence(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Shape out(shape_of(c, 0));
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", 0), out.size());
  std::int64_t length = 1;
  bool keeps = true;
  if (input(c, 1) == nullptr) {
    keeps = integer_attribute(c, "keepdims", 1) != 0;
  } else {
    const Value* split = integers_of(c, 1);
    if (split == nullptr || split->integers.empty()) return false;
    length = split->integers[0];
    const bool equal = std::all_of(split->integers.begin(), split->integers.end(), [&](auto v) { return v == length; });
    if (length < 1 || !equal || (split->shape.empty() && out[axis] % length != 0)) return false;
  }
  Shape element;
  for (std::size_t d = 0; d < out.size(); ++d) {
    if (d != axis) element.push(out[d]);
    if (d == axis && keeps) element.push(length);
  }
  set(c, 0, dtype_of(c, 0), element);
  return true;
}

bool infer_has_element(InferContext& c, const Operator&) {
  set(c, 0, DType::boolean, Shape{});
  if (input(c, 0) == nullptr) set_integers(c, 0, Shape{0});
  return true;
}

bool infer_tf_idf(InferContext& c, const Operator&) {
  set_dtype(c, 0, DType::float32);
  if (!ready(c, {0})) return false;
  const Dims indexes = integers_attribute(c, "ngram_indexes");
  if (indexes.empty()) fail(c, "found no ngram_indexes, needs the column of every n-gram");
  Shape out(shape_of(c, 0));
  const std::int64_t columns = *std::max_element(indexes.begin(), indexes.end());
  if (out.size() == 0 || columns < 0 || columns >= kMaxElements) {
    fail(c, "found an input of shape " + show(out) + " and " + std::to_string(columns) + " as last column");
  }
  out[out.size() - 1] = columns + 1;
  set(c, 0, DType::float32, out);
  return true;
}

bool infer_ngram(InferContext& c, const Operator&) {  // scores with those of repeated n-grams struck out
  set_dtype(c, 0, dtype_of(c, 1));
  if (!ready(c, {1})) return false;
  set(c, 0, dtype_of(c, 1), shape_of(c, 1));
  return true;
}

bool infer_array_features(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0);
  if (x.empty()) fail(c, "found a scalar, needs [rows, features]");
  Shape out(x.size() == 1 ? Dims() : x.first(x.size() - 1));
  if (x.size() == 1) out.push(1);
  out.push(elements(shape_of(c, 1)));
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_linear_classifier(InferContext& c, const Operator&) {
  Dims numbers = integers_attribute(c, "classlabels_ints");
  if (numbers.empty()) numbers = integers_attribute(c, "classlabels_int64s");  // of trees
  const Attribute* texts = c.find("classlabels_strings");
  set_dtype(c, 0, numbers.empty() ? DType::string : DType::int64);
  set_dtype(c, 1, DType::float32);
  if (!ready(c, {0})) return false;
  const std::size_t classes = std::max(numbers.size(), texts == nullptr ? 0 : texts->texts.size());
  if (classes == 0) return false;
  const Dims x = shape_of(c, 0);
  const std::int64_t rows = x.size() < 2 ? 1 : x[0];
  set(c, 0, c.outputs[0].dtype, Shape{rows});
  set(c, 1, DType::float32, Shape{rows, static_cast<std::int64_t>(classes)});
  return true;
}

bool infer_linear_regressor(InferContext& c, const Operator&) {
  set_dtype(c, 0, DType::float32);
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  set(c, 0, DType::float32,
      Shape{x.empty() ? 1 : x[0], integer_attribute(c, "targets", integer_attribute(c, "n_targets", 1))});
  return true;
}

}  // namespace perfpass::onnx
