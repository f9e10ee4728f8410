// ATen operators by their names, and how the attributes of a call become columns. Shapes are the declared ones.
#include <array>
#include <string>
#include <unordered_map>

#include "executorch/nodes.hpp"
#include "support/arena_list.hpp"

namespace perfpass::executorch {
namespace {

using onnx::InferContext;

void write(std::int32_t (&column)[3], std::span<const std::int64_t> values, std::int32_t rank) {
  for (std::size_t i = 0; i < 3 && i < static_cast<std::size_t>(rank) && !values.empty(); ++i) {
    column[i] = onnx::clamped(values[values.size() == 1 ? 0 : std::min(i, values.size() - 1)]);
  }
}

void lower(InferContext& c, const Operator& op) {
  NodeAttributes& a = c.attributes;
  a.channels_last = static_cast<std::int32_t>(c.integer("channels_last", 0) != 0);
  a.transpose_b = static_cast<std::int32_t>(c.integer("transpose_b", 0) != 0);
  const OpClass cls = op_class(op.kind);
  const auto x = onnx::shape_of(c, 0);
  if (c.find("axis") != nullptr) a.axis = onnx::soft_axis(c.integer("axis", 0), onnx::input(c, 0));
  if (op.kind == OpKind::reshape || op.kind == OpKind::identity)
    a.view = static_cast<std::int32_t>(c.integer("view", 0));
  if (cls != OpClass::convolution && cls != OpClass::pooling) return;
  const auto weight = onnx::shape_of(c, 1);
  const std::size_t rank = cls == OpClass::convolution ? weight.size() : x.size();
  a.spatial_rank = static_cast<std::int32_t>(rank < 3 ? 0 : std::min<std::size_t>(rank - 2, 3));
  write(a.kernel, cls == OpClass::convolution && rank > 2 ? weight.subspan(2) : c.integers("kernel"), a.spatial_rank);
  write(a.stride, c.integers("stride"), a.spatial_rank);
  write(a.dilation, c.integers("dilation"), a.spatial_rank);
  write(a.pad_begin, c.integers("padding"), a.spatial_rank);
  write(a.pad_end, c.find("padding_end") != nullptr ? c.integers("padding_end") : c.integers("padding"),
        a.spatial_rank);
  if (cls != OpClass::convolution) return;
  a.groups = onnx::clamped(c.integer("groups", 1));
  a.weight_layout = op.kind == OpKind::conv_transpose ? 2 : 0;
}

struct Names {
  OpKind kind;
  const char* names;
};

// Core ATen and what ExecuTorch adds to it (quantized_decomposed, dim_order_ops, llama). Variants that copy
// (view_copy) are found without their ending.
constexpr std::array kNames = {
    Names{OpKind::conv, "convolution conv1d conv2d conv3d"},
    Names{OpKind::dense, "linear addmm"},
    Names{OpKind::matmul, "mm bmm matmul baddbmm"},
    Names{OpKind::quantized_matmul, "mixed_linear mixed_mm linear_8da4w"},
    Names{OpKind::attention, "scaled_dot_product_attention custom_sdpa sdpa_with_kv_cache"},
    Names{OpKind::batch_norm, "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training"},
    Names{OpKind::layer_norm, "native_layer_norm"},
    Names{OpKind::group_norm, "native_group_norm"},
    Names{OpKind::rms_norm, "rms_norm"},
    Names{OpKind::softmax, "_softmax softmax _safe_softmax"},
    Names{OpKind::log_softmax, "_log_softmax log_softmax"},
    Names{OpKind::relu, "relu threshold"},
    Names{OpKind::leaky_relu, "leaky_relu"},
    Names{OpKind::prelu, "prelu _prelu_kernel"},
    Names{OpKind::elu, "elu"},
    Names{OpKind::gelu, "gelu"},
    Names{OpKind::sigmoid, "sigmoid"},
    Names{OpKind::hard_sigmoid, "hardsigmoid"},
    Names{OpKind::hard_swish, "hardswish"},
    Names{OpKind::silu, "silu"},
    Names{OpKind::mish, "mish"},
    Names{OpKind::tanh, "tanh"},
    Names{OpKind::softplus, "softplus"},
    Names{OpKind::clip, "clamp hardtanh"},
    Names{OpKind::glu, "glu"},
    Names{OpKind::abs, "abs"},
    Names{OpKind::neg, "neg"},
    Names{OpKind::exp, "exp exp2 expm1"},
    Names{OpKind::log, "log log2 log10 log1p logit"},
    Names{OpKind::sqrt, "sqrt"},
    Names{OpKind::rsqrt, "rsqrt"},
    Names{OpKind::reciprocal, "reciprocal"},
    Names{OpKind::erf, "erf"},
    Names{OpKind::trigonometric, "sin cos tan asin acos atan atan2 sinh cosh asinh acosh atanh"},
    Names{OpKind::round, "round floor ceil trunc"},
    Names{OpKind::sign, "sign"},
    Names{OpKind::is_special, "isnan isinf"},
    Names{OpKind::add, "add"},
    Names{OpKind::sub, "sub rsub"},
    Names{OpKind::mul, "mul square"},
    Names{OpKind::div, "div floor_divide"},
    Names{OpKind::pow, "pow"},
    Names{OpKind::mod, "fmod remainder"},
    Names{OpKind::minimum, "minimum"},
    Names{OpKind::maximum, "maximum"},
    Names{OpKind::compare, "eq ne lt le gt ge"},
    Names{OpKind::logical, "logical_and logical_or logical_not logical_xor"},
    Names{OpKind::bitwise, "bitwise_and bitwise_or bitwise_not bitwise_xor"},
    Names{OpKind::where, "where masked_fill"},
    Names{OpKind::cast, "_to _to_dim_order"},
    Names{OpKind::reduce_sum, "sum"},
    Names{OpKind::reduce_mean, "mean"},
    Names{OpKind::reduce_max, "amax max"},
    Names{OpKind::reduce_min, "amin min"},
    Names{OpKind::reduce_prod, "prod"},
    Names{OpKind::reduce_norm, "linalg_vector_norm"},
    Names{OpKind::reduce_variance, "var"},
    Names{OpKind::reduce_any, "any all"},
    Names{OpKind::arg_reduce, "argmax argmin"},
    Names{OpKind::cumulative, "cumsum cumprod"},
    Names{OpKind::max_pool, "max_pool2d_with_indices max_pool2d"},
    Names{OpKind::avg_pool, "avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d"},
    Names{OpKind::reshape, "view squeeze unsqueeze reshape"},
    Names{OpKind::transpose, "permute transpose t"},
    Names{OpKind::concat, "cat stack"},
    Names{OpKind::split, "split split_with_sizes unbind"},
    Names{OpKind::slice, "slice select narrow as_strided diagonal"},
    Names{OpKind::pad, "constant_pad_nd reflection_pad1d reflection_pad2d replication_pad2d replication_pad3d"},
    Names{OpKind::tile, "repeat"},
    Names{OpKind::expand, "expand"},
    Names{OpKind::depth_to_space, "pixel_shuffle"},
    Names{OpKind::space_to_depth, "pixel_unshuffle"},
    Names{OpKind::fold, "col2im"},
    Names{OpKind::roll, "roll"},
    Names{OpKind::reverse, "flip"},
    Names{OpKind::copy, "clone copy _clone_dim_order alias lift_fresh"},
    Names{OpKind::triangular, "tril triu"},
    Names{OpKind::gather, "index index_select gather"},
    Names{OpKind::embedding, "embedding"},
    Names{OpKind::scatter, "scatter scatter_add index_put slice_scatter select_scatter update_cache"},
    Names{OpKind::resize, "upsample_nearest2d upsample_bilinear2d _upsample_bilinear2d_aa"},
    Names{OpKind::grid_sample, "grid_sampler_2d"},
    Names{OpKind::top_k, "topk"},
    Names{OpKind::sort, "sort"},
    Names{OpKind::non_zero, "nonzero"},
    Names{OpKind::quantize, "quantize_per_tensor quantize_per_channel quantize_per_token"},
    Names{OpKind::dequantize, "dequantize_per_tensor dequantize_per_channel dequantize_per_token"},
    Names{OpKind::dynamic_quantize, "choose_qparams choose_qparams_per_token_asymmetric"},
    Names{OpKind::constant, "empty scalar_tensor _empty_dim_order"},
    Names{OpKind::fill, "full full_like zeros ones zeros_like ones_like fill"},
    Names{OpKind::range, "arange"},
    Names{OpKind::random, "rand randn bernoulli native_dropout"},
    Names{OpKind::dft, "_fft_r2c _fft_c2r"},
    Names{OpKind::rotary_embedding, "apply_rotary_emb"},
};

const std::array<Operator, static_cast<std::size_t>(OpKind::count_)>& entries() {
  static const auto list = [] {
    std::array<Operator, static_cast<std::size_t>(OpKind::count_)> made{};
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = {op_name(static_cast<OpKind>(i)), onnx::Domain::other, static_cast<OpKind>(i), nullptr, lower};
    }
    return made;
  }();
  return list;
}

}  // namespace

