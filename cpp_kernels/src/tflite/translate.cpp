// From an operator's options and operands to those that its rule of shapes reads (operators.hpp).
#include <optional>

#include "onnx/contents.hpp"
#include "perfpass/error.hpp"
#include "support/arena_list.hpp"
#include "support/text.hpp"
#include "tflite/schema.hpp"
#include "tflite/subgraph.hpp"

namespace perfpass::tflite {
namespace {

constexpr std::int8_t kSame = 0;  // Padding

/// The TensorProto.DataType number of a type, for the rules that read one as attribute.
std::int64_t onnx_type(DType dtype) {
  for (std::int64_t number = 1; number <= 23; ++number) {
    if (onnx::data_type(number) == dtype) return number;
  }
  return 0;
}

bool is_quantized_type(DType dtype) {
  return dtype == DType::int8 || dtype == DType::uint8 || dtype == DType::int16 || dtype == DType::int4 ||
         dtype == DType::uint4;
}

}  // namespace

void Subgraph::integers(Options& options, Text name, std::initializer_list<std::int64_t> values) const {
  options.integers(name, arena_copy(file_.arena, std::span<const std::int64_t>(values.begin(), values.size())));
}

void Subgraph::padding(const Table& table, unsigned slot, Options& options) const {
  options.text("auto_pad", table.scalar<std::int8_t>(slot) == kSame ? "SAME_UPPER" : "VALID");
}

void Subgraph::translate() {
  const References operators = table_.references(subgraph::kOperators);
  if (operators.size() > file_.limits.nodes) {
    throw Error(ErrorCode::limit, "a subgraph of " + std::to_string(operators.size()) + " operators; at most " +
                                      std::to_string(file_.limits.nodes) + " are allowed");
  }
  nodes_.reserve(operators.size() + operators.size() / 2);
  std::size_t fed = 0;
  for (const Tensor& tensor : tensors_) fed += tensor.is_fed ? 1 : 0;
  infos_.reserve(fed + fed / 8);
  constants_.reserve(tensors_.size() - fed + 16);
  Operation operation;
  for (std::size_t i = 0; i < operators.size(); ++i) {
    operation.table = operators.table(i);
    operation.options = operation.table.table(node::kOptions);
    operation.code = builtin_of(file_, operation.table);
    const auto list = [&](unsigned slot, std::vector<std::int32_t>& numbers) {
      const auto stored = operation.table.numbers<std::int32_t>(slot);
      numbers.clear();
      for (std::size_t k = 0; k < stored.size(); ++k) numbers.push_back(tensor_number(stored[k], true));
    };
    list(node::kInputs, operation.inputs);
    list(node::kOutputs, operation.outputs);
    translate(operation);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].is_fed) infos_.push_back(info_of(static_cast<std::int32_t>(i)));
  }
  for (const std::int32_t output : outputs_) operand(output);  // a constant may be one
}

/// Of 8- or 16-bit data, or of weights of 8 bits and less under floating data, which the kernel quantizes as it runs.
bool Subgraph::is_quantized(const Operation& operation) const {
  const auto quantized = [&](std::size_t i) {
    if (i >= operation.inputs.size() || operation.inputs[i] < 0) return false;
    const Tensor& tensor = tensors_[operation.inputs[i]];
    return is_quantized_type(tensor.dtype) && (tensor.is_quantized || !tensor.is_constant);
  };
  const Form form = builtins()[operation.code].form;
  const bool is_product = form == Form::conv || form == Form::depthwise || form == Form::conv_3d ||
                          form == Form::dense || form == Form::batch_matmul;
  if (is_product) return quantized(0) || quantized(1);
  const std::size_t data = form == Form::transpose_conv || form == Form::transpose_conv_3d ? 2 : 0;
  return quantized(data) && tensors_[operation.inputs[data]].is_quantized;
}

