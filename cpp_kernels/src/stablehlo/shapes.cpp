// Sizes that the text leaves open, from those of the operands, and small integers that decide them.
// Shape rules: the StableHLO specification, operator by operator.
#include <algorithm>

#include "perfpass/error.hpp"
#include "stablehlo/flat.hpp"

namespace perfpass::stablehlo {
namespace {

using Dims = std::vector<std::int64_t>;

constexpr std::int64_t kMostSize = std::int64_t{1} << 30;

void fill(Type& result, const Dims& dims) {
  if (dims.size() != result.dims.size()) return;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (result.dims[i] == kOpen) result.dims[i] = dims[i];
  }
}

/// Sizes from an operand whose values are known.
void fill_known(const FlatGraph& g, Type& result, Value shape) {
  if (const Integers* sizes = g.known_of(shape)) fill(result, *sizes);
}

/// One axis under a window: the positions of a kernel, both dilated.
std::int64_t window_positions(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t low,
                              std::int64_t high, std::int64_t base, std::int64_t dilation) {
  for (const std::int64_t n : {size, kernel, stride, low, high, base, dilation}) {
    if (n > kMostSize || n < -kMostSize) return kOpen;  // products below would pass 64 bits
  }
  if (size == kOpen || kernel == kOpen) return kOpen;
  const std::int64_t whole = (size == 0 ? 0 : (size - 1) * base + 1) + low + high;
  const std::int64_t reach = kernel == 0 ? 0 : (kernel - 1) * dilation + 1;
  return whole < reach || stride < 1 ? 0 : (whole - reach) / stride + 1;
}

void infer_dot(const FlatGraph& g, const Operation& at_, std::span<const Value> in, Type& result) {
  const Dims &left = g.type(in[0]).dims, &right = g.type(in[1]).dims;
  const DotSides sides = dot_sides(g, at_, in);
  Dims dims;
  for (const std::int64_t d : sides.batch[0]) dims.push_back(left[d]);
  for (const std::int64_t d : sides.free[0]) dims.push_back(left[d]);
  for (const std::int64_t d : sides.free[1]) dims.push_back(right[d]);
  fill(result, dims);
}

void infer_convolution(const FlatGraph& g, const Operation& op, std::span<const Value> in, Type& result) {
  const DimensionNumbers numbers = dimension_numbers(op);
  const auto input = letters(numbers.input), kernel = letters(numbers.kernel), output = letters(numbers.output);
  const Dims &x = g.type(in[0]).dims, &w = g.type(in[1]).dims;
  if (input.size() != x.size() || kernel.size() != w.size() || output.size() != result.dims.size()) return;
  const std::size_t rank = x.size() - 2;
  const Integers stride = integers(op, "stride", "window_strides", rank),
                 pad = integers(op, "pad", "padding", 2 * rank),
                 base = integers(op, "lhs_dilate", "lhs_dilation", rank),
                 dilation = integers(op, "rhs_dilate", "rhs_dilation", rank);
  const auto size_of = [](const std::vector<char>& names, const Dims& dims, char name) {
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? kOpen : dims[static_cast<std::size_t>(found - names.begin())];
  };
  Dims dims;
  for (const char name : output) {
    if (name == 'b') {
      const std::int64_t batch = size_of(input, x, 'b');
      dims.push_back(batch == kOpen ? kOpen
                                    : batch / std::max<std::int64_t>(1, integer(op, "batch_group_count").value_or(1)));
    } else if (name == 'f') {
      dims.push_back(size_of(kernel, w, 'o'));
    } else {
      const auto i = static_cast<std::size_t>(name - '0');
      dims.push_back(window_positions(size_of(input, x, name), size_of(kernel, w, name), at(stride, i, 1),
                                      at(pad, 2 * i, 0), at(pad, 2 * i + 1, 0), at(base, i, 1), at(dilation, i, 1)));
    }
  }
  fill(result, dims);
}

void infer_gather(const FlatGraph& g, Code code, const Operation& op, std::span<const Value> in, Type& result) {
  Integers sizes = integers(op, "slice_sizes", g.type(in[0]).dims.size());
  if (code == Code::dynamic_gather && in.size() > 2 && g.known_of(in[2]) != nullptr) sizes = *g.known_of(in[2]);
  const Integers offset = integers(op, "offset_dims"), collapsed = integers(op, "collapsed_slice_dims"),
                 batching = integers(op, "operand_batching_dims");
  const Dims& indices = g.type(in[1]).dims;
  const std::int64_t vector = integer(op, "index_vector_dim").value_or(0);
  Dims rows, windows;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (static_cast<std::int64_t>(i) != vector) rows.push_back(indices[i]);
  }
  const auto in_list = [](const Integers& list, std::size_t i) {
    return std::find(list.begin(), list.end(), static_cast<std::int64_t>(i)) != list.end();
  };
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!in_list(collapsed, i) && !in_list(batching, i)) windows.push_back(sizes[i]);
  }
  Dims dims;
  std::size_t row = 0, window = 0;
  for (std::size_t i = 0; i < result.dims.size(); ++i) {
    const bool offsets = in_list(offset, i);
    Dims& from = offsets ? windows : rows;
    std::size_t& next = offsets ? window : row;
    if (next >= from.size()) return;
    dims.push_back(from[next++]);
  }
  fill(result, dims);
}

