#include "bindings.hpp"

namespace perfpass::bindings {

void register_trees(nb::module_&) {}

}  // namespace perfpass::bindings