const Operator& entry_of(OpKind kind) { return entries()[static_cast<std::size_t>(kind)]; }

const Operator& aten_operator(Text name) {
  static const auto index = [] {
    std::unordered_map<Text, OpKind> map;
    for (const auto& [kind, names] : kNames) {
      for (Text rest = names; !rest.empty();) {
        const Text word = rest.substr(0, rest.find(' '));
        map.emplace(word, kind);
        rest.remove_prefix(std::min(rest.size(), word.size() + 1));
      }
    }
    return map;
  }();
  auto found = index.find(name);
  if (found == index.end() && name.ends_with("_copy")) found = index.find(name.substr(0, name.size() - 5));
  if (found == index.end() && name.ends_with('_')) found = index.find(name.substr(0, name.size() - 1));
  return entry_of(found == index.end() ? OpKind::unknown : found->second);
}

void Nodes::add(const Operator* op, Text name, const std::vector<Text>& inputs, const std::vector<Text>& outputs,
                const Options& options) {
  onnx::Node& node = nodes.emplace_back();
  node.op_type = name;
  node.domain = kDomain;
  node.name = outputs.front();
  node.inputs = arena_copy(arena, std::span<const Text>(inputs));
  node.outputs = arena_copy(arena, std::span<const Text>(outputs));
  node.attributes = arena_copy(arena, options.list());
  node.entry = op;
}

void Nodes::declare(Text name, DType dtype, std::span<const std::int64_t> shape) {
  onnx::ValueInfo& info = infos.emplace_back();
  info.name = name;
  info.dtype = dtype;
  info.has_shape = true;
  info.shape = shape;
}

void Nodes::constant(Text name, DType dtype, std::span<const std::int64_t> shape, bool is_weight, bool is_literal) {
  checked_elements(shape);
  onnx::Constant& made = constants.emplace_back();
  made.name = name;
  made.dtype = dtype;
  made.shape = shape;
  made.is_weight = is_weight;
  made.is_literal = is_literal;
}

}  // namespace perfpass::executorch
