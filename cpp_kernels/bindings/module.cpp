#include <cstdlib>

#include "bindings.hpp"

namespace nb = nanobind;

namespace {

/// glibc gives arrays of more than 128 KiB pages of their own and hands free memory at the heap's top back to the
/// kernel, until an array is freed that is larger: arrays up to its size are then made from memory that was used
/// before. The largest that counts so, of which no page is written, is freed here at once. A program comes to this
/// state by itself with the first such array that it frees; columns of ten thousand nodes are smaller, and would be
/// cleared by the kernel for every graph anew.
void keep_freed_memory() {
  constexpr std::size_t kLargest = 31 << 20;
  void* volatile array = std::malloc(kLargest);  // volatile: the pair must not be optimized away
  std::free(array);
}

}  // namespace

// perfpass.errors defines the Python classes; the core's codes map to them by name.
const char* perfpass::bindings::python_class(ErrorCode code) {
  switch (code) {
    case ErrorCode::io:
      return "FileError";
    case ErrorCode::format:
      return "FormatError";
    case ErrorCode::limit:
      return "LimitError";
    case ErrorCode::graph:
      return "GraphError";
    case ErrorCode::shape:
      return "ShapeError";
    case ErrorCode::argument:
      return "ArgumentError";
    case ErrorCode::unsupported:
      return "UnsupportedError";
  }
  return "PerfPassError";
}

NB_MODULE(_core, m) {
  m.doc() = "The compiled core of perfpass; import perfpass instead.";
  keep_freed_memory();
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const perfpass::Error& e) {
      nb::object cls = nb::module_::import_("perfpass.errors").attr(perfpass::bindings::python_class(e.code()));
      PyErr_SetString(cls.ptr(), e.what());
    }
  });
  perfpass::bindings::register_graph(m);
  perfpass::bindings::register_onnx(m);
  perfpass::bindings::register_engine(m);
  perfpass::bindings::register_cost(m);
  perfpass::bindings::register_features(m);
  perfpass::bindings::register_memory(m);
  perfpass::bindings::register_allocators(m);
  perfpass::bindings::register_plain_json(m);
  perfpass::bindings::register_sha256(m);
  perfpass::bindings::register_tables(m);
  perfpass::bindings::register_trees(m);
  perfpass::bindings::register_counting(m);
  perfpass::bindings::register_quotient(m);
  perfpass::bindings::register_stablehlo(m);
  perfpass::bindings::register_message(m);
  perfpass::bindings::register_graph_def(m);
  perfpass::bindings::register_openvino(m);
}
