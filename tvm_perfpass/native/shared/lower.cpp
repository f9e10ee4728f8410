#include <algorithm>
#include <cctype>
#include <map>

#include "perfpass/error.hpp"
#include "values.hpp"

namespace perfpass::ir {
namespace {

using Shape = std::vector<std::int64_t>;

std::int32_t* columns(NodeAttributes& a) { return reinterpret_cast<std::int32_t*>(&a); }

std::int32_t narrow(std::int64_t value, const std::string& source, const std::string& attribute) {
  if (value < -2147483647 || value > 2147483647) {
    throw Error(ErrorCode::limit,
                source + ": attribute " + attribute + " is " + std::to_string(value) + "; it must fit in 32 bits");
  }
  return static_cast<std::int32_t>(value);
}

void apply(const Read& read, const Shape& values, const std::string& source, NodeAttributes& out) {
  std::int32_t* const at = columns(out) + read.column;
  const auto put = [&](std::int32_t* to, std::int64_t value) { *to = narrow(value, source, read.attribute); };
  const std::size_t n = values.size();
  switch (read.how) {
    case How::integer:
      if (n == 1) put(at, values[0]);
      return;
    case How::axis:
      if (n == 1) put(at, values[0]);
      return;
    case How::equation:
      return;
    case How::ints:
      for (std::size_t i = 0; i < std::min<std::size_t>(n, 3); ++i) put(at + i, values[i]);
      return;
    case How::pads: {
      // One entry is meant for every side; r entries for both sides of r axes; 2r entries begin with the r begins.
      const std::size_t rank = n == 1 ? 0 : n;
      const auto axes = static_cast<std::size_t>(out.spatial_rank > 0 ? out.spatial_rank : 2);
      for (std::size_t i = 0; i < std::min<std::size_t>(axes, 3); ++i) {
        if (n == 1) {
          put(out.pad_begin + i, values[0]);
          put(out.pad_end + i, values[0]);
        } else if (rank >= 2 * axes) {
          put(out.pad_begin + i, values[i]);
          put(out.pad_end + i, values[axes + i]);
        } else if (rank == axes) {
          put(out.pad_begin + i, values[i]);
          put(out.pad_end + i, values[i]);
        }
      }
      return;
    }
  }
}

/// A layout such as NCHW or OIHW8i8o: one entry per dimension, its letter, and whether it is a block of that letter.
struct Layout {
  std::string axes;       // the letters of the dimensions, upper case
  std::string primaries;  // the letters of the unblocked layout, in order
  bool blocked = false;
};

Layout parse_layout(const std::string& text) {
  Layout out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isupper(u) != 0) {
      out.axes.push_back(c);
      out.primaries.push_back(c);
    } else if (std::islower(u) != 0) {
      out.axes.push_back(static_cast<char>(std::toupper(u)));
      out.blocked = true;
    }
  }
  return out;
}

/// The shape by primary letters; empty if the layout does not fit the rank.
Shape logical_shape(const Layout& layout, std::span<const std::int64_t> shape) {
  if (layout.axes.size() != shape.size()) return {};
  Shape out(layout.primaries.size(), 1);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const auto at = layout.primaries.find(layout.axes[i]);
    if (at == std::string::npos) return {};
    out[at] *= shape[i];
  }
  return out;
}

/// Shows a blocked activation by its logical shape and returns its layout's primary letters.
std::string unblock(Records& records, TensorId tensor, const std::string& text) {
  const Layout layout = parse_layout(text);
  if (layout.blocked) {
    const Shape shape = logical_shape(layout, records.shape(tensor));
    if (!shape.empty()) records.reshape(tensor, shape);
  }
  return layout.primaries;
}

void set_layout(const std::string& primaries, std::size_t rank, NodeAttributes& out) {
  out.channels_last = rank > 2 && !primaries.empty() && primaries.back() == 'C' ? 1 : 0;
  out.spatial_rank = static_cast<std::int32_t>(rank > 2 ? std::min<std::size_t>(rank - 2, 3) : 0);
}

std::int64_t product(std::span<const std::int64_t> shape) {
  std::int64_t out = 1;
  for (const std::int64_t d : shape) out *= d;
  return out;
}

