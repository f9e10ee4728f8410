#include "perfpass/trees.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include "perfpass/error.hpp"
#include "support/decimal.hpp"
#include "support/parallel.hpp"
#include "trees/document.hpp"

namespace perfpass {
namespace {

using document::Value;

constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr double kMaxFeatures = 1 << 20;
constexpr std::size_t kWalks = 8;        // walks that wait for memory at the same time
constexpr std::size_t kRowsAtOnce = 64;  // their features stay in the cache while all trees pass

// Objectives whose prediction is the sum of the leaves and the base score, without a link function.
constexpr std::array<std::string_view, 4> kIdentityObjectives = {"reg:squarederror", "reg:absoluteerror",
                                                                 "reg:pseudohubererror", "reg:quantileerror"};

[[noreturn]] void malformed(const std::string& found) { throw Error(ErrorCode::format, "tree model: " + found); }

[[noreturn]] void unsupported(const std::string& found) {
  throw Error(
      ErrorCode::unsupported,
      "tree model: " + found + "; supported are gbtree ensembles for one regression target with numerical splits");
}

std::string quoted(std::string_view name) { return std::string(1, '\'').append(name.substr(0, 40)).append(1, '\''); }

const Value& member(const Value& object, std::string_view name) {
  const Value* value = object.find(name);
  if (value == nullptr) malformed("no member " + quoted(name));
  return *value;
}

const std::string& text(const Value& object, std::string_view name) {
  const Value& value = member(object, name);
  if (value.kind != Value::Kind::string) malformed(quoted(name) + " is not a string");
  return value.string;
}

const std::vector<double>& numbers(const Value& object, std::string_view name, std::size_t size) {
  const Value& value = member(object, name);
  if (value.kind != Value::Kind::numbers) malformed(quoted(name) + " is not an array of numbers");
  if (value.numbers.size() != size) {
    malformed(quoted(name) + " has " + std::to_string(value.numbers.size()) + " entries, the tree has " +
              std::to_string(size) + " nodes");
  }
  return value.numbers;
}

/// XGBoost writes scalars of its parameters as strings, and since 3.1 the base score as a list of one, "[5E-1]".
double scalar(const std::string& written, std::string_view name) {
  std::string_view digits = written;
  if (digits.size() >= 2 && digits.front() == '[' && digits.back() == ']') digits = digits.substr(1, digits.size() - 2);
  if (digits.find(',') != std::string_view::npos) unsupported(std::string(name) + " has one value per target");
  double value = 0.0;
  const auto [end, error] = read_decimal(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || !std::isfinite(value)) {
    malformed(std::string(name) + " is " + quoted(written) + ", not a finite number");
  }
  return value;
}

/// 0 where the member is absent (older files), else its value.
double optional_scalar(const Value& object, std::string_view name) {
  return object.find(name) != nullptr ? scalar(text(object, name), name) : 0.0;
}

std::int32_t index(double value, std::size_t limit, std::string_view name) {
  if (!(value >= 0) || value >= static_cast<double>(limit) || value != std::floor(value)) {
    malformed(std::string(name) + " holds " + std::to_string(value) + "; allowed are whole numbers below " +
              std::to_string(limit));
  }
  return static_cast<std::int32_t>(value);
}

void check_supported(const Value& learner) {
  const Value& parameters = member(learner, "learner_model_param");
  if (optional_scalar(parameters, "num_class") > 1) unsupported("a classifier");
  if (optional_scalar(parameters, "num_target") > 1) unsupported("several targets");
  const std::string& booster = text(member(learner, "gradient_booster"), "name");
  if (booster != "gbtree") unsupported("booster " + quoted(booster));
  const std::string& objective = text(member(learner, "objective"), "name");
  if (std::find(kIdentityObjectives.begin(), kIdentityObjectives.end(), objective) == kIdentityObjectives.end()) {
    unsupported("objective " + quoted(objective));
  }
}

}  // namespace

TreeEnsemble TreeEnsemble::from_xgboost(std::span<const std::uint8_t> bytes) {
  if (bytes.size() > kMaxBytes) {
    throw Error(ErrorCode::limit,
                "tree model: " + std::to_string(bytes.size()) + " bytes; allowed are " + std::to_string(kMaxBytes));
  }
  const Value root = document::named("tree model", [&] { return document::parse(bytes); });
  const Value& learner = member(root, "learner");
  check_supported(learner);
  const Value& parameters = member(learner, "learner_model_param");

  TreeEnsemble ensemble;
  const double features = scalar(text(parameters, "num_feature"), "num_feature");
  if (features < 1 || features > kMaxFeatures || features != std::floor(features)) {
    malformed("num_feature is " + std::to_string(features) + "; allowed are 1 to " + std::to_string(kMaxFeatures));
  }
  ensemble.features_ = static_cast<std::size_t>(features);
  ensemble.base_score_ = scalar(text(parameters, "base_score"), "base_score");

  const Value& trees = member(member(member(learner, "gradient_booster"), "model"), "trees");
  if (trees.kind == Value::Kind::numbers && trees.numbers.empty()) return ensemble;
  if (trees.kind != Value::Kind::items) malformed("'trees' is not an array of trees");
  std::vector<Split> splits;
  for (const Value& tree : trees.items) {
    if (optional_scalar(member(tree, "tree_param"), "size_leaf_vector") > 1) unsupported("leaves with several values");
    const Value& left_member = member(tree, "left_children");
    if (left_member.kind != Value::Kind::numbers || left_member.numbers.empty()) {
      malformed("'left_children' is not a filled array of numbers");
    }
    const std::vector<double>& left = left_member.numbers;
    const std::size_t count = left.size();
    if (ensemble.nodes_.size() + count > std::numeric_limits<std::int32_t>::max()) {
      throw Error(ErrorCode::limit, "tree model: more than 2^31 nodes");
    }
    const auto& right = numbers(tree, "right_children", count);
    const auto& feature = numbers(tree, "split_indices", count);
    const auto& threshold = numbers(tree, "split_conditions", count);
    const auto& default_left = numbers(tree, "default_left", count);
    if (tree.find("split_type") != nullptr) {
      const auto& kind = numbers(tree, "split_type", count);
      if (std::any_of(kind.begin(), kind.end(), [](double k) { return k != 0; })) unsupported("a categorical split");
    }

    splits.assign(count, Split{});
    for (std::size_t i = 0; i < count; ++i) {
      Split& split = splits[i];
      split.threshold = static_cast<float>(threshold[i]);
      if (std::isnan(split.threshold)) malformed("a split or leaf value is not a number");
      if (left[i] == -1 && right[i] == -1) {
        if (!std::isfinite(split.threshold)) malformed("a leaf value is not finite");
        continue;
      }
      // A node with one parent at most and a root with none: what the root reaches is a tree, so every walk ends.
      for (const double child : {left[i], right[i]}) {
        const std::int32_t c = index(child, count, "children");
        if (c == 0 || splits[c].is_child) malformed("a tree whose nodes form a cycle or share a child");
        splits[c].is_child = true;
      }
      split.left = static_cast<std::int32_t>(left[i]);
      split.right = static_cast<std::int32_t>(right[i]);
      split.feature = index(feature[i], ensemble.features_, "split_indices");
      split.default_left = default_left[i] != 0;
    }
    ensemble.append_tree(splits);
  }
  return ensemble;
}

namespace {

/// Bit `at` of a row of bits.
bool bit(std::span<const std::uint8_t> bits, std::size_t at) { return (bits[at / 8] >> (7 - at % 8) & 1) != 0; }

/// The value of a finite 16-bit float, exactly: its bits are those of a 32-bit float whose exponent is 112 too small.
float from_half(std::uint16_t bits) {
  const auto magnitude = std::bit_cast<float>((bits & 0x7FFFU) << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | (bits & 0x8000U) << 16);
}

constexpr float kLargestHalf = 65504.0F;

/// Where the thresholds of each feature begin, and the end of the last.
std::vector<std::size_t> threshold_starts(const TreeEnsemble::Packed& columns) {
  std::vector<std::size_t> starts{0};
  starts.reserve(columns.threshold_counts.size() + 1);
  for (const std::int32_t count : columns.threshold_counts) {
    if (count < 0) malformed("a feature with fewer than no thresholds");
    starts.push_back(starts.back() + static_cast<std::size_t>(count));
  }
  if (starts.back() != columns.thresholds.size()) malformed("thresholds that belong to no feature");
  for (const float threshold : columns.thresholds) {
    if (!std::isfinite(threshold)) malformed("a threshold is not finite");
  }
  return starts;
}

/// Number of nodes, of which all columns speak.
std::size_t checked_nodes(const TreeEnsemble::Packed& columns) {
  std::size_t total = 0;
  for (const std::int32_t count : columns.tree_nodes) {
    if (count < 1) malformed("a tree without nodes");
    total += static_cast<std::size_t>(count);
  }
  if (total > std::numeric_limits<std::int32_t>::max()) {
    throw Error(ErrorCode::limit, "tree model: more than 2^31 nodes");
  }
  const std::size_t splits = columns.feature.size();
  if ((total + 7) / 8 != columns.is_leaf.size() || (splits + 7) / 8 != columns.default_left.size()) {
    malformed("bits for another number of nodes");
  }
  if (columns.rank.size() != splits || columns.leaf.size() + splits != total) {
    malformed("columns that do not belong together");
  }
  return total;
}

}  // namespace

TreeEnsemble TreeEnsemble::from_packed(const Packed& columns) {
  const std::size_t features = columns.threshold_counts.size(), total = checked_nodes(columns);
  if (features < 1 || features > kMaxFeatures || !std::isfinite(columns.base_score)) {
    malformed("no features or base score");
  }
  const std::vector<std::size_t> starts = threshold_starts(columns);
  TreeEnsemble ensemble;
  ensemble.features_ = features;
  ensemble.base_score_ = columns.base_score;
  if (!std::isfinite(columns.leaf_scale * kLargestHalf)) malformed("leaves of no finite scale");
  ensemble.nodes_.resize(total);
  ensemble.trees_.reserve(columns.tree_nodes.size());
  Node* const made = ensemble.nodes_.data();
  std::size_t first = 0, split = 0, leaf = 0;
  for (const std::int32_t nodes : columns.tree_nodes) {
    const std::size_t root = first, end = first + static_cast<std::size_t>(nodes);
    Tree tree{static_cast<std::int32_t>(root), 0};
    std::size_t below = root + 1, level_end = below;  // behind the nodes known so far, and those down to this level
    for (; first < end; ++first) {
      if (first == level_end) {
        level_end = below;
        ++tree.depth;
      }
      if (first >= below) malformed("a tree with a node that no split leads to");
      if (bit(columns.is_leaf, first)) {
        if (leaf == columns.leaf.size()) malformed("columns that do not belong together");
        const std::uint16_t half = columns.leaf[leaf++];
        if ((half & 0x7C00U) == 0x7C00U) malformed("a leaf value is not finite");
        made[first] = {from_half(half) * columns.leaf_scale, static_cast<std::int32_t>(first), 0, 0, 0};
        continue;
      }
      if (split == columns.feature.size()) malformed("columns that do not belong together");
      const std::uint16_t feature = columns.feature[split];
      if (feature >= features) malformed("a split on a feature that the model lacks");
      const std::size_t threshold = starts[feature] + columns.rank[split];
      if (threshold >= starts[feature + 1]) malformed("a split at a threshold that its feature lacks");
      const std::uint16_t missing_left = bit(columns.default_left, split++) ? 1 : 0;
      made[first] = {columns.thresholds[threshold], static_cast<std::int32_t>(below), feature, 1, missing_left};
      below += 2;
      if (below > end) malformed("a split whose children are missing");
    }
    ensemble.trees_.push_back(tree);
  }
  return ensemble;
}

/// Breadth first, so that siblings are neighbours and a level's nodes share cache lines.
void TreeEnsemble::append_tree(const std::vector<Split>& splits) {
  const auto root = static_cast<std::int32_t>(nodes_.size());
  Tree tree{root, 0};
  std::vector<std::int32_t> level{0}, below;
  auto first_below = root + 1;
  for (; !level.empty(); level.swap(below)) {
    below.clear();
    for (const std::int32_t at : level) {
      const Split& split = splits[at];
      const auto self = static_cast<std::int32_t>(nodes_.size());
      if (split.left < 0) {
        nodes_.push_back({split.threshold, self, 0, 0, 0});
        continue;
      }
      const std::uint16_t default_left = split.default_left ? 1 : 0;
      nodes_.push_back({split.threshold, first_below, static_cast<std::uint32_t>(split.feature), 1, default_left});
      first_below += 2;
      below.push_back(split.left);
      below.push_back(split.right);
    }
    if (!below.empty()) ++tree.depth;
  }
  trees_.push_back(tree);
}

inline const TreeEnsemble::Node* TreeEnsemble::next(const Node* nodes, const Node& node, const float* row) noexcept {
  // In numbers, because where a walk turns is what no processor foresees: a branch here triples the time.
  const float value = row[node.feature];
  const auto below = static_cast<std::uint32_t>(value < node.threshold);
  const auto missing = static_cast<std::uint32_t>(std::isnan(value));
  return nodes + node.child + (node.step & ~(below | (missing & node.default_left)));
}

/// Some trees at a time, which stay in the cache while all rows pass: of each row their walks overlap, since they wait
/// for memory, and their leaves are added in the order of the trees.
void TreeEnsemble::add_rows(const float* x, std::size_t rows, double* sums) const noexcept {
  const Node* nodes = nodes_.data();
  for (std::size_t first = 0; first < trees_.size(); first += kWalks) {
    std::array<const Node*, kWalks> root;
    std::int32_t depth = 0;
    for (std::size_t w = 0; w < kWalks; ++w) {
      const Tree& tree = trees_[std::min(first + w, trees_.size() - 1)];
      root[w] = nodes + tree.root;
      depth = std::max(depth, tree.depth);
    }
    for (std::size_t i = 0; i < rows; ++i) {
      const float* row = x + i * features_;
      std::array<const Node*, kWalks> at = root;
      for (std::int32_t step = 0; step < depth; ++step) {
        for (std::size_t w = 0; w < kWalks; ++w) at[w] = next(nodes, *at[w], row);
      }
      for (std::size_t w = 0; w < kWalks && first + w < trees_.size(); ++w) sums[i] += at[w]->threshold;
    }
  }
}

std::vector<float> TreeEnsemble::predict(std::span<const float> x, std::size_t rows, std::size_t columns,
                                         unsigned threads) const {
  if (columns != features_ || x.size() != rows * columns) {
    throw Error(ErrorCode::argument, "tree model: got rows of " + std::to_string(columns) +
                                         " features; the model has " + std::to_string(features_));
  }
  std::vector<float> out(rows);
  detail::in_parallel((rows + kRowsAtOnce - 1) / kRowsAtOnce, threads, [&](std::size_t part) {
    const std::size_t first = part * kRowsAtOnce, count = std::min(rows - first, kRowsAtOnce);
    const float* start = x.data() + first * features_;
    std::array<double, kRowsAtOnce> sums;
    sums.fill(base_score_);
    add_rows(start, count, sums.data());
    for (std::size_t i = 0; i < count; ++i) out[first + i] = static_cast<float>(sums[i]);
  });
  return out;
}

}  // namespace perfpass
