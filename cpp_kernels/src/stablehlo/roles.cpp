// Which arguments of main are parameters. JAX passes them like inputs; two things tell them apart: they stand where
// operators have their weights, and arguments of one pytree (variables['params']...) are of one kind.
#include <algorithm>
#include <set>

#include "stablehlo/flat.hpp"

namespace perfpass::stablehlo {
namespace {

bool may_be_parameter(const Type& type) {
  if (is_floating(type.dtype)) return !type.dims.empty();
  const bool bytes = type.dtype == DType::int8 || type.dtype == DType::uint8 || type.dtype == DType::int4 ||
                     type.dtype == DType::uint4;
  return bytes && type.dims.size() >= 2;
}

/// variables['params']['w'] -> variables; args[1].x -> args[1]; empty for a name that is no path.
std::string pytree(const std::string& name) {
  std::size_t end = name.find_first_of("[.");
  if (end == std::string::npos) return {};
  if (const std::string first = name.substr(0, end); first == "args" || first == "kwargs") {
    const std::size_t close = name.find(']', end);
    if (close == std::string::npos || close + 1 >= name.size()) return {};
    end = close + 1;
  }
  return name.substr(0, end);
}

class Roles {
 public:
  explicit Roles(FlatGraph& graph)
      : g_(graph),
        of_(graph.values.size(), kNobody),
        of_weights_(graph.values.size(), false),
        found_(graph.arguments.size(), false) {
    for (std::size_t i = 0; i < g_.arguments.size(); ++i) of_[g_.arguments[i].value] = static_cast<std::int32_t>(i);
    for (std::size_t v = 0; v < g_.values.size(); ++v) {
      if (g_.values[v].argument != kNobody) of_[v] = g_.values[v].argument;
    }
  }

  void run() {
    for (const FlatOp& op : g_.ops) visit(op);
    std::vector<bool> decided = found_;
    std::vector<std::string> trees(found_.size());
    std::set<std::string> of_weights;
    for (std::size_t i = 0; i < found_.size(); ++i) {
      trees[i] = pytree(g_.arguments[i].name);
      if (found_[i] && !trees[i].empty()) of_weights.insert(trees[i]);
    }
    for (std::size_t i = 0; i < found_.size(); ++i) {
      if (of_weights.contains(trees[i]) && may_be_parameter(g_.type(g_.arguments[i].value))) decided[i] = true;
    }
    if (std::all_of(decided.begin(), decided.end(), [](bool b) { return b; })) decided = found_;
    std::size_t count = 0;
    for (std::size_t i = 0; i < decided.size(); ++i) {
      g_.arguments[i].is_weight = decided[i];
      count += decided[i];
    }
    if (count > 0) {
      const char* said = count == 1
                             ? " argument stands where operators have their parameters and is counted as a weight"
                             : " arguments stand where operators have their parameters and are counted as weights";
      g_.notes.push_back({std::to_string(count) + said});
    }
  }

 private:
  void mark(Value v) {
    const std::int32_t i = of_[v];
    if (i != kNobody && may_be_parameter(g_.type(g_.arguments[static_cast<std::size_t>(i)].value))) {
      found_[static_cast<std::size_t>(i)] = true;
    }
  }
  bool is_fixed(Value v) const {
    return g_.values[v].is_constant || of_weights_[v] || (is_argument(v) && found_[static_cast<std::size_t>(of_[v])]);
  }
  bool is_argument(Value v) const { return of_[v] != kNobody; }
  std::size_t rank_of_argument(Value v) const {
    return g_.type(g_.arguments[static_cast<std::size_t>(of_[v])].value).dims.size();
  }

  /// Whether a value shows an argument behind further dimensions that stand first; a vector anywhere.
  bool ends(Value v) const {
    const std::vector<std::int64_t>& shown = g_.type(v).dims;
    const std::vector<std::int64_t>& own = g_.type(g_.arguments[static_cast<std::size_t>(of_[v])].value).dims;
    if (own.size() >= shown.size() || own.empty()) return false;
    return own.size() == 1 ||
           (elements_of(g_.type(v)) > elements_of(g_.type(g_.arguments[static_cast<std::size_t>(of_[v])].value)) &&
            std::equal(own.begin(), own.end(), shown.end() - static_cast<std::ptrdiff_t>(own.size())));
  }

