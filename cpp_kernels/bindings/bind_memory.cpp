#include "bindings.hpp"

namespace perfpass::bindings {

void register_memory(nb::module_&) {}

}  // namespace perfpass::bindings
