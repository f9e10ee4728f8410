// Graphs in few words, for the tests of what is counted on them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "perfpass/graph.hpp"

namespace perfpass::testing {

class Sketch {
 public:
  using Shape = std::vector<std::int64_t>;

  TensorId tensor(const Shape& shape, TensorRole role = TensorRole::input, DType dtype = DType::float32) {
    return builder_.add_tensor(std::to_string(count_++), dtype, shape, role);
  }
  TensorId weight(const Shape& shape) { return tensor(shape, TensorRole::weight); }
  TensorId node(OpKind op, const std::vector<TensorId>& inputs, const Shape& shape, const NodeAttributes& a = {},
                double repeat = 1.0) {
    const TensorId out = tensor(shape, TensorRole::activation);
    builder_.add_node(op, op_name(op), "", a, inputs, std::vector{out}, repeat);
    return out;
  }
  GraphBuilder& builder() noexcept { return builder_; }
  OpGraph finish(const std::vector<TensorId>& outputs = {}) { return std::move(builder_).finish({}, outputs); }

 private:
  GraphBuilder builder_;
  int count_ = 0;
};

/// Nodes of any kind with any operands, shapes and attributes, sensible or not: what a hostile file may lead to.
inline OpGraph hostile_graph(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
  Sketch sketch;
  std::vector<TensorId> pool;
  const auto shape = [&] {
    static constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 5, 64, 4096, 1 << 20, std::int64_t{1} << 40};
    Sketch::Shape dims;
    std::int64_t product = 1;
    for (std::int32_t rank = below(7); rank > 0; --rank) {
      std::int64_t d = kSizes[below(9)];
      if (d > 1 && product > kMaxElements / d) d = 1;
      if (d > 0) product *= d;
      dims.push_back(d);
    }
    return dims;
  };
  const auto any_attribute = [&]() -> std::int32_t {
    static constexpr std::int32_t kValues[] = {0, 0, 0, 1, 1, 2, 3, 8, -1, 1 << 20, INT32_MAX, INT32_MIN};
    return kValues[below(12)];
  };
  const int nodes = 1 + below(12);
  for (int n = 0; n < nodes; ++n) {
    NodeAttributes a;
    auto* columns = reinterpret_cast<std::int32_t*>(&a);
    for (std::size_t i = 0; i < attribute_names().size(); ++i) columns[i] = any_attribute();
    std::vector<TensorId> inputs, outputs;
    for (std::int32_t i = below(7); i > 0; --i) {
      if (below(6) == 0) {
        inputs.push_back(kNone);
      } else if (!pool.empty() && below(2) == 0) {
        inputs.push_back(pool[below(static_cast<std::uint32_t>(pool.size()))]);
      } else {
        static constexpr TensorRole kRoles[] = {TensorRole::input, TensorRole::weight, TensorRole::literal};
        inputs.push_back(sketch.tensor(shape(), kRoles[below(3)],
                                       static_cast<DType>(below(static_cast<std::uint32_t>(DType::count_)))));
      }
    }
    for (std::int32_t i = below(4); i > 0; --i) {
      outputs.push_back(below(6) == 0
                            ? kNone
                            : sketch.tensor(shape(), TensorRole::activation,
                                            static_cast<DType>(below(static_cast<std::uint32_t>(DType::count_)))));
    }
    static constexpr double kRepeats[] = {1.0, 1.0, 0.0, 12.0, 0.3, 1e18};
    sketch.builder().add_node(static_cast<OpKind>(below(static_cast<std::uint32_t>(OpKind::count_))), "Op", "", a,
                              inputs, outputs, kRepeats[below(6)]);
    for (const TensorId t : outputs) {
      if (t != kNone) pool.push_back(t);
    }
  }
  return sketch.finish(pool);
}

}  // namespace perfpass::testing