  void visit(const FlatOp& op) {
    const auto in = g_.in(op);
    if (in.empty() || op.out_count == 0) return;
    switch (op.code) {
      case Code::broadcast_in_dim:
      case Code::dynamic_broadcast_in_dim:
        // A vector for every position: a bias, a scale, a statistic.
        if (is_argument(in[0]) && rank_of_argument(in[0]) == 1 &&
            elements_of(g_.type(op.out_begin)) > elements_of(g_.type(in[0]))) {
          mark(in[0]);
        }
        [[fallthrough]];
      case Code::reshape:
      case Code::dynamic_reshape:
      case Code::transpose:
      case Code::convert:
      case Code::copy:
      case Code::slice:
      case Code::dynamic_slice:
      case Code::uniform_dequantize:
      case Code::uniform_quantize:
        of_[op.out_begin] = of_[in[0]];
        of_weights_[op.out_begin] = of_weights_[in[0]];
        return;
      case Code::add:  // the variance of a batch normalisation: rsqrt(v + epsilon)
        if (is_argument(in[0]) && rank_of_argument(in[0]) == 1) of_[op.out_begin] = of_[in[0]];
        [[fallthrough]];
      case Code::subtract:
      case Code::multiply:
      case Code::divide:
        for (std::size_t i = 0; i < in.size() && in.size() == 2; ++i) {
          if (of_weights_[in[1 - i]] && is_argument(in[i]) && rank_of_argument(in[i]) == 1) mark(in[i]);
        }
        if (std::all_of(in.begin(), in.end(), [&](Value v) { return is_fixed(v); }) && !g_.values[in[0]].is_constant) {
          of_weights_[op.out_begin] = true;
        }
        // A vector, or the last dimensions of a tensor, given further dimensions to meet another tensor.
        for (std::size_t i = 0; i < in.size(); ++i) {
          if (is_argument(in[i]) && in.size() == 2 && ends(in[i]) && !g_.values[in[1 - i]].is_constant) mark(in[i]);
        }
        return;
      case Code::rsqrt:
      case Code::sqrt:
        mark(in[0]);
        of_weights_[op.out_begin] = is_fixed(in[0]);
        return;
      case Code::negate:
        if (is_argument(in[0]) && rank_of_argument(in[0]) == 1) of_[op.out_begin] = of_[in[0]];
        return;
      case Code::convolution:
      case Code::dynamic_conv:
        if (in.size() > 1) mark(in[1]);
        return;
      case Code::dot:
      case Code::dot_general:
        if (in.size() > 1) product(op, in);
        return;
      case Code::gather:
      case Code::dynamic_gather:
      case Code::torch_index_select:
        if (is_argument(in[0]) && rank_of_argument(in[0]) >= 2 && in.size() > 1 && g_.known_of(in[1]) == nullptr)
          mark(in[0]);
        return;
      case Code::batch_norm_inference:
      case Code::batch_norm_training:
        for (std::size_t i = 1; i < in.size(); ++i) mark(in[i]);
        return;
      default:
        return;
    }
  }

  void product(const FlatOp& op, std::span<const Value> in) {
    const bool batched = !dot_sides(g_, *op.at, in).batch[0].empty();
    const bool left = is_argument(in[0]), right = is_argument(in[1]);
    if (right && (!batched || !left) && rank_of_argument(in[1]) >= 2) {
      mark(in[1]);
    } else if (left && !right && !batched && rank_of_argument(in[0]) >= 2 &&
               !pytree(g_.arguments[static_cast<std::size_t>(of_[in[0]])].name).empty()) {
      mark(in[0]);
    }
  }

  FlatGraph& g_;
  std::vector<std::int32_t> of_;  // the argument that a value shows, through views
  std::vector<bool> of_weights_;  // values made of parameters and constants alone
  std::vector<bool> found_;
};

}  // namespace

void find_weights(FlatGraph& graph) { Roles(graph).run(); }

}  // namespace perfpass::stablehlo
