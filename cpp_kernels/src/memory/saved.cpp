// What a training step keeps between its passes.
#include "memory/saved.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "memory/requests.hpp"
#include "perfpass/error.hpp"

namespace perfpass::detail {
namespace {

using enum OpKind;

// What the backward pass of an operator reads again: its inputs, its output, both, or nothing of the forward pass.
const OperatorSet kSavesOutput{relu,         sigmoid, tanh,       softmax, log_softmax, exp,
                               OpKind::sqrt, rsqrt,   reciprocal, elu,     selu,        celu};
const OperatorSet kSavesBoth{attention, lstm, gru, rnn, l2_norm, reduce_norm, cumulative, reduce_prod};
const OperatorSet kSavesNothing{
    unknown,        add,       sub,     neg,     cast,       reduce_sum, reduce_mean, avg_pool,   global_avg_pool,
    reshape,        transpose, concat,  split,   slice,      pad,        tile,        expand,     depth_to_space,
    space_to_depth, unfold,    fold,    roll,    reverse,    copy,       identity,    triangular, resize,
    OpKind::round,  sign,      compare, logical, bitwise,    is_special, constant,    fill,       range,
    OpKind::random, shape_of,  eye,     window,  arg_reduce, reduce_any, top_k,       sort,       gather,
    embedding,      scatter,   one_hot, loss};
// A product with a constant has a gradient that reads the constant alone.
const OperatorSet kScales{mul, OpKind::div};
constexpr std::int64_t kIndexBytes = 8;  // where each maximum of a window lay

// CUDA's autocast (aten/src/ATen/options_.autocastmode.h): these run at 16 bits, those in fp32, a normalization by
// batches as its input is, and all others at the widest of what they read.
const OperatorSet kHalf{conv,           conv_transpose,   deform_conv, dense,       matmul, einsum,
                        bilinear,       attention,        lstm,        gru,         rnn,    prelu,
                        quantized_conv, quantized_matmul, moe,         matmul_nbits};
const OperatorSet kWide{
    softmax,  log_softmax, layer_norm,  group_norm,  rms_norm,           l2_norm,    exp, log, pow, rsqrt, reciprocal,
    softplus, reduce_sum,  reduce_norm, reduce_prod, reduce_log_sum_exp, cumulative, loss};
const OperatorSet kAsInput{batch_norm, instance_norm, lrn};
// They read 16 bits and write 32 in one kernel.
const OperatorSet kWidens{softmax, log_softmax};

}  // namespace

Saving::Saving(const OpGraph& graph, const MemoryOptions& options)
    : g_(graph),
      options_(options),
      owner_(graph.tensor_count()),
      saver_(graph.tensor_count(), kNone),
      copied_(graph.node_count(), 0),
      shares_(graph.node_count(), 0),
      wide_(graph.tensor_count(), 0) {
  std::iota(owner_.begin(), owner_.end(), 0);
  for (TensorId t = 0; t < static_cast<TensorId>(g_.tensor_count()); ++t) {
    wide_[t] = g_.tensor_role[t] != TensorRole::activation;
  }
  for (NodeId n = 0; n < static_cast<NodeId>(g_.node_count()); ++n) visit(n);
}

bool Saving::is_cast(TensorId t) const noexcept {
  return is_floating(g_.tensor_dtype[t]) && bits_of(g_.tensor_dtype[t]) >= 16;
}

bool Saving::runs_at_half(NodeId n) const noexcept { return options_.autocast && kHalf(g_.op[n]); }

std::int64_t Saving::bytes(TensorId t, bool wide) const {
  if (!options_.autocast || !wide || !is_cast(t)) return buffer_bytes(g_, t, options_);
  return buffer_bytes(g_, t, {DType::float32, options_.alignment_bytes});
}

std::int64_t Saving::bytes_of_loss(TensorId t) const {
  return std::max(bytes(t), buffer_bytes(g_, t, {DType::float32, options_.alignment_bytes}));
}

void Saving::visit(NodeId n) {
  const OpKind op = g_.op[n];
  const NodeAttributes& a = g_.attributes[n];
  const auto inputs = g_.node_inputs(n);
  const auto outputs = g_.node_outputs(n);
  const bool saves_inputs = !kSavesOutput(op) && !kSavesNothing(op);
  const TensorId source = inputs.empty() ? kNone : inputs[0];
  // A result written in place of an input that backward reads again is written beside it: autograd copies.
  shares_[n] = source != kNone && (a.view != 0 || (a.in_place != 0 && !saves_inputs));
  if (shares_[n]) {
    for (std::size_t i = 0; i < outputs.size() && (a.view != 0 || i == 0); ++i) {
      if (outputs[i] != kNone) owner_[outputs[i]] = owner_[source];
    }
  }
  const auto variable = [&](TensorId t) { return t != kNone && g_.tensor_role[t] != TensorRole::literal; };
  const bool as_input = (a.view != 0 || kAsInput(op)) && source != kNone;
  const bool wide = as_input ? wide_[source] != 0
                             : !kHalf(op) && (kWide(op) || std::any_of(inputs.begin(), inputs.end(), [&](TensorId t) {
                                                return variable(t) && wide_[t] && is_cast(t);
                                              }));
  for (const TensorId t : outputs) {
    if (t != kNone) wide_[t] = wide;
  }
  if (a.view != 0) return;
  if (saves_inputs && !(kScales(op) && std::count_if(inputs.begin(), inputs.end(), variable) == 1)) {
    const bool casts = options_.autocast && (kHalf(op) || (kWide(op) && !kWidens(op)));
    for (const TensorId t : inputs) {
      if (!variable(t)) continue;
      if (casts && is_cast(t) && (wide_[t] != 0) != kWide(op) && !g_.is_constant(owner_[t])) {
        copied_[n] += bytes(t, kWide(op));
      } else {
        save(t, n);
      }
    }
  }
  if (op == max_pool && !outputs.empty() && outputs[0] != kNone) {
    copied_[n] += rounded_bytes(kIndexBytes * g_.elements(outputs[0]), options_.alignment_bytes);
  }
  if (kSavesOutput(op) || kSavesBoth(op)) {
    for (const TensorId t : outputs) {
      if (t != kNone) save(t, n);
    }
  }
}

void Saving::save(TensorId t, NodeId n) {
  if (saver_[owner_[t]] == kNone) saver_[owner_[t]] = n;
}

}  // namespace perfpass::detail
