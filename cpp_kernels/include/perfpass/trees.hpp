// Gradient-boosted regression trees, evaluated without any library: a prediction must not cost an import.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace perfpass {

/// An ensemble of regression trees whose values add up; all nodes of all trees lie in one array.
class TreeEnsemble {
 public:
  /// XGBoost's JSON or UBJSON model bytes (gbtree, one target, numerical splits). Error(format) if malformed or cyclic,
  /// Error(unsupported) for other boosters, categorical splits or multi-target leaves.
  static TreeEnsemble from_xgboost(std::span<const std::uint8_t> bytes);

  /// x: [rows, features] row major, NaN is missing. Returns [rows], base score included. Error(argument) when the
  /// number of columns differs from features().
  std::vector<float> predict(std::span<const float> x, std::size_t rows, std::size_t columns) const;

  std::size_t features() const noexcept { return features_; }
  std::size_t trees() const noexcept { return roots_.size(); }
  double base_score() const noexcept { return base_score_; }

 private:
  struct Node {
    std::int32_t left = -1;  // < 0 marks a leaf, whose value is in `threshold`
    std::int32_t right = -1;
    std::int32_t feature = 0;
    float threshold = 0.0F;  // a smaller value goes left
    bool default_left = false;
  };
  void append_tree(const Node* nodes, std::size_t count);

  std::size_t features_ = 0;
  double base_score_ = 0.0;
  std::vector<std::int32_t> roots_;
  std::vector<Node> nodes_;
};

}  // namespace perfpass
