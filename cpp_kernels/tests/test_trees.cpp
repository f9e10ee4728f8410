// Tree ensembles without Python: a hand-made model, and damaged copies of it under the sanitizers.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "check.hpp"
#include "perfpass/trees.hpp"

namespace {

using perfpass::Error;
using perfpass::TreeEnsemble;

// One split on feature 1 at 0.5: 10 left (missing too), 20 right; base score 1.
const std::string kStump = R"({"learner": {"gradient_booster": {"model": {"trees": [{
  "left_children": [1, -1, -1], "right_children": [2, -1, -1], "split_indices": [1, 0, 0],
  "split_conditions": [5E-1, 1E1, 2E1], "default_left": [1, 0, 0], "split_type": [0, 0, 0],
  "tree_param": {"size_leaf_vector": "1"}}]}, "name": "gbtree"},
  "learner_model_param": {"base_score": "[1E0]", "num_class": "0", "num_feature": "2", "num_target": "1"},
  "objective": {"name": "reg:squarederror"}}, "version": [3, 2, 0]})";

TreeEnsemble load(const std::string& text) {
  return TreeEnsemble::from_xgboost({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

}  // namespace

TEST(trees_stump_sends_values_to_the_right_leaf) {
  const TreeEnsemble ensemble = load(kStump);
  const float missing = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {0, 0.25F, 0, 0.5F, 0, missing};
  const std::vector<float> y = ensemble.predict(x, 3, 2);
  CHECK(y[0] == 11.0F);
  CHECK(y[1] == 21.0F);
  CHECK(y[2] == 11.0F);
}

TEST(trees_every_truncation_is_an_error) {
  for (std::size_t size = 0; size < kStump.size(); ++size) {
    bool refused = false;
    try {
      load(kStump.substr(0, size));
    } catch (const Error&) {
      refused = true;
    }
    CHECK(refused);
  }
}

TEST(trees_no_single_byte_change_crashes) {
  for (std::size_t at = 0; at < kStump.size(); ++at) {
    for (const char value : {'\0', '9', '-', '[', '{', '"', '\\', '\xff'}) {
      std::string damaged = kStump;
      damaged[at] = value;
      try {
        const TreeEnsemble ensemble = load(damaged);
        const std::vector<float> x(ensemble.features(), 0.0F);
        ensemble.predict(x, 1, x.size());
      } catch (const Error&) {
      }
    }
  }
}
