// The quotient graph: nodes with the same features and the same neighbourhood share a class, so that message passing on
// the classes gives the very output of message passing on the nodes.
//
// After k rounds two nodes are in one class exactly when k layers of message passing, whatever their weights, cannot
// tell them apart (colour refinement; Weisfeiler, Leman, 1968). Real graphs repeat their layers, so the classes are
// few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "perfpass/export.hpp"
#include "perfpass/graph.hpp"

namespace perfpass {

struct QuotientOptions {
  int rounds = 3;         // layers of message passing, 0 to 64
  bool producers = true;  // messages from the nodes that an edge comes from
  bool consumers = true;  // messages from the nodes that an edge leads to, kept apart from the others
  bool multiplicity =
      true;  // how often a neighbour of a class occurs matters (sums, means); false: only which (maxima)
};

/// From every class of a round to the classes of the round before whose nodes are its nodes' neighbours; C classes.
struct QuotientEdges {
  std::vector<std::int32_t> offset;     // [C + 1] into the others
  std::vector<std::int32_t> neighbour;  // class of the round before, ascending within a class
  std::vector<std::int32_t> count;      // edges of one node to nodes of that class; 1 without multiplicity
};

/// Classes are numbered in the order of their first node.
struct QuotientRound {
  std::vector<std::int32_t> class_of;      // [N]
  std::vector<NodeId> representative;      // [C] the first node of each class
  std::vector<std::int32_t> multiplicity;  // [C] nodes of each class
  std::vector<std::int32_t> previous;      // [C] its class of the round before; empty in round 0
  QuotientEdges producers, consumers;      // empty in round 0 and for directions that do not count
};

/// Rounds 0 to options.rounds. `features`: `width` bytes per node, equal where all bytes are. Edge e leads from
/// producer[e] to consumer[e]; equal edges count as often as they occur, and a node may be its own neighbour.
/// Error(argument) for sizes that do not fit, nodes out of range and rounds out of range.
PERFPASS_API std::vector<QuotientRound> quotient(std::span<const NodeId> producer, std::span<const NodeId> consumer,
                                                 std::span<const std::uint8_t> features, std::size_t nodes,
                                                 const QuotientOptions& options = {});

}  // namespace perfpass
