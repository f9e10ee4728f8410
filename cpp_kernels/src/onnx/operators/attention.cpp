// Attention of ai.onnx and com.microsoft. Layouts: docs of ONNX Attention-23 and onnxruntime/docs/ContribOperators.md.
#include <algorithm>

#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {
namespace {

std::int64_t query_heads(const InferContext& c) { return c.integer("num_heads", c.integer("q_num_heads", 0)); }
std::int64_t key_heads(const InferContext& c) {
  return c.integer("kv_num_heads", c.integer("num_kv_heads", query_heads(c)));
}

std::int64_t per_head(const InferContext& c, std::int64_t hidden, std::int64_t heads) {
  if (heads < 1 || hidden % heads != 0) {
    fail(c, "found a hidden size of " + std::to_string(hidden) + " and " + std::to_string(heads) +
                " heads, needs a number of heads that divides it");
  }
  return hidden / heads;
}

bool known(const InferContext& c, std::size_t i) noexcept {
  return input(c, i) != nullptr && input(c, i)->has_shape && !input(c, i)->shape.empty();
}

/// First integer of a small constant input, or the fallback.
std::int64_t first_integer(const InferContext& c, std::size_t i, std::int64_t fallback) noexcept {
  const Value* v = integers_of(c, i);
  return v != nullptr && !v->integers.empty() ? v->integers[0] : fallback;
}

/// Inputs that a flavour of attention keeps at different places; 0: it has none.
struct Places {
  std::size_t past, past_value, total_length;
};

Places places_of(const InferContext& c) {
  const Text name = c.node.op_type;
  if (name == "MultiHeadAttention") return {6, 7, 0};
  if (name == "DecoderMaskedMultiHeadAttention") return {5, 6, 0};
  if (name == "GroupQueryAttention") return {3, 4, 6};
  if (name == "SparseAttention") return {3, 4, 7};
  if (name == "DynamicSparseAttention") return {3, 4, 10};
  return {0, 0, 0};
}

}  // namespace

void lower_attention(InferContext& c, const Operator& op) {
  NodeAttributes& a = c.attributes;
  a.num_heads = clamped(query_heads(c));
  a.num_kv_heads = clamped(key_heads(c));
  const Text name = c.node.op_type;
  if (op.domain == Domain::standard && a.num_heads == 0) {  // heads stand in the shapes
    if (const Dims q = shape_of(c, 0); q.size() == 4) a.num_heads = clamped(q[1]);
    if (const Dims k = shape_of(c, 1); k.size() == 4) a.num_kv_heads = clamped(k[1]);
  }
  const bool always = name == "SparseAttention" || name == "PagedAttention" || name == "LinearAttention" ||
                      name == "DecoderMaskedMultiHeadAttention" || name == "DecoderMaskedSelfAttention";
  const std::int64_t grouped_default = name == "GroupQueryAttention" ? 1 : 0;
  a.causal = always || c.integer("is_causal", c.integer("unidirectional", c.integer("causal", grouped_default))) != 0;
}

bool infer_attention(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1, 2})) return false;
  const Dims q = shape_of(c, 0), k = shape_of(c, 1), v = shape_of(c, 2);
  if ((q.size() != 3 && q.size() != 4) || k.size() != q.size() || v.size() != q.size()) {
    fail(c, "found query, key and value of shape " + show(q) + ", " + show(k) + " and " + show(v) +
                ", needs [batch, length, hidden] or [batch, heads, length, size]");
  }
  const bool flat = q.size() == 3;
  const std::int64_t heads = flat ? query_heads(c) : q[1];
  const std::int64_t kv_heads = flat ? key_heads(c) : k[1];
  const std::int64_t length = q[flat ? 1 : 2], keys = k[flat ? 1 : 2];
  const std::int64_t k_size = flat ? per_head(c, k[2], kv_heads) : k[3];
  const std::int64_t v_size = flat ? per_head(c, v[2], kv_heads) : v[3];
  if ((flat ? per_head(c, q[2], heads) : q[3]) != k_size || kv_heads < 1 || heads % kv_heads != 0) {
    fail(c, "found a query of shape " + show(q) + " (" + std::to_string(heads) + " heads) and a key of shape " +
                show(k) + " (" + std::to_string(kv_heads) +
                " heads), needs equal sizes per head and a multiple of the key heads");
  }
  const std::int64_t total = keys + (known(c, 4) && shape_of(c, 4).size() == 4 ? shape_of(c, 4)[2] : 0);
  set(c, 0, dtype_of(c, 0), flat ? Shape{q[0], length, product(c, heads, v_size)} : Shape{q[0], heads, length, v_size});
  set(c, 1, dtype_of(c, 1), Shape{q[0], kv_heads, total, k_size});
  set(c, 2, dtype_of(c, 2), Shape{q[0], kv_heads, total, v_size});
  set(c, 3, dtype_of(c, 0), Shape{q[0], heads, length, total});
  return true;
}