void Subgraph::translate(Operation& operation) {
  if (operation.code >= builtins().size()) {
    static constexpr Operator kNewer = {"BUILTIN", onnx::Domain::other, OpKind::unknown};
    ++newer_;
    operation.quantized = false;
    operation.op = &kNewer;
    finish(operation, operands(operation), {});
    nodes_.back().op_type = joined("BUILTIN_", std::to_string(operation.code));
    return;
  }
  operation.quantized = is_quantized(operation);
  operation.op = &operator_of(operation.code, operation.quantized);
  const Table& options = operation.options;
  switch (builtins()[operation.code].form) {
    case Form::conv:
    case Form::depthwise:
    case Form::conv_3d:
      return convolution(operation);
    case Form::transpose_conv:
    case Form::transpose_conv_3d:
      return transposed_convolution(operation);
    case Form::pool:
      return pooling(operation);
    case Form::dense:
      return dense(operation);
    case Form::recurrent:
    case Form::recurrent_both:
      return recurrent(operation);
    case Form::lstm:
    case Form::lstm_both:
      return lstm(operation);
    case Form::folded:
      return fold(operation);
    case Form::once:
      calls_once_ = true;
      return;
    case Form::call:
      return call(operation, options.scalar<std::uint32_t>(0), {});
    case Form::composite: {
      const Table stored = operation.table.table(node::kOptions2);
      return call(operation, stored.scalar<std::int32_t>(composite::kSubgraph), stored.text(composite::kName));
    }
    case Form::conditional:
      return conditional(operation);
    case Form::loop:
      return loop(operation);
    case Form::custom:
      return custom_operator(operation);
    case Form::dot_general:
      return dot_general(operation);
    case Form::convolution:
      return stablehlo_convolution(operation);
    case Form::strided_slice:
    case Form::split:
    case Form::split_lengths:
      return sliced(operation);
    default:
      return moved(operation);
  }
}

void Subgraph::convolution(const Operation& operation) {
  const Form form = builtins()[operation.code].form;
  const Table& table = operation.options;
  const auto number = [&](unsigned slot) { return std::int64_t{table.scalar<std::int32_t>(slot, 1)}; };
  Options options;
  padding(table, conv::kPadding, options);
  if (operation.inputs.size() < 2 || operation.inputs[0] < 0 || operation.inputs[1] < 0) {
    return finish(operation, operands(operation), options);
  }
  const auto x = tensors_[operation.inputs[0]].shape, weight = tensors_[operation.inputs[1]].shape;
  View view = View::outputs_first;
  std::int64_t groups = 1;
  const auto ratio = [](std::int64_t a, std::int64_t b) { return a > 0 && b > 0 && a % b == 0 ? a / b : 1; };
  if (form == Form::conv_3d) {
    integers(options, "strides", {number(conv_3d::kStrideD), number(conv_3d::kStrideH), number(conv_3d::kStrideW)});
    integers(options, "dilations",
             {number(conv_3d::kDilationD), number(conv_3d::kDilationH), number(conv_3d::kDilationW)});
    view = View::spatial_first;
    if (weight.size() == 5) integers(options, "kernel_shape", {weight[0], weight[1], weight[2]});
    if (weight.size() == 5 && x.size() == 5) groups = ratio(x[4], weight[3]);
  } else {
    integers(options, "strides", {number(conv::kStrideH), number(conv::kStrideW)});
    const bool depthwise = form == Form::depthwise;
    integers(options, "dilations",
             {number(depthwise ? depthwise::kDilationH : conv::kDilationH),
              number(depthwise ? depthwise::kDilationW : conv::kDilationW)});
    if (weight.size() == 4) {
      integers(options, "kernel_shape", {weight[1], weight[2]});
      if (depthwise) {
        view = View::depthwise;
        const std::int64_t multiplier = table.scalar<std::int32_t>(depthwise::kMultiplier);
        groups = x.size() == 4 && x[3] > 0 ? x[3] : ratio(weight[3], multiplier);
      } else if (x.size() == 4) {
        groups = ratio(x[3], weight[3]);
      }
    }
  }
  options.integer("group", groups);
  const auto inputs = arena_list<Text>(file_.arena, operation.inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = operand(operation.inputs[i], i == 1 ? view : View::as_stored);
  }
  finish(operation, inputs, options);
}

/// The output's shape, the weight, the data and perhaps a bias become data, weight, bias and shape.
void Subgraph::transposed_convolution(const Operation& operation) {
  const bool is_3d = builtins()[operation.code].form == Form::transpose_conv_3d;
  const Table& table = operation.options;
  const auto number = [&](unsigned slot) { return std::int64_t{table.scalar<std::int32_t>(slot, 1)}; };
  Options options;
  padding(table, conv::kPadding, options);
  if (operation.inputs.size() < 3 || operation.inputs[1] < 0) return finish(operation, operands(operation), options);
  const auto weight = tensors_[operation.inputs[1]].shape;
  if (is_3d) {
    integers(options, "strides", {number(conv_3d::kStrideD), number(conv_3d::kStrideH), number(conv_3d::kStrideW)});
    if (weight.size() == 5) integers(options, "kernel_shape", {weight[0], weight[1], weight[2]});
  } else {
    integers(options, "strides", {number(conv::kStrideH), number(conv::kStrideW)});
    if (weight.size() == 4) integers(options, "kernel_shape", {weight[1], weight[2]});
  }
  const Text bias = operation.inputs.size() > 3 ? operand(operation.inputs[3]) : Text();
  finish(operation,
         kept({operand(operation.inputs[2]), operand(operation.inputs[1], is_3d ? View::kernel_last : View::transposed),
               bias, operand(operation.inputs[0])}),
         options);
}

