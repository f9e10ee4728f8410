#include "bindings.hpp"

namespace perfpass::bindings {

void register_onnx(nb::module_&) {}

}  // namespace perfpass::bindings