bool infer_packed_projection(InferContext& c, const Operator& op) {
  // input, weight, bias, mask, past; QAttention: input, weight, bias, two scales, mask, two zero points, past
  const bool quantized = op.variant == Variant::quantized;
  const DType type = quantized ? dtype_of(c, 3) : dtype_of(c, 0);
  set_dtype(c, 0, type);
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0), weight = shape_of(c, 1);
  const bool rows = op.variant == Variant::packed;  // [tokens, hidden]
  if (x.size() != (rows ? 2 : 3) || weight.size() != 2 || x.back() != weight[0]) {
    fail(c, "found an input of shape " + show(x) + " and a weight of shape " + show(weight) +
                ", needs [batch, length, hidden] and [hidden, query + key + value]");
  }
  const Dims sizes = integers_attribute(c, "qkv_hidden_sizes");
  const std::int64_t v_hidden = sizes.size() == 3 ? sizes[2] : weight[1] / 3;
  const std::int64_t k_hidden = sizes.size() == 3 ? sizes[1] : weight[1] / 3;
  Shape out(x);
  out[out.size() - 1] = v_hidden;
  set(c, 0, type, out);
  if (c.outputs.size() < 2) return true;
  const std::int64_t heads = query_heads(c);
  std::int64_t total = x[1];
  if (const std::size_t past = quantized ? 8 : 4; known(c, past) && shape_of(c, past).size() == 5) {
    const bool shared = c.integer("past_present_share_buffer", 0) != 0;
    total = shape_of(c, past)[3] + (shared ? 0 : total);
  }
  set(c, 1, type, Shape{2, x[0], heads, total, per_head(c, k_hidden, heads)});
  return true;
}

bool infer_multi_head_attention(InferContext& c, const Operator& op) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims q = shape_of(c, 0), k = shape_of(c, 1), v = shape_of(c, 2);
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    if (input(c, i) != nullptr && !input(c, i)->has_shape) return false;
  }
  const std::int64_t heads = query_heads(c), kv_heads = key_heads(c);
  if (heads < 1 || kv_heads < 1) fail(c, "found no number of heads, needs the attribute num_heads");
  if (op.variant == Variant::packed) {  // [tokens, hidden] or [tokens, heads, 3, size]
    if (q.size() != 2 && q.size() != 4) fail(c, "found a query of shape " + show(q) + ", needs [tokens, hidden]");
    std::int64_t hidden = q.size() == 4 ? product(c, q[1], q[3]) : q[1];
    if (q.size() == 2 && k.empty() && c.node.op_type == "PagedAttention") {
      hidden = product(c, heads, per_head(c, q[1], heads + 2 * kv_heads));
    }
    if (!v.empty() && v.size() == 2 && kv_heads == heads) hidden = v[1];
    set(c, 0, dtype_of(c, 0), Shape{q[0], hidden});
    for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {  // paged caches are updated where they stand
      if (c.outputs.size() > i && known(c, i + 2)) set(c, i, dtype_of(c, i + 2), shape_of(c, i + 2));
    }
    return true;
  }
  const bool interleaved = q.size() == 5;  // [batch, length, heads, 3, size]
  if (q.size() != 3 && !interleaved) fail(c, "found a query of shape " + show(q) + ", needs [batch, length, hidden]");
  const bool packed = q.size() == 3 && k.empty();  // query, key and value along the hidden axis
  const std::int64_t size = interleaved ? q[4] : per_head(c, q[2], packed ? heads + 2 * kv_heads : heads);
  std::int64_t v_size = size, length = q[1];
  if (v.size() == 4) v_size = v[3];
  if (v.size() == 3) v_size = per_head(c, v[2], kv_heads);
  if (!k.empty()) length = k.size() == 4 ? k[2] : k.size() >= 2 ? k[1] : length;
  set(c, 0, dtype_of(c, 0), Shape{q[0], q[1], product(c, heads, v_size)});
  if (c.outputs.size() < 2) return true;
  const Places at = places_of(c);
  std::int64_t total = length;
  if (at.past != 0 && known(c, at.past) && shape_of(c, at.past).size() == 4) {
    const std::int64_t past = shape_of(c, at.past)[2];
    const std::int64_t wanted = at.total_length != 0 ? first_integer(c, at.total_length, -1) : -1;
    // A buffer that keys are appended to in place is as long as the present; else the present is one step longer.
    const bool shared = c.integer("past_present_share_buffer", 0) != 0 || op.name == "SparseAttention";
    const bool whole = k.size() == 4 && op.variant != Variant::grouped;  // a cross-attention's keys are all there
    total = shared || whole ? std::max(past, whole ? length : 0) : wanted >= 0 ? std::max(past, wanted) : past + length;
  }
  set(c, 1, dtype_of(c, 0), Shape{q[0], kv_heads, total, size});
  set(c, 2, dtype_of(c, 0), Shape{q[0], kv_heads, total, v_size});
  set(c, 3, dtype_of(c, 0), Shape{q[0], heads, q[1], total});
  return true;
}

