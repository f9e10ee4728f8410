// Gradient-boosted regression trees, evaluated without any library: a prediction must not cost an import.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace perfpass {

/// Trees as flat arrays over all nodes; `left` < 0 marks a leaf whose value is in `threshold`.
class TreeEnsemble {
 public:
  /// XGBoost's JSON or UBJSON model bytes (gbtree, one target, numerical splits). Error(format) if malformed or cyclic,
  /// Error(unsupported) for other boosters, categorical splits or multi-target leaves.
  static TreeEnsemble from_xgboost(std::span<const std::uint8_t> bytes);

  /// x: [rows, features] row major, NaN is missing. Returns [rows], base score included. Error(argument) when the number of
  /// columns differs from features().
  std::vector<float> predict(std::span<const float> x, std::size_t rows, std::size_t columns) const;

  std::size_t features() const noexcept { return features_; }
  std::size_t trees() const noexcept { return roots_.size(); }
  double base_score() const noexcept { return base_score_; }

 private:
  std::size_t features_ = 0;
  double base_score_ = 0.0;
  std::vector<std::int32_t> roots_;
  std::vector<std::int32_t> left_, right_, feature_;
  std::vector<std::uint8_t> default_left_;
  std::vector<float> threshold_;
};

}  // namespace perfpass
