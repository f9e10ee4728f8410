#include <nanobind/stl/string_view.h>

#include "bindings.hpp"
#include "perfpass/allocators.hpp"

namespace perfpass::bindings {
namespace {

template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::span<const T> span(const Column<T>& column) {
  return {column.data(), column.size()};
}

MemoryEventView events(const Column<std::int32_t>& block, const Column<std::int64_t>& bytes,
                       const Column<std::uint8_t>& use) {
  return {span(block), span(bytes), span(use)};
}

}  // namespace

void register_allocators(nb::module_& m) {
  nb::class_<AllocatorReport>(m, "AllocatorReport")
      .def_ro("peak_requested", &AllocatorReport::peak_requested)
      .def_ro("peak_allocated", &AllocatorReport::peak_allocated)
      .def_ro("peak_reserved", &AllocatorReport::peak_reserved)
      .def_ro("reserved", &AllocatorReport::reserved)
      .def_ro("segments", &AllocatorReport::segments)
      .def_ro("releases", &AllocatorReport::releases)
      .def_ro("failed_event", &AllocatorReport::failed_event)
      .def_prop_ro("peak_by_use", [](nb::handle self) {
        const auto& values = nb::cast<const AllocatorReport&>(self).peak_by_use;
        return view(values.data(), {values.size()}, self);
      });
  m.attr("UNLIMITED_BYTES") = kUnlimited;
  m.def(
      "simulate_caching",
      [](Column<std::int32_t> block, Column<std::int64_t> bytes, Column<std::uint8_t> use, std::int64_t limit_bytes,
         std::int64_t max_split_bytes, std::int64_t roundup_power2_divisions, double garbage_collection_threshold,
         bool expandable_segments) {
        return simulate_caching(events(block, bytes, use), {limit_bytes, max_split_bytes, roundup_power2_divisions,
                                                            garbage_collection_threshold, expandable_segments});
      },
      nb::arg("block"), nb::arg("bytes"), nb::arg("use"), nb::arg("limit_bytes") = kUnlimited,
      nb::arg("max_split_bytes") = kUnlimited, nb::arg("roundup_power2_divisions") = 0,
      nb::arg("garbage_collection_threshold") = 0.0, nb::arg("expandable_segments") = false);
  m.def(
      "simulate_arena",
      [](Column<std::int32_t> block, Column<std::int64_t> bytes, Column<std::uint8_t> use,
         std::int64_t initial_chunk_bytes, std::int64_t max_dead_bytes, std::int64_t limit_bytes, bool power_of_two) {
        return simulate_arena(events(block, bytes, use),
                              {initial_chunk_bytes, max_dead_bytes, limit_bytes, power_of_two});
      },
      nb::arg("block"), nb::arg("bytes"), nb::arg("use"), nb::arg("initial_chunk_bytes"), nb::arg("max_dead_bytes"),
      nb::arg("limit_bytes"), nb::arg("power_of_two"));
  m.def("simulate_pattern", [](Column<std::int32_t> block, Column<std::int64_t> bytes, Column<std::uint8_t> use) {
    return simulate_pattern(events(block, bytes, use));
  });
  m.def("simulate_storage_sharing",
        [](Column<std::int32_t> block, Column<std::int64_t> bytes, Column<std::uint8_t> use) {
          std::vector<std::int32_t> storage;
          const AllocatorReport report = simulate_storage_sharing(events(block, bytes, use), &storage);
          return nb::make_tuple(report, own(std::move(storage)));
        });
  m.def(
      "memory_events",
      [](const OpGraph& graph, std::string_view float_as) {
        MemoryEvents made = memory_events(graph, floating_dtype(float_as));
        return nb::make_tuple(own(std::move(made.block)), own(std::move(made.bytes)), own(std::move(made.use)));
      },
      nb::arg("graph"), nb::arg("float_as") = "");
}

}  // namespace perfpass::bindings
