#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <deque>

#include "bindings.hpp"
#include "perfpass/counting.hpp"

namespace perfpass::bindings {
namespace {

using Dims = std::map<std::string, std::int64_t>;
using Shapes = std::map<std::string, std::vector<std::int64_t>>;

/// What items point to, for as long as they are counted.
struct Borrowed {
  std::vector<CountingItem> items;
  std::deque<Buffer> buffers;
};

/// An item is (graph, or path as bytes, or (buffer,); batch; dims; input_shapes).
void borrow(const nb::tuple& given, Borrowed& all) {
  CountingItem item;
  const nb::handle source = given[0];
  if (nb::isinstance<OpGraph>(source)) {
    item.source = nb::cast<const OpGraph*>(source);
  } else if (nb::isinstance<nb::bytes>(source)) {
    const auto path = nb::cast<nb::bytes>(source);
    item.source = std::string(path.c_str(), path.size());  // as the file system has it, not always UTF-8
  } else {
    item.source = all.buffers.emplace_back(nb::cast<nb::tuple>(source)[0]).bytes();
  }
  item.batch = nb::cast<std::int64_t>(given[1]);
  item.options.batch = item.batch;
  item.options.dims = nb::cast<Dims>(given[2]);
  item.options.input_shapes = nb::cast<Shapes>(given[3]);
  all.items.push_back(std::move(item));
}

nb::dict columns(CountedGraphs&& all) {
  nb::dict found;
  found["op"] = own(std::move(all.table.op));
  found["op_class"] = own(std::move(all.table.op_class));
  found["dtype"] = own(std::move(all.table.dtype));
  found["view"] = own(std::move(all.table.view));
  found["count"] = own(std::move(all.table.count));
  found["macs"] = own(std::move(all.table.macs));
  found["flops"] = own(std::move(all.table.flops));
  found["bytes_read"] = own(std::move(all.table.bytes_read));
  found["bytes_written"] = own(std::move(all.table.bytes_written));
  found["weight_bytes"] = own(std::move(all.table.weight_bytes));
  found["input_elements"] = own(std::move(all.table.input_elements));
  found["output_elements"] = own(std::move(all.table.output_elements));
  found["b"] = own(std::move(all.table.b));
  found["m"] = own(std::move(all.table.m));
  found["n"] = own(std::move(all.table.n));
  found["k"] = own(std::move(all.table.k));
  found["kernel_area"] = own(std::move(all.table.kernel_area));
  found["stride"] = own(std::move(all.table.stride));
  found["groups"] = own(std::move(all.table.groups));
  found["constant"] = own(std::move(all.table.constant));
  found["first_node"] = own(std::move(all.table.first_node));
  return found;
}

nb::dict facts(CountedGraphs&& all) {
  nb::dict found;
  found["offset"] = own(std::move(all.offset));
  found["batch"] = own(std::move(all.batch));
  found["weight_bytes"] = own(std::move(all.weight_bytes));
  found["activation_bytes"] = own(std::move(all.activation_bytes));
  found["reserved_bytes"] = own(std::move(all.reserved_bytes));
  found["backward_bytes"] = own(std::move(all.backward_bytes));
  found["gradient_bytes"] = own(std::move(all.gradient_bytes));
  found["first_input_elements"] = own(std::move(all.first_input_elements));
  found["input_elements"] = own(std::move(all.input_elements));
  found["nodes"] = own(std::move(all.nodes));
  found["unknown"] = own(std::move(all.unknown));
  found["counted_once"] = own(std::move(all.counted_once));
  found["assumed"] = own(std::move(all.assumed));
  return found;
}

}  // namespace

void register_counting(nb::module_& m) {
  m.def(
      "reserved_bytes",
      [](const OpGraph& graph, std::string_view allocator, int weight_copies, std::string_view float_as,
         std::int64_t planned_weight_bytes) {
        return reserved_bytes(graph, allocator_from_name(allocator), weight_copies, floating_dtype(float_as),
                              planned_weight_bytes);
      },
      nb::arg("graph"), nb::arg("allocator"), nb::arg("weight_copies"), nb::arg("float_as"),
      nb::arg("planned_weight_bytes"));
  m.def(
      "count_graphs",
      [](const nb::list& given, std::string_view float_as, bool strided, bool folds, bool fuses, bool narrows,
         std::int64_t alignment_bytes, std::string_view allocator, int weight_copies, bool training, bool autocast,
         unsigned threads) {
        const CountingOptions options{.float_as = floating_dtype(float_as),
                                      .strided = strided,
                                      .folds = folds,
                                      .fuses = fuses,
                                      .narrows = narrows,
                                      .alignment_bytes = alignment_bytes,
                                      .allocator = allocator_from_name(allocator),
                                      .weight_copies = weight_copies,
                                      .training = training,
                                      .autocast = autocast};
        Borrowed borrowed;
        for (const nb::handle item : given) borrow(nb::cast<nb::tuple>(item), borrowed);
        CountedGraphs all;
        {
          const nb::gil_scoped_release released;
          all = count_graphs(borrowed.items, options, threads);
        }
        nb::list problems;
        for (const auto& problem : all.problems) {
          problems.append(nb::make_tuple(problem.item, python_class(problem.code), problem.message));
        }
        nb::dict table = columns(std::move(all));
        return nb::make_tuple(table, facts(std::move(all)), problems);
      },
      nb::arg("items"), nb::arg("float_as"), nb::arg("strided"), nb::arg("folds"), nb::arg("fuses"), nb::arg("narrows"),
      nb::arg("alignment_bytes"), nb::arg("allocator"), nb::arg("weight_copies"), nb::arg("training"),
      nb::arg("autocast"), nb::arg("threads"),
      "Items are tuples (graph, or path as bytes, or (buffer,); batch or 0; dims; input shapes). Returns the columns "
      "of "
      "all operator tables as run, facts per graph, and (item, error class, message) of those that cannot be counted.");
}

}  // namespace perfpass::bindings
