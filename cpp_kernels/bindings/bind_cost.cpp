#include "bindings.hpp"

namespace perfpass::bindings {

void register_cost(nb::module_&) {}

}  // namespace perfpass::bindings
