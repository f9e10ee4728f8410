// Sequences of tensors, optional values and text features. The Value of a sequence is the type of its elements and the
// shape they share; of elements that share none it is one axis with all of their numbers. Where every element is known,
// its shape is kept beside, so that a tensor taken out again has its own.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {
namespace {

using Elements = std::vector<Dims>;

/// The elements of a sequence; nothing where they are not known.
std::optional<Elements> elements_of(const InferContext& c, std::size_t i) {
  const Value* value = input(c, i);
  if (value == nullptr || !value->has_elements) return std::nullopt;
  return Elements(value->elements.begin(), value->elements.end());
}

bool same(Dims a, Dims b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

/// Writes a sequence of these elements, each kept where they are few.
void set_sequence(InferContext& c, DType dtype, const Elements& list) {
  const bool alike = std::all_of(list.begin(), list.end(), [&](Dims shape) { return same(shape, list.front()); });
  std::int64_t total = 0;
  for (const Dims shape : list) total = std::min(total + elements(shape), kMaxElements + 1);  // past it: refused
  set(c, 0, dtype, alike && !list.empty() ? list.front() : Dims(Shape{total}));
  if (list.size() > c.max_values) return;
  auto* kept =
      static_cast<Dims*>(c.arena.allocate(std::max<std::size_t>(1, list.size()) * sizeof(Dims), alignof(Dims)));
  for (std::size_t k = 0; k < list.size(); ++k) {
    std::int64_t* copy = new_integers(c, list[k].size());
    std::copy(list[k].begin(), list[k].end(), copy);
    std::construct_at(&kept[k], copy, list[k].size());
  }
  c.outputs[0].has_elements = true;
  c.outputs[0].elements = {kept, list.size()};
}

/// Which element input i names, of `count`, or of one more where an element is inserted; nothing where it is not known.
std::optional<std::size_t> position_of(const InferContext& c, std::size_t i, std::size_t count, bool inserted) {
  const auto size = static_cast<std::int64_t>(count);
  if (input(c, i) == nullptr) return inserted ? count : count - 1;  // at the end
  const Value* value = integers_of(c, i);
  if (value == nullptr || value->integers.size() != 1) return std::nullopt;
  const std::int64_t at = value->integers[0];
  if (at < -size || at >= size + (inserted ? 1 : 0)) {
    fail(c, "found position " + std::to_string(at) + " of a sequence of " + std::to_string(size) + " tensors");
  }
  return static_cast<std::size_t>(at < 0 ? at + size : at);
}

}  // namespace

bool infer_sequence_empty(InferContext& c, const Operator&) {
  set_sequence(c, data_type(integer_attribute(c, "dtype", 1)), {});
  return true;
}

bool infer_sequence_construct(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Elements list;
  for (const Value* v : c.inputs) {
    if (v == nullptr || !v->has_shape) return false;
    list.push_back(v->shape);
  }
  set_sequence(c, dtype_of(c, 0), list);
  return true;
}

bool infer_sequence_insert(InferContext& c, const Operator&) {  // sequence, tensor, position
  set_dtype(c, 0, dtype_of(c, 1));
  if (!ready(c, {1}) || input(c, 0) == nullptr) return false;
  const Dims tensor = shape_of(c, 1), sequence = shape_of(c, 0);
  if (auto list = elements_of(c, 0)) {
    const auto at = position_of(c, 2, list->size(), true);
    const bool alike = std::all_of(list->begin(), list->end(), [&](Dims shape) { return same(shape, tensor); });
    if (!at && !alike) return false;
    list->insert(list->begin() + static_cast<std::ptrdiff_t>(at.value_or(0)), tensor);
    set_sequence(c, dtype_of(c, 1), *list);
    return true;
  }
  const bool empty = same(sequence, Shape{0});  // then the tensor decides
  if (c.inputs[0]->has_shape && !empty && !same(tensor, sequence)) return false;
  set(c, 0, dtype_of(c, 1), tensor);
  return true;
}

bool infer_sequence_element(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (input(c, 0) == nullptr || !c.inputs[0]->has_shape) return false;
  set(c, 0, dtype_of(c, 0), shape_of(c, 0));
  return true;
}

bool infer_sequence_at(InferContext& c, const Operator& op) {
  const auto list = elements_of(c, 0);
  if (!list) return infer_sequence_element(c, op);
  set_dtype(c, 0, dtype_of(c, 0));
  const auto at = position_of(c, 1, list->size(), false);
  const bool alike = std::all_of(list->begin(), list->end(), [&](Dims shape) { return same(shape, list->front()); });
  if (list->empty() || (!at && !alike)) return false;
  set(c, 0, dtype_of(c, 0), (*list)[at.value_or(0)]);
  return true;
}

bool infer_sequence_erase(InferContext& c, const Operator& op) {
  auto list = elements_of(c, 0);
  if (!list) return infer_sequence_element(c, op);
  set_dtype(c, 0, dtype_of(c, 0));
  if (list->empty()) fail(c, "found an empty sequence, needs one with a tensor to take out");
  const auto at = position_of(c, 1, list->size(), false);
  const bool alike = std::all_of(list->begin(), list->end(), [&](Dims shape) { return same(shape, list->front()); });
  if (!at && !alike) return false;
  list->erase(list->begin() + static_cast<std::ptrdiff_t>(at.value_or(0)));
  set_sequence(c, dtype_of(c, 0), *list);
  return true;
}

bool infer_sequence_joined(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  const auto list = elements_of(c, 0);
  if (!list || list->empty()) return false;
  Shape out(list->front());
  const bool stacks = integer_attribute(c, "new_axis", 0) != 0;
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", 0), out.size() + (stacks ? 1 : 0));
  for (const Dims shape : *list) {
    bool fits = shape.size() == out.size();
    for (std::size_t d = 0; fits && d < shape.size(); ++d) {
      fits = shape[d] == list->front()[d] || (!stacks && d == axis);
    }
    if (!fits) fail(c, "found tensors of shape " + show(list->front()) + " and " + show(shape) + " in one sequence");
  }
  if (stacks) {
    out.insert(axis, static_cast<std::int64_t>(list->size()));
  } else {
    out[axis] = 0;
    for (const Dims shape : *list) out[axis] += shape[axis];
  }
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_sequence_length(InferContext& c, const Operator&) {
  set(c, 0, DType::int64, Shape{});
  if (const auto list = elements_of(c, 0)) set_integers(c, 0, Shape{static_cast<std::int64_t>(list->size())});
  return true;
}

bool infer_split_to_sequence(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims whole = shape_of(c, 0);
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", 0), whole.size());
  const bool keeps = input(c, 1) != nullptr || integer_attribute(c, "keepdims", 1) != 0;
  const Value* split = input(c, 1) == nullptr ? nullptr : integers_of(c, 1);
  if (input(c, 1) != nullptr && (split == nullptr || split->integers.empty())) return false;
  const std::int64_t part = split == nullptr ? 1 : split->integers[0];
  const auto cut = [&](std::int64_t length) {
    Shape element;
    for (std::size_t d = 0; d < whole.size(); ++d) {
      if (d != axis) element.push(whole[d]);
      if (d == axis && keeps) element.push(length);
    }
    return element;
  };
  std::vector<Shape> parts;
  if (split != nullptr && !split->shape.empty()) {  // the length of each
    std::int64_t left = whole[axis];
    for (const std::int64_t length : split->integers) {
      if (length < 0 || length > left) break;
      left -= length;
      parts.push_back(cut(length));
    }
    if (parts.size() != split->integers.size() || left != 0) {
      fail(c, "found parts of " + show(split->integers) + " along an axis of " + std::to_string(whole[axis]));
    }
  } else {  // of one length, the last of the rest
    if (part < 1) fail(c, "found parts of length " + std::to_string(part) + ", needs 1 or more");
    const std::int64_t count = whole[axis] / part + (whole[axis] % part != 0 ? 1 : 0);
    if (static_cast<std::uint64_t>(count) > c.max_values) {
      if (whole[axis] % part != 0) return false;
      set(c, 0, dtype_of(c, 0), cut(part));
      return true;
    }
    for (std::int64_t k = 0; k < count; ++k) parts.push_back(cut(std::min(part, whole[axis] - k * part)));
  }
  set_sequence(c, dtype_of(c, 0), Elements(parts.begin(), parts.end()));
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

bool infer_label_encoder(InferContext& c, const Operator&) {
  static constexpr std::pair<Text, DType> kValues[] = {{"values_int64s", DType::int64},
                                                       {"values_floats", DType::float32},
                                                       {"values_strings", DType::string},
                                                       {"classes_strings", DType::string}};  // of version 1
  DType type = DType::undefined;
  for (const auto& [name, of_values] : kValues) {
    if (c.find(name) != nullptr) type = of_values;
  }
  if (const Attribute* values = c.find("values_tensor"); values != nullptr && values->tensor != nullptr) {
    type = values->tensor->dtype;
  }
  if (c.find("classes_strings") != nullptr && dtype_of(c, 0) == DType::string) type = DType::int64;
  set_dtype(c, 0, type);
  if (type == DType::undefined || !ready(c, {0})) return false;
  set(c, 0, type, shape_of(c, 0));
  return true;
}

bool infer_one_hot_encoder(InferContext& c, const Operator&) {
  set_dtype(c, 0, DType::float32);
  if (!ready(c, {0})) return false;
  const Attribute* texts = c.find("cats_strings");
  const std::size_t categories =
      std::max(integers_attribute(c, "cats_int64s").size(), texts == nullptr ? 0 : texts->texts.size());
  if (categories == 0) fail(c, "has no categories (cats_int64s, cats_strings)");
  Shape out(shape_of(c, 0));
  out.push(static_cast<std::int64_t>(categories));
  set(c, 0, DType::float32, out);
  return true;
}

bool infer_tree_ensemble(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  set(c, 0, dtype_of(c, 0), Shape{x.empty() ? 1 : x[0], integer_attribute(c, "n_targets", 1)});
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
