#include "bindings.hpp"
#include "perfpass/quotient.hpp"

namespace perfpass::bindings {
namespace {

nb::tuple edges(QuotientEdges&& all) {
  return nb::make_tuple(own(std::move(all.offset)), own(std::move(all.neighbour)), own(std::move(all.count)));
}

}  // namespace

void register_quotient(nb::module_& m) {
  using Nodes = nb::ndarray<const NodeId, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
  using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
  m.def(
      "quotient",
      [](Nodes producer, Nodes consumer, Bytes features, int rounds, bool producers, bool consumers,
         bool multiplicity) {
        std::vector<QuotientRound> found;
        {
          const nb::gil_scoped_release released;
          found = quotient({producer.data(), producer.size()}, {consumer.data(), consumer.size()},
                           {features.data(), features.size()}, features.shape(0),
                           {rounds, producers, consumers, multiplicity});
        }
        nb::list result;
        for (QuotientRound& round : found) {
          result.append(nb::make_tuple(own(std::move(round.class_of)), own(std::move(round.representative)),
                                       own(std::move(round.multiplicity)), own(std::move(round.previous)),
                                       edges(std::move(round.producers)), edges(std::move(round.consumers))));
        }
        return result;
      },
      nb::arg("producer"), nb::arg("consumer"), nb::arg("features"), nb::arg("rounds"), nb::arg("producers"),
      nb::arg("consumers"), nb::arg("multiplicity"),
      "features: [nodes, bytes] uint8. Returns a tuple per round: class_of, representative, multiplicity, previous, "
      "and "
      "(offset, neighbour, count) towards producers and consumers.");
}

}  // namespace perfpass::bindings
