// What the feature files share: a matrix being filled, one row function per schema.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "costs/node.hpp"
#include "perfpass/features.hpp"

namespace perfpass::detail {

/// What every schema reads; `elements` is tensor_elements(graph).
struct FeatureSource {
  const OpGraph& graph;
  const Costs& costs;
  const std::vector<std::int64_t>& elements;

  NodeView node(NodeId id) const noexcept { return {graph, elements, id}; }
};

/// Leading dimension of the first graph input; 1 where there is none.
std::int64_t batch_of(const OpGraph& graph) noexcept;

std::span<const std::string_view> operator_node_names();
std::span<const std::string_view> operator_static_names();
std::span<const std::string_view> dippm_node_names();
std::span<const std::string_view> dippm_static_names();
std::span<const std::string_view> trappm_node_names();
std::span<const std::string_view> trappm_static_names();
std::span<const std::string_view> nnlqp_node_names();
std::span<const std::string_view> nnlqp_static_names();

// Each fills matrix.values ([N, F], zeroed by the caller; fill_operator: empty) and matrix.statics ([S], zeroed).
void fill_operator(const FeatureSource& source, FeatureMatrix& matrix);
void fill_dippm(const FeatureSource& source, FeatureMatrix& matrix);
void fill_trappm(const FeatureSource& source, FeatureMatrix& matrix);
void fill_nnlqp(const FeatureSource& source, FeatureMatrix& matrix);

}  // namespace perfpass::detail