void Subgraph::pooling(const Operation& operation) {
  const Table& table = operation.options;
  const auto number = [&](unsigned slot) { return std::int64_t{table.scalar<std::int32_t>(slot)}; };
  Options options;
  padding(table, conv::kPadding, options);
  integers(options, "strides", {number(conv::kStrideH), number(conv::kStrideW)});
  integers(options, "kernel_shape", {number(pool::kHeight), number(pool::kWidth)});
  finish(operation, operands(operation), options);
}

/// A product with a weight of [outputs, inputs]. The kernel reads its input as rows; where they are not those of the
/// input's last axis, a node shows it.
void Subgraph::dense(Operation& operation) {
  static constexpr Operator kRows = {"RESHAPE", onnx::Domain::other, OpKind::reshape, onnx::infer_reshape,
                                     onnx::lower_view};
  Options options;
  options.integer("transB", 1);
  options.integer("keep_num_dims", operation.options.scalar<std::uint8_t>(dense::kKeepDims));
  const std::span<Text> inputs = operands(operation);
  if (operation.inputs.size() > 1 && operation.inputs[0] >= 0 && operation.inputs[1] >= 0) {
    const Tensor& x = tensors_[operation.inputs[0]];
    const Tensor& weight = tensors_[operation.inputs[1]];
    if (operation.quantized && bits_of(weight.dtype) < 8 && is_floating(x.dtype)) operation.op = &few_bits_product();
    if (weight.shape.size() == 2 && weight.shape[1] > 0 && !x.shape.empty() && x.shape.back() > 0 &&
        x.shape.back() != weight.shape[1]) {
      Options rows;
      integers(rows, "shape", {-1, weight.shape[1]});
      const Text flat = joined(inputs[0], "#rows " + std::to_string(made_++));
      emit(&kRows, kept({inputs[0]}), kept({flat}), rows);
      inputs[0] = flat;
    }
  }
  finish(operation, inputs, options);
}

void Subgraph::sliced(const Operation& operation) {
  const Table& table = operation.options;
  const auto number = [&](unsigned slot) { return std::int64_t{table.scalar<std::int32_t>(slot)}; };
  const auto input = [&](std::size_t i) { return i < operation.inputs.size() ? operation.inputs[i] : -1; };
  Options options;
  switch (builtins()[operation.code].form) {
    case Form::strided_slice:
      options.integer("begin_mask", number(slicing::kBegin));
      options.integer("end_mask", number(slicing::kEnd));
      options.integer("ellipsis_mask", number(slicing::kEllipsis));
      options.integer("new_axis_mask", number(slicing::kNewAxis));
      options.integer("shrink_axis_mask", number(slicing::kShrink));
      options.integer("offset", table.scalar<std::uint8_t>(slicing::kOffset));
      return finish(operation, operands(operation), options);
    case Form::split:
      if (const auto axis = contents(input(0)); axis && axis->size() == 1) options.integer("axis", axis->front());
      return finish(operation, kept({operand(input(1))}), options);
    default:
      if (const auto axis = contents(input(2)); axis && axis->size() == 1) options.integer("axis", axis->front());
      return finish(operation, kept({operand(input(0)), operand(input(1))}), options);
  }
}