void lower_conv_weight(bool transposed, const std::string& text, TensorId weight, std::int64_t channels,
                       Records& records, NodeAttributes& out) {
  const Layout layout = parse_layout(text);
  const Shape logical = logical_shape(layout, records.shape(weight));
  if (logical.empty()) return;
  const std::string& letters = layout.primaries;
  Shape spatial;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (letters[i] != 'O' && letters[i] != 'I') spatial.push_back(logical[i]);
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(spatial.size(), 3); ++i) {
    if (out.kernel[i] == 0) out.kernel[i] = static_cast<std::int32_t>(spatial[i]);
  }
  const std::string head = letters.substr(0, 2);
  const std::string tail = letters.size() > 2 ? letters.substr(letters.size() - 2) : std::string();
  if (!layout.blocked && !transposed && head == "OI") return;
  if (!layout.blocked && !transposed && tail == "IO") {
    out.weight_layout = 1;
    return;
  }
  out.weight_layout = transposed ? 2 : 0;
  if (!layout.blocked && transposed && head == "IO") return;
  // Any other order is shown as O I spatial (or I O spatial when transposed): the leading size is the number of output
  // (input) channels, the second what is left, which also holds for depthwise kernels with a channel multiplier.
  Shape shape = {channels, 0};
  const std::int64_t known = channels * product(spatial);
  shape[1] = known > 0 ? product(logical) / known : 0;
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  if (product(shape) == product(logical)) records.reshape(weight, shape);
}

std::int64_t channel_count(const Records& records, TensorId tensor, const std::string& primaries) {
  const auto shape = records.shape(tensor);
  const auto at = primaries.find('C');
  return at < shape.size() ? shape[at] : 0;
}

void lower_conv(AttributeSource& from, bool transposed, Handle attrs, std::span<const TensorId> inputs,
                std::span<const TensorId> outputs, Records& records, NodeAttributes& out) {
  const std::string data_layout = from.text(attrs, "data_layout");
  std::string out_layout = from.text(attrs, "out_layout");
  if (out_layout.empty()) out_layout = data_layout;
  const std::string letters = unblock(records, inputs[0], data_layout);
  const std::string out_letters = unblock(records, outputs[0], out_layout);
  set_layout(letters, records.shape(inputs[0]).size(), out);
  if (inputs.size() < 2) return;
  const std::int64_t channels =
      transposed ? channel_count(records, inputs[0], letters) : channel_count(records, outputs[0], out_letters);
  lower_conv_weight(transposed, from.text(attrs, "kernel_layout"), inputs[1], channels, records, out);
}

void lower_pool(AttributeSource& from, Form form, Handle attrs, TensorId input, TensorId output, Records& records,
                OpKind& op, NodeAttributes& out) {
  const std::string text = from.text(attrs, "layout");
  const std::string letters = unblock(records, input, text);
  unblock(records, output, text);
  const auto in = records.shape(input);
  const auto to = records.shape(output);
  set_layout(letters, in.size(), out);
  if (form != Form::adaptive_pool || in.size() != to.size()) return;
  const std::size_t first = out.channels_last != 0 ? 1 : 2;
  bool global = true;
  for (std::int32_t i = 0; i < out.spatial_rank; ++i) global = global && to[first + i] == 1;
  if (global) {
    op = op == OpKind::max_pool ? OpKind::global_max_pool : OpKind::global_avg_pool;
    return;
  }
  for (std::int32_t i = 0; i < out.spatial_rank; ++i) {
    const std::int64_t a = in[first + i], b = std::max<std::int64_t>(to[first + i], 1);
    out.kernel[i] = static_cast<std::int32_t>((a + b - 1) / b);
    out.stride[i] = static_cast<std::int32_t>(std::max<std::int64_t>(a / b, 1));
  }
}

