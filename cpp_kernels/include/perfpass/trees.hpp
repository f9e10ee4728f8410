// Gradient-boosted regression trees, evaluated without any library: a prediction must not cost an import.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perfpass/export.hpp"

namespace perfpass {

/// An ensemble of regression trees whose values add up; all nodes of all trees lie in one array.
class PERFPASS_API TreeEnsemble {
 public:
  /// XGBoost's JSON or UBJSON model bytes (gbtree, one target, numerical splits). Error(format) if malformed or cyclic,
  /// Error(unsupported) for other boosters, categorical splits or multi-target leaves.
  static TreeEnsemble from_xgboost(std::span<const std::uint8_t> bytes);

  /// The columns of a packed forest (docs/reference/artefacts.md). All nodes of all trees lie in one row, each tree's
  /// from its root down, level by level, siblings side by side; the k-th split of a tree has its children at 1 + 2 k.
  struct Packed {
    double base_score = 0.0;
    float leaf_scale = 0.0F;
    std::span<const std::int32_t> tree_nodes;        // [trees] nodes of each
    std::span<const std::uint8_t> is_leaf;           // a bit a node, the first in the highest place of its byte
    std::span<const std::uint16_t> feature;          // [splits]
    std::span<const std::uint16_t> rank;             // [splits] place of the threshold among those of its feature
    std::span<const std::uint8_t> default_left;      // a bit a split
    std::span<const float> thresholds;               // ordered by feature
    std::span<const std::int32_t> threshold_counts;  // [features]
    std::span<const std::uint16_t> leaf;             // [leaves] 16-bit floats, to be multiplied by leaf_scale
  };
  /// The forest of these columns. Error(format) where they are none.
  static TreeEnsemble from_packed(const Packed& columns);

  /// x: [rows, features] row major, NaN is missing. Returns [rows], base score included. Error(argument) when the
  /// number of columns differs from features(). A row's result depends on nothing but the row.
  std::vector<float> predict(std::span<const float> x, std::size_t rows, std::size_t columns,
                             unsigned threads = 1) const;

  std::size_t features() const noexcept { return features_; }
  std::size_t trees() const noexcept { return trees_.size(); }
  double base_score() const noexcept { return base_score_; }

 private:
  /// Siblings lie side by side, and a leaf is its own child, so that a walk needs no branch: after as many steps as the
  /// tree is deep it stands on its leaf.
  struct Node {
    float threshold = 0.0F;  // a smaller value goes left; of a leaf, its value
    std::int32_t child = 0;  // the left one, or the leaf itself
    std::uint32_t feature = 0;
    std::uint16_t step = 0;  // from the left child to the right one: 1, or 0 in a leaf
    std::uint16_t default_left = 0;
  };
  struct Tree {
    std::int32_t root = 0;
    std::int32_t depth = 0;
  };
  /// A node as the file has it; `left` < 0 marks a leaf.
  struct Split {
    float threshold = 0.0F;
    std::int32_t left = -1, right = -1, feature = 0;
    bool default_left = false, is_child = false;
  };
  void append_tree(const std::vector<Split>& splits);
  static const Node* next(const Node* nodes, const Node& node, const float* row) noexcept;
  void add_rows(const float* x, std::size_t rows, double* sums) const noexcept;

  std::size_t features_ = 0;
  double base_score_ = 0.0;
  std::vector<Tree> trees_;
  std::vector<Node> nodes_;
};

}  // namespace perfpass
