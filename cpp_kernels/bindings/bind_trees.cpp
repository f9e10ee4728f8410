#include "bindings.hpp"
#include "perfpass/neighbours.hpp"
#include "perfpass/trees.hpp"

namespace perfpass::bindings {
namespace {

template <class T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> span(const Column<T>& column) {
  return {column.data(), column.size()};
}

}  // namespace

void register_trees(nb::module_& m) {
  using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
  nb::class_<TreeEnsemble>(m, "TreeEnsemble", "Gradient-boosted regression trees read from an XGBoost model.")
      .def_static(
          "from_xgboost",
          [](nb::bytes model) {
            return TreeEnsemble::from_xgboost({reinterpret_cast<const std::uint8_t*>(model.data()), model.size()});
          },
          nb::arg("model"))
      .def_static(
          "from_packed",
          [](double base_score, float leaf_scale, Column<std::int32_t> tree_nodes, Column<std::uint8_t> is_leaf,
             Column<std::uint16_t> feature, Column<std::uint16_t> rank, Column<std::uint8_t> default_left,
             Column<float> thresholds, Column<std::int32_t> threshold_counts, Column<std::uint16_t> leaf) {
            return TreeEnsemble::from_packed({base_score, leaf_scale, span(tree_nodes), span(is_leaf), span(feature),
                                              span(rank), span(default_left), span(thresholds), span(threshold_counts),
                                              span(leaf)});
          },
          nb::arg("base_score"), nb::arg("leaf_scale"), nb::arg("tree_nodes"), nb::arg("is_leaf"), nb::arg("feature"),
          nb::arg("rank"), nb::arg("default_left"), nb::arg("thresholds"), nb::arg("threshold_counts"), nb::arg("leaf"),
          "The columns of perfpass.predictors.learned.packed_trees; leaf: the bits of 16-bit floats.")
      .def(
          "predict",
          [](const TreeEnsemble& self, Rows x, unsigned threads) {
            std::vector<float> found;
            {
              const nb::gil_scoped_release released;
              found = self.predict({x.data(), x.size()}, x.shape(0), x.shape(1), threads);
            }
            return own(std::move(found));
          },
          nb::arg("x"), nb::arg("threads") = 1, "x: [rows, features] float32, NaN is missing. Returns [rows] float32.")
      .def_prop_ro("features", &TreeEnsemble::features)
      .def_prop_ro("trees", &TreeEnsemble::trees)
      .def_prop_ro("base_score", &TreeEnsemble::base_score);
  nb::class_<Neighbours>(m, "Neighbours", "Points among which nearest ones are looked for.")
      .def(
          "__init__",
          [](Neighbours* self, Rows points) {
            new (self) Neighbours({points.data(), points.size()}, points.shape(0), points.shape(1));
          },
          nb::arg("points"))
      .def(
          "distances",
          [](const Neighbours& self, Rows queries, unsigned threads) {
            std::vector<double> found;
            {
              const nb::gil_scoped_release released;
              found = self.distances({queries.data(), queries.size()}, queries.shape(0), queries.shape(1), threads);
            }
            return own(std::move(found));
          },
          nb::arg("queries"), nb::arg("threads") = 1,
          "queries: [rows, columns] float32. Returns [rows] float64, Euclidean.");
}

}  // namespace perfpass::bindings