/// Product of the sizes of the labels that the result does not have. An ellipsis stands for labels that it keeps.
std::int64_t einsum_contraction(const std::string& equation, std::span<const TensorId> inputs, const Records& records) {
  const auto arrow = equation.find("->");
  const std::string left = equation.substr(0, arrow);
  std::string kept = arrow == std::string::npos ? std::string() : equation.substr(arrow + 2);
  if (arrow == std::string::npos) {  // implicit form: labels that occur once are kept
    for (const char c : left) {
      if (std::isalpha(static_cast<unsigned char>(c)) != 0 && std::count(left.begin(), left.end(), c) == 1) kept += c;
    }
  }
  std::map<char, std::int64_t> summed;
  std::size_t at = 0;
  for (const TensorId input : inputs) {
    const auto end = std::min(left.find(',', at), left.size());
    std::string term = left.substr(at, end - at);
    at = std::min(end + 1, left.size());
    std::erase(term, ' ');
    const auto shape = records.shape(input);
    const auto dots = term.find("...");
    const std::size_t before = dots == std::string::npos ? term.size() : dots;
    const std::size_t after = dots == std::string::npos ? 0 : term.size() - dots - 3;
    if (before + after > shape.size()) continue;
    for (std::size_t i = 0; i < before; ++i) {
      if (kept.find(term[i]) == std::string::npos) summed[term[i]] = shape[i];
    }
    for (std::size_t i = 0; i < after; ++i) {
      const char c = term[dots + 3 + i];
      if (kept.find(c) == std::string::npos) summed[c] = shape[shape.size() - after + i];
    }
  }
  std::int64_t out = 1;
  for (const auto& [label, size] : summed) out *= size;
  return out;
}

void lower_dense_pack(TensorId weight, Records& records) {
  const auto shape = records.shape(weight);
  if (shape.size() == 3) records.reshape(weight, Shape{shape[0] * shape[2], shape[1]});
}

/// Query, key and value are [batch, length, heads, dim].
void lower_attention(AttributeSource& from, Handle attrs, std::span<const TensorId> inputs, const Records& records,
                     NodeAttributes& out) {
  const auto heads = [&](TensorId t) {
    const auto shape = records.shape(t);
    return shape.size() == 4 ? static_cast<std::int32_t>(std::min<std::int64_t>(shape[2], 1 << 20)) : 0;
  };
  out.num_heads = heads(inputs[0]);
  out.num_kv_heads = heads(inputs[1]);
  out.causal = from.text(attrs, "causal_mask").empty() ? 0 : 1;
}

}  // namespace

NodeAttributes lower(AttributeSource& from, const Rule& rule, const std::string& source, Handle attrs,
                     std::span<const TensorId> inputs, std::span<const TensorId> outputs, Records& records,
                     OpKind& op) {
  NodeAttributes out;
  for (const auto& [column, value] : rule.fixed) columns(out)[column] = value;
  if (attrs == nullptr) return out;
  const bool has_data = !inputs.empty() && !outputs.empty();
  // Layouts come first, since padding is read by the number of spatial axes. A kernel size that the attributes name
  // wins over the weight's: Winograd weights are larger than the window they stand for.
  for (const Read& read : rule.reads) {
    if (read.how == How::equation) {
      columns(out)[read.column] =
          narrow(einsum_contraction(from.text(attrs, read.attribute), inputs, records), source, read.attribute);
    } else if (read.how != How::pads) {
      apply(read, from.integers(attrs, read.attribute), source, out);
    }
  }
  switch (rule.form) {
    case Form::conv:
    case Form::conv_transpose:
      if (has_data) lower_conv(from, rule.form == Form::conv_transpose, attrs, inputs, outputs, records, out);
      break;
    case Form::pool:
    case Form::global_pool:
    case Form::adaptive_pool:
      if (has_data) lower_pool(from, rule.form, attrs, inputs[0], outputs[0], records, op, out);
      break;
    case Form::dense_pack:
      if (inputs.size() > 1) lower_dense_pack(inputs[1], records);
      break;
    case Form::attention:
      if (inputs.size() > 1) lower_attention(from, attrs, inputs, records, out);
      break;
    case Form::plain:
    case Form::first_output:
    case Form::no_node:
    case Form::call_tir:
    case Form::packed:
    case Form::unsupported:
      break;
  }
  for (const Read& read : rule.reads) {
    if (read.how == How::pads) apply(read, from.integers(attrs, read.attribute), source, out);
  }
  return out;
}

}  // namespace perfpass::ir
