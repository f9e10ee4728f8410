// Reductions, gathers, and calls of what a library brings.
#include "stablehlo/lowerer.hpp"
#include "support/text.hpp"

namespace perfpass::stablehlo {

void Lowerer::emit_reduction(const FlatOp& op) {
  NodeAttributes a;
  const Integers axes = integers(*op.at, "dimensions");
  if (!axes.empty()) a.axis = small(axes.back());
  OpKind kind = OpKind::unknown;
  if (op.out_count == 2) {
    kind = OpKind::arg_reduce;
  } else {
    switch (joins(g_.module, *op.at)) {
      case Code::add:
        kind = OpKind::reduce_sum;
        break;
      case Code::maximum:
        kind = OpKind::reduce_max;
        break;
      case Code::minimum:
        kind = OpKind::reduce_min;
        break;
      case Code::multiply:
        kind = OpKind::reduce_prod;
        break;
      case Code::and_:
      case Code::or_:
      case Code::xor_:
        kind = OpKind::reduce_any;
        break;
      default:
        break;
    }
  }
  node(op, kind, a, reads(op), results(op));
}

void Lowerer::emit_mean(const FlatOp& op) {
  const Value x = plain(g_.in(op)[0]);
  const Dims& dims = g_.type(x).dims;
  Integers axes = integers(*op.at, "dimensions");
  std::sort(axes.begin(), axes.end());
  NodeAttributes a;
  const std::size_t rank = dims.size();
  const bool whole = rank >= 4 && rank <= 5 && axes.size() == rank - 2 && (axes[0] == 1 || axes[0] == 2) &&
                     axes.back() - axes[0] == static_cast<std::int64_t>(rank) - 3 &&
                     axes.back() < static_cast<std::int64_t>(rank);
  if (!whole) {
    if (!axes.empty()) a.axis = small(axes.back());
    node(op, OpKind::reduce_mean, a, std::array{tensor_of(x)}, results(op), "mean");
    return;
  }
  a.spatial_rank = static_cast<std::int32_t>(rank) - 2;
  a.channels_last = axes[0] == 1;
  for (std::size_t i = 0; i < axes.size(); ++i) a.kernel[i] = small(dims[static_cast<std::size_t>(axes[i])]);
  node(op, OpKind::global_avg_pool, a, std::array{tensor_of(x)}, results(op), "mean");
}

void Lowerer::emit_gather(const FlatOp& op) {
  const Value table = plain(g_.in(op)[0]);
  const Dims &dims = g_.type(table).dims, &out = g_.type(op.out_begin).dims;
  const Integers collapsed = integers(*op.at, "collapsed_slice_dims"), offset = integers(*op.at, "offset_dims");
  const bool rows = is_weight(table) && dims.size() == 2 && collapsed == Integers{0} &&
                    offset == Integers{static_cast<std::int64_t>(out.size()) - 1};
  NodeAttributes a;
  if (const Integers axes = integers(*op.at, "start_index_map"); axes.size() == 1) a.axis = small(axes[0]);
  const Value indices = before_broadcast(g_.in(op)[1]);
  const bool same = elements_of(g_.type(indices)) == elements_of(g_.type(g_.in(op)[1])) && available(indices);
  const TensorId index = tensor_of(same ? indices : g_.in(op)[1]);
  node(op, rows ? OpKind::embedding : OpKind::gather, a, std::array{tensor_of(table), index}, results(op));
}

void Lowerer::emit_custom_call(const FlatOp& op) {
  const std::string_view target = op.at->symbol.empty() ? text(*op.at, "call_target_name") : op.at->symbol;
  const auto has = [&](std::string_view part) { return target.find(part) != std::string_view::npos; };
  OpKind kind = OpKind::unknown;
  NodeAttributes a;
  std::vector<TensorId> in = reads(op);
  if (has("fmha") && in.size() >= 3 && op.out_count > 0) return emit_attention(op, target);
  if (has("topk") || has("TopK") || has("top_k")) {
    kind = OpKind::top_k;
    a.axis = op.in_count > 0 ? static_cast<std::int32_t>(g_.type(g_.in(op)[0]).dims.size()) - 1 : kNoAxis;
  } else if (has("threefry") || has("philox")) {
    kind = OpKind::random;
  } else if (has("mhlo.erf")) {
    kind = OpKind::erf;
  }
  node(op, kind, a, in, results(op), escaped(target));
}

void Lowerer::emit_attention(const FlatOp& op, std::string_view target) {
  std::vector<TensorId> in;
  NodeAttributes a;
  const Dims& out = g_.type(op.out_begin).dims;
  for (std::size_t i = 0; i < op.in_count; ++i) {
    const Value v = plain(g_.in(op)[i]);
    const Dims& dims = g_.type(v).dims;
    const bool length_first = i < 3 && dims.size() == 4 && out.size() == 4 && dims[2] == out[1];
    in.push_back(ordered(op, tensor_of(v), dims, length_first ? Integers{0, 2, 1, 3} : Integers{}, g_.type(v).dtype));
  }
  if (out.size() == 4) a.num_heads = a.num_kv_heads = small(out[1]);
  a.causal = op.at->attributes.find("CAUSAL") != std::string_view::npos &&
             op.at->attributes.find("NO_MASK") == std::string_view::npos;
  node(op, OpKind::attention, a, in, results(op), escaped(target));
}

}  // namespace perfpass::stablehlo
