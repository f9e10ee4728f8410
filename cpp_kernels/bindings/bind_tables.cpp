#include <algorithm>

#include "bindings.hpp"
#include "perfpass/batches.hpp"
#include "perfpass/tiles.hpp"

namespace perfpass::bindings {
namespace {

using Column = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Numbers = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> span(const Numbers<T>& column) {
  return {column.data(), column.size()};
}

template <class T>
std::vector<double> copied(const Column& column) {
  const T* first = static_cast<const T*>(column.data());
  return {first, first + column.size()};
}

/// A column of any type as numbers.
std::vector<double> numbers(const nb::dict& columns, const char* name) {
  const auto column = nb::cast<Column>(columns[name]);
  const nb::dlpack::dtype type = column.dtype();
  if (type == nb::dtype<std::int64_t>()) return copied<std::int64_t>(column);
  if (type == nb::dtype<double>()) return copied<double>(column);
  if (type == nb::dtype<std::uint16_t>()) return copied<std::uint16_t>(column);
  if (type == nb::dtype<std::uint8_t>()) return copied<std::uint8_t>(column);
  if (type == nb::dtype<std::int32_t>()) return copied<std::int32_t>(column);
  if (type == nb::dtype<float>()) return copied<float>(column);
  throw Error(ErrorCode::argument, std::string("tables: column ") + name + " is of a type that is not read");
}

/// `at_batches` of the columns of perfpass.graph.table.OperatorColumns, by name: all of them, and the offsets.
nb::tuple scaled(const nb::dict& columns, Numbers<std::int64_t> offset, Numbers<double> batch, Table wanted) {
  const auto of = [&](const char* name) { return numbers(columns, name); };
  const auto op = of("op"), op_class = of("op_class"), constant = of("constant"), macs = of("macs"),
             flops = of("flops"), bytes_read = of("bytes_read"), bytes_written = of("bytes_written"),
             weights = of("weight_bytes"), inputs = of("input_elements"), outputs = of("output_elements"), b = of("b"),
             m = of("m"), n = of("n"), k = of("k");
  ScaledColumns all;
  {
    const nb::gil_scoped_release released;
    all = at_batches({span(offset), span(batch), op, op_class, constant, macs, flops, bytes_read, bytes_written,
                      weights, inputs, outputs, b, m, n, k},
                     {wanted.data(), wanted.size()});
  }
  nb::dict found;
  found["macs"] = own(std::move(all.macs));
  found["flops"] = own(std::move(all.flops));
  found["bytes_read"] = own(std::move(all.bytes_read));
  found["bytes_written"] = own(std::move(all.bytes_written));
  found["input_elements"] = own(std::move(all.input_elements));
  found["output_elements"] = own(std::move(all.output_elements));
  found["b"] = own(std::move(all.b));
  found["m"] = own(std::move(all.m));
  for (const auto& [name, values] : columns) {
    if (found.contains(name)) continue;
    const auto column = nb::cast<Column>(values);
    const std::size_t size = column.itemsize();
    auto* heap = new std::vector<std::uint8_t>(repeated(
        {static_cast<const std::uint8_t*>(column.data()), column.size() * size}, size, span(offset), wanted.shape(1)));
    const nb::capsule owner(heap, [](void* p) noexcept { delete static_cast<std::vector<std::uint8_t>*>(p); });
    found[name] = nb::cast(nb::ndarray<nb::numpy>(heap->data(), {heap->size() / size}, owner, {}, column.dtype()));
  }
  return nb::make_tuple(found, own(std::move(all.offset)));
}

std::vector<double> tiled(const Tiling& tiling, Numbers<double> b, Numbers<double> m, Numbers<double> n,
                          Numbers<double> k, Numbers<bool> convolution, Numbers<bool> on_matrix,
                          Numbers<bool> product) {
  const std::size_t rows = b.size();
  for (const std::size_t size : {m.size(), n.size(), k.size(), convolution.size(), on_matrix.size(), product.size()}) {
    if (size != rows) throw Error(ErrorCode::argument, "whole_tiles: columns of unequal lengths");
  }
  std::vector<double> found(rows, 1.0);
  const nb::gil_scoped_release released;
  for (std::size_t r = 0; r < rows; ++r) {
    if (!product.data()[r]) continue;
    found[r] = whole_tiles(tiling, b.data()[r], m.data()[r], n.data()[r], k.data()[r], convolution.data()[r],
                           on_matrix.data()[r]);
  }
  return found;
}

}  // namespace

void register_tables(nb::module_& m) {
  m.def("at_batches", scaled, nb::arg("columns"), nb::arg("offset"), nb::arg("batch"), nb::arg("wanted"),
        "The columns of N operator tables, by name, at the batch sizes wanted [N, K], and their offsets [N * K + 1]; "
        "batch [N]: what they were counted at.");
  m.def(
      "weighted_sums",
      [](Table values, Numbers<double> weights, Numbers<std::int64_t> key, std::size_t graphs, std::size_t groups) {
        std::vector<double> found;
        {
          const nb::gil_scoped_release released;
          found =
              weighted_sums({values.data(), values.size()}, span(weights), span(key), values.shape(0), graphs, groups);
        }
        return own(std::move(found), {graphs, values.shape(0), groups});
      },
      nb::arg("values"), nb::arg("weights"), nb::arg("key"), nb::arg("graphs"), nb::arg("groups"),
      "[graphs, S, groups] sums of values [S, R] times weights [R]; key [R]: graph * groups + group.");
  nb::class_<Tiling>(m, "Tiling", "Tiles and splits that a library of matrix products chooses from.")
      .def(
          "__init__",
          [](Tiling* self, Table tiles, Numbers<double> splits, double convolution_splits, double prologue,
             double sms) {
            if (tiles.shape(1) != 4 || tiles.shape(0) == 0 || splits.size() == 0) {
              throw Error(ErrorCode::argument, "Tiling: tiles are rows of four numbers, with at least one split");
            }
            new (self) Tiling{{}, {splits.data(), splits.data() + splits.size()}, convolution_splits, prologue, sms};
            for (std::size_t i = 0; i < tiles.shape(0); ++i) {
              self->tiles.push_back({tiles(i, 0), tiles(i, 1), tiles(i, 2), tiles(i, 3)});
            }
          },
          nb::arg("tiles"), nb::arg("splits"), nb::arg("convolution_splits"), nb::arg("prologue"), nb::arg("sms"),
          "tiles: [tiles, 4] rows, columns, and the shares of the rate that vector and matrix units reach.")
      .def(
          "whole_tiles",
          [](const Tiling& self, Numbers<double> b, Numbers<double> m, Numbers<double> n, Numbers<double> k,
             Numbers<bool> convolution, Numbers<bool> on_matrix,
             Numbers<bool> product) { return own(tiled(self, b, m, n, k, convolution, on_matrix, product)); },
          nb::arg("b"), nb::arg("m"), nb::arg("n"), nb::arg("k"), nb::arg("convolution"), nb::arg("on_matrix"),
          nb::arg("product"),
          "[R] FLOPs in whole waves of tiles over FLOPs, of b products [m, k] x [k, n]; 1 where product is not.");
}

}  // namespace perfpass::bindings