bool infer_flex_attention(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1, 2})) return false;
  Shape out(shape_of(c, 0));
  if (out.size() != 4 || shape_of(c, 2).size() != 4) {
    fail(c, "found a query of shape " + show(out) + ", needs [batch, heads, length, size]");
  }
  out[3] = shape_of(c, 2)[3];
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_linear_attention(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1, 2})) return false;
  const Dims q = shape_of(c, 0), k = shape_of(c, 1), v = shape_of(c, 2);
  const std::int64_t heads = query_heads(c), kv_heads = key_heads(c);
  if (q.size() != 3 || k.size() != 3 || v.size() != 3) {
    fail(c, "found query, key and value of shape " + show(q) + ", " + show(k) + " and " + show(v) +
                ", needs [batch, length, heads x size]");
  }
  const std::int64_t v_size = per_head(c, v[2], kv_heads);
  set(c, 0, dtype_of(c, 0), Shape{q[0], q[1], product(c, heads, v_size)});
  set(c, 1, dtype_of(c, 0), Shape{q[0], kv_heads, per_head(c, k[2], kv_heads), v_size});
  return true;
}

bool infer_embed_layer_norm(InferContext& c, const Operator& op) {
  const DType type = op.variant == Variant::quantized ? DType::float32 : dtype_of(c, 2);
  set_dtype(c, 0, type);
  if (!ready(c, {0, 2})) return false;
  const Dims ids = shape_of(c, 0), words = shape_of(c, 2);
  if (ids.size() != 2 || words.size() != 2) {
    fail(c, "found ids of shape " + show(ids) + " and an embedding of shape " + show(words) +
                ", needs [batch, length] and [words, hidden]");
  }
  set(c, 0, type, Shape{ids[0], ids[1], words[1]});
  set(c, 1, DType::int32, Shape{ids[0]});
  set(c, 2, type, Shape{ids[0], ids[1], words[1]});
  return true;
}

bool infer_remove_padding(InferContext& c, const Operator&) {
  // The number of tokens that remain depends on the data; without padding it is batch x length.
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  if (x.size() != 3) fail(c, "found an input of shape " + show(x) + ", needs [batch, length, hidden]");
  set(c, 0, dtype_of(c, 0), Shape{product(c, x[0], x[1]), x[2]});
  set(c, 1, DType::int32, Shape{x[0], x[1]});
  set(c, 2, DType::int32, Shape{x[0] + 1});
  set(c, 3, DType::int32, Shape{1});
  return true;
}

bool infer_restore_padding(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0), offset = shape_of(c, 1);
  if (x.size() != 2 || offset.size() != 2) {
    fail(c,
         "found inputs of shape " + show(x) + " and " + show(offset) + ", needs [tokens, hidden] and [batch, length]");
  }
  set(c, 0, dtype_of(c, 0), Shape{offset[0], offset[1], x[1]});
  return true;
}

void lower_moe(InferContext& c, const Operator&) {
  c.attributes.contraction = clamped(c.integer("k", 1));
  if (c.node.op_type != "QMoE") return;
  c.attributes.weight_bits = clamped(c.integer("expert_weight_bits", 4));
  c.attributes.block_size = clamped(c.integer("block_size", 0));
}

void lower_rotary(InferContext& c, const Operator&) { c.attributes.num_heads = clamped(query_heads(c)); }

bool infer_gemma_rotary(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 1));
  set_dtype(c, 1, dtype_of(c, 3));
  if (!ready(c, {1, 3})) return false;
  set(c, 0, dtype_of(c, 1), shape_of(c, 1));
  set(c, 1, dtype_of(c, 3), shape_of(c, 3));
  return true;
}

}  // namespace perfpass::onnx