void infer_reshape(const FlatGraph& g, std::span<const Value> in, Type& result) {
  std::int64_t known = 1, open = 0, elements = 1;
  for (const std::int64_t d : g.type(in[0]).dims) {
    if (d == kOpen || __builtin_mul_overflow(elements, d, &elements)) return;
  }
  for (const std::int64_t d : result.dims) {
    if (d == kOpen) {
      ++open;
    } else if (__builtin_mul_overflow(known, d, &known)) {
      return;
    }
  }
  if (open != 1 || known == 0) return;
  for (std::int64_t& d : result.dims) {
    if (d == kOpen) d = elements / known;
  }
}

}  // namespace

DotSides dot_sides(const FlatGraph& g, const Operation& op, std::span<const Value> in) {
  DotSides sides;
  const std::int64_t ranks[2] = {static_cast<std::int64_t>(g.type(in[0]).dims.size()),
                                 static_cast<std::int64_t>(g.type(in[1]).dims.size())};
  if (op.code == Code::dot) {
    sides.contracted[0] = {ranks[0] - 1};
    sides.contracted[1] = {0};
  } else {
    const char* const names[2][2] = {{"lhs_batching_dimensions", "lhs_contracting_dimensions"},
                                     {"rhs_batching_dimensions", "rhs_contracting_dimensions"}};
    for (int side = 0; side < 2; ++side) {
      sides.batch[side] = integers(op, names[side][0]);
      sides.contracted[side] = integers(op, names[side][1]);
    }
    const auto pair = [&](std::string_view key, Integers(&into)[2]) {  // contracting_dims = [1] x [0]
      const std::string_view value = attribute(op, key);
      const std::size_t close = value.find(']');
      if (!value.starts_with('[') || close == std::string_view::npos) return;
      const std::size_t open = value.find('[', close);
      if (open == std::string_view::npos) return;
      into[0] = integers_in(value);
      into[1] = integers_in(value.substr(open));
    };
    pair("batching_dims", sides.batch);
    pair("contracting_dims", sides.contracted);
  }
  for (int side = 0; side < 2; ++side) {
    std::vector<bool> used(static_cast<std::size_t>(ranks[side]), false);
    for (const Integers* list : {&sides.batch[side], &sides.contracted[side]}) {
      for (const std::int64_t d : *list) {
        if (d < 0 || d >= ranks[side] || used[static_cast<std::size_t>(d)]) {
          throw Error(ErrorCode::format, std::string(op.name) + " names dimension " + std::to_string(d) +
                                             " of an operand of rank " + std::to_string(ranks[side]) +
                                             (d >= 0 && d < ranks[side] ? " twice" : ""));
        }
        used[static_cast<std::size_t>(d)] = true;
      }
    }
    for (std::int64_t d = 0; d < ranks[side]; ++d) {
      if (!used[static_cast<std::size_t>(d)]) sides.free[side].push_back(d);
    }
  }
  if (sides.batch[0].size() != sides.batch[1].size() || sides.contracted[0].size() != sides.contracted[1].size()) {
    throw Error(ErrorCode::format, std::string(op.name) + " pairs dimensions that its operands do not both name");
  }
  return sides;
}

