#include <string>

#include "features/rows.hpp"
#include "perfpass/error.hpp"
#include "perfpass/features.hpp"

namespace perfpass {

namespace detail {

std::int64_t batch_of(const OpGraph& graph) noexcept {
  if (graph.graph_inputs.empty()) return 1;
  const auto shape = graph.shape(graph.graph_inputs.front());
  return shape.empty() ? 1 : shape.front();
}

}  // namespace detail

Schema schema_from_name(std::string_view name) {
  if (name == "operator") return Schema::operator_;
  if (name == "dippm") return Schema::dippm;
  if (name == "trappm") return Schema::trappm;
  if (name == "nnlqp") return Schema::nnlqp;
  throw Error(ErrorCode::argument, "no feature schema '" + std::string(name.substr(0, 100)) +
                                       "'; there are operator, dippm, trappm and nnlqp");
}

int schema_version(Schema) noexcept { return 1; }

std::span<const std::string_view> node_feature_names(Schema schema) noexcept {
  switch (schema) {
    case Schema::operator_:
      return detail::operator_node_names();
    case Schema::dippm:
      return detail::dippm_node_names();
    case Schema::trappm:
      return detail::trappm_node_names();
    case Schema::nnlqp:
      return detail::nnlqp_node_names();
  }
  return {};
}

std::span<const std::string_view> static_feature_names(Schema schema) noexcept {
  switch (schema) {
    case Schema::operator_:
      return detail::operator_static_names();
    case Schema::dippm:
      return detail::dippm_static_names();
    case Schema::trappm:
      return detail::trappm_static_names();
    case Schema::nnlqp:
      return detail::nnlqp_static_names();
  }
  return {};
}

FeatureMatrix node_features(const OpGraph& graph, const Costs& costs, Schema schema) {
  detail::require_costs(graph, costs);
  FeatureMatrix matrix;
  matrix.rows = static_cast<std::int64_t>(graph.node_count());
  matrix.columns = static_cast<std::int64_t>(node_feature_names(schema).size());
  const auto size = static_cast<std::size_t>(matrix.rows * matrix.columns);
  if (schema == Schema::operator_) {
    matrix.values.reserve(size);  // row by row: its matrices are megabytes, which are written once
  } else {
    matrix.values.assign(size, 0.0F);
  }
  matrix.statics.assign(static_feature_names(schema).size(), 0.0F);
  const std::vector<std::int64_t> elements = detail::tensor_elements(graph);
  const detail::FeatureSource source{graph, costs, elements};
  switch (schema) {
    case Schema::operator_:
      detail::fill_operator(source, matrix);
      break;
    case Schema::dippm:
      detail::fill_dippm(source, matrix);
      break;
    case Schema::trappm:
      detail::fill_trappm(source, matrix);
      break;
    case Schema::nnlqp:
      detail::fill_nnlqp(source, matrix);
      break;
  }
  return matrix;
}

}  // namespace perfpass
