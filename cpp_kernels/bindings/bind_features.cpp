#include "bindings.hpp"

namespace perfpass::bindings {

void register_features(nb::module_&) {}

}  // namespace perfpass::bindings