void infer(const FlatGraph& g, Code code, const Operation& op, std::span<const Value> in, std::span<Type> results) {
  if (results.empty() || in.empty()) return;
  Type& result = results[0];
  const Dims& first = g.type(in[0]).dims;
  switch (code) {
    case Code::dynamic_broadcast_in_dim:
    case Code::dynamic_reshape:
      if (in.size() > 1) fill_known(g, result, in[1]);
      return;
    case Code::dynamic_iota:
      fill_known(g, result, in[0]);
      return;
    case Code::reshape:
      infer_reshape(g, in, result);
      return;
    case Code::transpose: {
      Dims dims;
      for (const std::int64_t d : integers(op, "dims", "permutation")) {
        if (d < 0 || d >= static_cast<std::int64_t>(first.size())) return;
        dims.push_back(first[static_cast<std::size_t>(d)]);
      }
      fill(result, dims);
      return;
    }
    case Code::broadcast_in_dim:
      return;
    case Code::concatenate: {
      const std::int64_t axis = integer(op, "dim", "dimension").value_or(0);
      Dims dims = first;
      if (axis < 0 || axis >= static_cast<std::int64_t>(dims.size())) return;
      for (std::size_t i = 1; i < in.size(); ++i) {
        const Dims& other = g.type(in[i]).dims;
        if (other.size() != dims.size()) return;
        for (std::size_t d = 0; d < dims.size(); ++d) {
          if (static_cast<std::int64_t>(d) != axis) {
            if (dims[d] == kOpen) dims[d] = other[d];
          } else if (dims[d] != kOpen) {
            if (other[d] == kOpen || __builtin_add_overflow(dims[d], other[d], &dims[d])) dims[d] = kOpen;
          }
        }
      }
      fill(result, dims);
      return;
    }
    case Code::real_dynamic_slice:
      if (in.size() > 3) {
        const Integers *begin = g.known_of(in[1]), *end = g.known_of(in[2]), *step = g.known_of(in[3]);
        if (begin == nullptr || end == nullptr || step == nullptr) return;
        Dims dims;
        for (std::size_t i = 0; i < std::min({begin->size(), end->size(), step->size()}); ++i) {
          const std::int64_t by = (*step)[i];
          dims.push_back(window_positions((*end)[i], 1, std::max<std::int64_t>(1, by), -(*begin)[i], 0, 1, 1));
        }
        fill(result, dims);
      }
      return;
    case Code::dynamic_pad:
    case Code::pad: {
      Integers low = integers(op, "low", "edge_padding_low", first.size()),
               high = integers(op, "high", "edge_padding_high", first.size()),
               inner = integers(op, "interior", "interior_padding", first.size());
      if (code == Code::dynamic_pad) {
        if (in.size() < 5) return;
        const Integers *l = g.known_of(in[2]), *h = g.known_of(in[3]), *i = g.known_of(in[4]);
        if (l == nullptr || h == nullptr || i == nullptr) return;
        low = *l, high = *h, inner = *i;
      }
      Dims dims;
      for (std::size_t i = 0; i < first.size(); ++i) {
        dims.push_back(window_positions(first[i], 1, 1, at(low, i, 0), at(high, i, 0), at(inner, i, 0) + 1, 1));
      }
      fill(result, dims);
      return;
    }
    case Code::gather:
    case Code::dynamic_gather:
      if (in.size() > 1) infer_gather(g, code, op, in, result);
      return;
    case Code::dot:
    case Code::dot_general:
      if (in.size() > 1) infer_dot(g, op, in, result);
      return;
    case Code::convolution:
      if (in.size() > 1) infer_convolution(g, op, in, result);
      return;
    case Code::reduce: {
      const Integers axes = integers(op, "dimensions");
      Dims dims;
      for (std::size_t i = 0; i < first.size(); ++i) {
        if (std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) == axes.end()) dims.push_back(first[i]);
      }
      for (Type& one : results) fill(one, dims);
      return;
    }
    case Code::reduce_window: {
      const std::size_t rank = first.size();
      const Integers kernel = integers(op, "window_dimensions", rank), stride = integers(op, "window_strides", rank),
                     pad = integers(op, "padding", 2 * rank), base = integers(op, "base_dilations", rank),
                     dilation = integers(op, "window_dilations", rank);
      Dims dims;
      for (std::size_t i = 0; i < rank; ++i) {
        dims.push_back(window_positions(first[i], at(kernel, i, 1), at(stride, i, 1), at(pad, 2 * i, 0),
                                        at(pad, 2 * i + 1, 0), at(base, i, 1), at(dilation, i, 1)));
      }
      for (Type& one : results) fill(one, dims);
      return;
    }
    case Code::top_k: {
      Dims dims = first;
      if (!dims.empty()) dims.back() = kOpen;
      for (Type& one : results) fill(one, dims);
      return;
    }
    case Code::custom_call: {
      const Integers shapes = integers(op, "indices_of_shape_operands");
      for (std::size_t i = 0; i < std::min(shapes.size(), results.size()); ++i) {
        if (shapes[i] >= 0 && shapes[i] < static_cast<std::int64_t>(in.size())) {
          fill_known(g, results[i], in[static_cast<std::size_t>(shapes[i])]);
        }
      }
      return;
    }
    default:
      break;
  }
  // Elementwise, and what keeps its operand's shape: any operand of the same rank whose size is known.
  for (std::size_t r = 0; r < results.size(); ++r) {
    for (const Value v : in) fill(results[r], g.type(v).dims);
  }
}