void Subgraph::moved(Operation& operation) {
  const Table& table = operation.options;
  const auto number = [&](unsigned slot, std::int32_t fallback = 0) {
    return std::int64_t{table.scalar<std::int32_t>(slot, fallback)};
  };
  const auto input = [&](std::size_t i) { return i < operation.inputs.size() ? operation.inputs[i] : -1; };
  const auto output_type = [&] {
    return operation.outputs.empty() || operation.outputs[0] < 0 ? DType::undefined
                                                                 : tensors_[operation.outputs[0]].dtype;
  };
  Options options;
  switch (builtins()[operation.code].form) {
    case Form::batch_matmul:
      options.integer("transA", table.scalar<std::uint8_t>(0));
      options.integer("transB", table.scalar<std::uint8_t>(1));
      break;
    case Form::axis_option:
      options.integer("axis", table.has(0) || operation.table.has(node::kOptions)
                                  ? number(0)
                                  : operation.table.table(node::kOptions2).scalar<std::int64_t>(0));
      break;
    case Form::axis_second:
      options.integer("axis", number(1));
      break;
    case Form::block:
      options.integer("blocksize", number(0));
      break;
    case Form::gather:
      options.integer("axis", number(0));
      options.integer("batch_dims", number(1));
      break;
    case Form::lookup:
      return finish(operation, kept({operand(input(1)), operand(input(0))}), options);
    case Form::reduce:
      options.integer("keepdims", table.scalar<std::uint8_t>(0));
      options.integer("noop_with_empty_axes", 1);
      break;
    case Form::squeeze: {
      const auto axes = table.numbers<std::int32_t>(0);
      const auto list = arena_list<std::int64_t>(file_.arena, axes.size());
      for (std::size_t i = 0; i < list.size(); ++i) list[i] = axes[i];
      if (!list.empty()) options.integers("axes", list);
      break;
    }
    case Form::reshape: {
      options.integer("allowzero", 1);
      if (input(1) >= 0) break;
      const auto target = table.numbers<std::int32_t>(0);
      const auto list = arena_list<std::int64_t>(file_.arena, target.size());
      for (std::size_t i = 0; i < list.size(); ++i) list[i] = target[i];
      options.integers("shape", list);
      return finish(operation, kept({operand(input(0))}), options);
    }
    case Form::arg:
      if (const auto axis = contents(input(1)); axis && axis->size() == 1) options.integer("axis", axis->front());
      options.integer("keepdims", 0);
      return finish(operation, kept({operand(input(0))}), options);
    case Form::transpose:
      if (const auto axes = contents(input(1))) {
        options.integers("perm", *axes);
        return finish(operation, kept({operand(input(0))}), options);
      }
      // Which axes change places is not in the file: the declared shape stands.
      static constexpr Operator kOpen = {"TRANSPOSE", onnx::Domain::other, OpKind::transpose};
      operation.op = &kOpen;
      break;
    case Form::permuted: {
      const auto axes = operation.table.table(node::kOptions2).numbers<std::int64_t>(0);
      const auto list = arena_list<std::int64_t>(file_.arena, axes.size());
      for (std::size_t i = 0; i < list.size(); ++i) list[i] = axes[i];
      options.integers("perm", list);
      break;
    }
    case Form::converted:
      options.integer(operation.op->kind == OpKind::cast ? "to" : "output_dtype", onnx_type(output_type()));
      break;
    case Form::cumulative:
      options.integer("exclusive", table.scalar<std::uint8_t>(0));
      options.integer("reverse", table.scalar<std::uint8_t>(1));
      break;
    case Form::assign:
      return finish(operation, operands(operation, 1), options);
    default:
      if (operation.op->kind == OpKind::l2_norm) options.integer("axis", -1);
      break;
  }
  finish(operation, operands(operation), options);
}

/// Constants that the kernel dequantizes or unpacks once: readers of the result read the constant, in its new type.
void Subgraph::fold(const Operation& operation) {
  const bool fits = operation.inputs.size() == 1 && operation.outputs.size() == 1 && operation.inputs[0] >= 0 &&
                    operation.outputs[0] >= 0;
  if (fits) {
    const Tensor& from = tensors_[operation.inputs[0]];
    Tensor& to = tensors_[operation.outputs[0]];
    const std::int32_t origin = from.source >= 0 ? from.source : operation.inputs[0];
    if (tensors_[origin].is_constant && !tensors_[origin].is_fed && !to.is_output) {
      to.source = origin;
      to.is_fed = false;
      ++folded_;
      return;
    }
  }
  finish(operation, operands(operation), {});
}

void Subgraph::custom_operator(Operation& operation) {
  const Table code = file_.codes.table(operation.table.scalar<std::uint32_t>(node::kCode));
  const Text name = code.text(operator_code::kCustom);
  operation.op = &custom(name);
  finish(operation, operands(operation), {});
  nodes_.back().op_type = name.empty() ? Text("CUSTOM") : name;
}

void Subgraph::dot_general(const Operation& operation) {
  const Table table = operation.table.table(node::kOptions2);
  Options options;
  const auto axes = [&](Text name, unsigned slot) {
    const auto stored = table.numbers<std::int64_t>(slot);
    const auto list = arena_list<std::int64_t>(file_.arena, stored.size());
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = stored[i];
    options.integers(name, list);
  };
  axes("lhs_batch", dot_general::kLeftBatch);
  axes("rhs_batch", dot_general::kRightBatch);
  axes("lhs_contracting", dot_general::kLeft);
  axes("rhs_contracting", dot_general::kRight);
  finish(operation, operands(operation), options);
}

/// Dimensions may stand in any order: the weight is shown outputs first, and the shape is the declared one.
void Subgraph::stablehlo_convolution(const Operation& operation) { finish(operation, operands(operation), {}); }

}  // namespace perfpass::tflite
