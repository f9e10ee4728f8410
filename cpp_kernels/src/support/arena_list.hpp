// Lists of a known size in an arena.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <span>
#include <string_view>

namespace perfpass {

/// `size` elements as their type makes them without arguments. Nothing is destroyed: for types without a destructor.
template <typename T>
std::span<T> arena_list(std::pmr::memory_resource& arena, std::size_t size) {
  if (size == 0) return {};
  T* first = static_cast<T*>(arena.allocate(size * sizeof(T), alignof(T)));
  std::uninitialized_value_construct_n(first, size);
  return {first, size};
}

template <typename T>
std::span<const T> arena_copy(std::pmr::memory_resource& arena, std::span<const T> list) {
  const std::span<T> copy = arena_list<T>(arena, list.size());
  std::copy(list.begin(), list.end(), copy.begin());
  return copy;
}

inline std::string_view arena_text(std::pmr::memory_resource& arena, std::string_view text) {
  const std::span<const char> copy = arena_copy(arena, std::span(text.data(), text.size()));
  return {copy.data(), copy.size()};
}

}  // namespace perfpass