std::optional<Integers> evaluate(const FlatGraph& g, Code code, const Operation& op, std::span<const Value> in,
                                 const Type& result, std::size_t most) {
  const auto count = static_cast<std::size_t>(elements_of(result));
  if (code == Code::constant) return constant_integers(op, count, most);
  if (code == Code::get_dimension_size) {
    const auto axis = integer(op, "dim", "dimension");
    if (in.size() != 1 || !axis || *axis < 0) return std::nullopt;
    const Dims& dims = g.type(in[0]).dims;
    if (*axis >= static_cast<std::int64_t>(dims.size()) || dims[static_cast<std::size_t>(*axis)] == kOpen)
      return std::nullopt;
    return Integers{dims[static_cast<std::size_t>(*axis)]};
  }
  const Integers* given[3] = {nullptr, nullptr, nullptr};
  if (in.empty() || (in.size() > 3 && code != Code::concatenate)) return std::nullopt;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Integers* values = g.known_of(in[i]);
    if (values == nullptr) return std::nullopt;
    if (i < 3) given[i] = values;
  }
  const auto each = [&](auto&& of) -> std::optional<Integers> {
    Integers values(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::int64_t v[3] = {0, 0, 0};
      for (std::size_t k = 0; k < in.size(); ++k) {
        if (given[k]->size() != count && given[k]->size() != 1) return std::nullopt;
        v[k] = (*given[k])[given[k]->size() == 1 ? 0 : i];
      }
      values[i] = of(v);
    }
    return values;
  };
  // Wrap around as the machine does: damaged numbers must not be undefined behaviour.
  const auto wrap = [](auto a, auto b, auto&& f) {
    return static_cast<std::int64_t>(f(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  };
  switch (code) {
    case Code::add:
      return each([&](auto* v) { return wrap(v[0], v[1], [](auto a, auto b) { return a + b; }); });
    case Code::subtract:
      return each([&](auto* v) { return wrap(v[0], v[1], [](auto a, auto b) { return a - b; }); });
    case Code::multiply:
      return each([&](auto* v) { return wrap(v[0], v[1], [](auto a, auto b) { return a * b; }); });
    case Code::divide:
      return each([](auto* v) { return v[1] == 0 || v[1] == -1 ? 0 : v[0] / v[1]; });
    case Code::remainder:
      return each([](auto* v) { return v[1] == 0 || v[1] == -1 ? 0 : v[0] % v[1]; });
    case Code::maximum:
      return each([](auto* v) { return std::max(v[0], v[1]); });
    case Code::minimum:
      return each([](auto* v) { return std::min(v[0], v[1]); });
    case Code::negate:
      return each([&](auto* v) { return wrap(0, v[0], [](auto a, auto b) { return a - b; }); });
    case Code::clamp:
      if (in.size() != 3) return std::nullopt;
      return each([](auto* v) { return std::min(std::max(v[1], v[0]), v[2]); });
    case Code::select:
      if (in.size() != 3) return std::nullopt;
      return each([](auto* v) { return v[0] != 0 ? v[1] : v[2]; });
    case Code::compare: {
      if (in.size() != 2) return std::nullopt;
      for (const auto& [word, how] : {std::pair{"LT", 0}, {"LE", 1}, {"GT", 2}, {"GE", 3}, {"EQ", 4}, {"NE", 5}}) {
        if (op.attributes.find(word) == std::string_view::npos) continue;
        return each([how = how](auto* v) -> std::int64_t {
          return how == 0   ? v[0] < v[1]
                 : how == 1 ? v[0] <= v[1]
                 : how == 2 ? v[0] > v[1]
                 : how == 3 ? v[0] >= v[1]
                 : how == 4 ? v[0] == v[1]
                            : v[0] != v[1];
        });
      }
      return std::nullopt;
    }
    case Code::convert:
    case Code::reshape:
    case Code::dynamic_reshape:
    case Code::optimization_barrier:
      return given[0]->size() == count ? std::optional(*given[0]) : std::nullopt;
    case Code::broadcast_in_dim:
    case Code::dynamic_broadcast_in_dim:
      return given[0]->size() == 1 ? std::optional(Integers(count, (*given[0])[0]))
             : given[0]->size() == count && g.type(in[0]).dims == result.dims ? std::optional(*given[0])
                                                                              : std::nullopt;
    case Code::concatenate: {
      if (result.dims.size() != 1) return std::nullopt;
      Integers values;
      for (const Value v : in) {
        if (values.size() > count) return std::nullopt;
        values.insert(values.end(), g.known_of(v)->begin(), g.known_of(v)->end());
      }
      return values.size() == count ? std::optional(std::move(values)) : std::nullopt;
    }
    case Code::slice: {
      if (result.dims.size() != 1 || g.type(in[0]).dims.size() != 1) return std::nullopt;
      Integers begin = integers(op, "start_indices"), step = integers(op, "strides");
      if (begin.empty()) {  // %a [2:7:1]
        const std::size_t open = op.attributes.rfind('[');
        if (open == std::string_view::npos) return std::nullopt;
        const Integers numbers = integers_in(op.attributes.substr(open));
        begin = {at(numbers, 0, 0)};
        step = {at(numbers, 2, 1)};
      }
      const std::int64_t from = begin[0], by = at(step, 0, 1);
      if (count > 0 && (from < 0 || from > 4096 || by < 1 || by > 4096)) return std::nullopt;
      Integers values;
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t k = from + static_cast<std::int64_t>(i) * by;
        if (k >= static_cast<std::int64_t>(given[0]->size())) return std::nullopt;
        values.push_back((*given[0])[static_cast<std::size_t>(k)]);
      }
      return values;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace perfpass::stablehlo
