#include "bindings.hpp"
#include "perfpass/trees.hpp"

namespace perfpass::bindings {

void register_trees(nb::module_& m) {
  using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
  nb::class_<TreeEnsemble>(m, "TreeEnsemble", "Gradient-boosted regression trees read from an XGBoost model.")
      .def_static(
          "from_xgboost",
          [](nb::bytes model) {
            return TreeEnsemble::from_xgboost({reinterpret_cast<const std::uint8_t*>(model.data()), model.size()});
          },
          nb::arg("model"))
      .def(
          "predict",
          [](const TreeEnsemble& self, Rows x) {
            return own(self.predict({x.data(), x.size()}, x.shape(0), x.shape(1)));
          },
          nb::arg("x"), "x: [rows, features] float32, NaN is missing. Returns [rows] float32.")
      .def_prop_ro("features", &TreeEnsemble::features)
      .def_prop_ro("trees", &TreeEnsemble::trees)
      .def_prop_ro("base_score", &TreeEnsemble::base_score);
}

}  // namespace perfpass::bindings
