// Shared by the binding files: one register function per topic, and NumPy views without copies.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "perfpass/dtype.hpp"
#include "perfpass/error.hpp"
#include "perfpass/graph.hpp"

namespace perfpass::bindings {

namespace nb = nanobind;

void register_graph(nb::module_& m);
void register_onnx(nb::module_& m);
void register_engine(nb::module_& m);
void register_cost(nb::module_& m);
void register_features(nb::module_& m);
void register_memory(nb::module_& m);
void register_allocators(nb::module_& m);
void register_plain_json(nb::module_& m);
void register_sha256(nb::module_& m);
void register_tables(nb::module_& m);
void register_trees(nb::module_& m);
void register_counting(nb::module_& m);
void register_quotient(nb::module_& m);
void register_stablehlo(nb::module_& m);
void register_message(nb::module_& m);
void register_graph_def(nb::module_& m);
void register_openvino(nb::module_& m);

/// The class of perfpass.errors that an error of the core becomes.
const char* python_class(ErrorCode code);

/// Error(argument) for a name that is no role.
TensorRole role_from_name(std::string_view name);

/// The floating type of that name, undefined for the empty one. Error(argument) for any other.
DType floating_dtype(std::string_view name);

/// Attribute columns by name, the others unset. Error(argument) for a name that is none.
NodeAttributes attributes_from_dict(const nb::dict& values);

/// (macs, flops, bytes read, bytes written) of one execution; kUnstated where nothing is stated.
StatedCosts costs_from_tuple(const nb::tuple& values);

/// Any object with a contiguous buffer, borrowed for a call.
class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::span<const std::uint8_t> bytes() const noexcept {
    return {static_cast<const std::uint8_t*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

/// A read-only NumPy array over `data`, kept alive by `owner`.
template <typename T>
nb::object view(const T* data, std::initializer_list<std::size_t> shape, nb::handle owner) {
  return nb::cast(nb::ndarray<nb::numpy, const T>(data, shape, owner));
}

/// A NumPy array that owns the vector moved into it.
template <typename T>
nb::object own(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
  auto* heap = new std::vector<T>(std::move(values));
  nb::capsule owner(heap, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(heap->data(), shape, owner));
}

template <typename T>
nb::object own(std::vector<T>&& values) {
  const std::size_t n = values.size();
  return own(std::move(values), {n});
}

}  // namespace perfpass::bindings
