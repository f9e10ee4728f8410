// Shared by the binding files: one register function per topic, and NumPy views without copies.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "perfpass/dtype.hpp"

namespace perfpass::bindings {

namespace nb = nanobind;

void register_graph(nb::module_& m);
void register_onnx(nb::module_& m);
void register_cost(nb::module_& m);
void register_features(nb::module_& m);
void register_memory(nb::module_& m);
void register_allocators(nb::module_& m);
void register_trees(nb::module_& m);

/// The floating type of that name, undefined for the empty one. Error(argument) for any other.
DType floating_dtype(std::string_view name);

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
