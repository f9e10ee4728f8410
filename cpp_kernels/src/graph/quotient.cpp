#include "perfpass/quotient.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>

#include "perfpass/error.hpp"

namespace perfpass {
namespace {

constexpr int kMaxRounds = 64;

/// The neighbours of every node, [E], by node.
struct Adjacency {
  std::vector<std::int32_t> offset;
  std::vector<NodeId> node;

  Adjacency(std::span<const NodeId> of, std::span<const NodeId> to, std::size_t nodes) : offset(nodes + 1, 0) {
    for (const NodeId n : of) ++offset[n + 1];
    std::partial_sum(offset.begin(), offset.end(), offset.begin());
    node.resize(of.size());
    std::vector<std::int32_t> next(offset.begin(), offset.end() - 1);
    for (std::size_t e = 0; e < of.size(); ++e) node[next[of[e]]++] = to[e];
  }
  std::span<const NodeId> operator[](std::size_t n) const noexcept {
    return std::span(node).subspan(offset[n], offset[n + 1] - offset[n]);
  }
};

std::uint64_t hash(std::span<const std::uint32_t> words) noexcept {
  std::uint64_t h = 0x9e3779b97f4a7c15ULL ^ words.size();  // 2^64 / golden ratio: an odd multiplier
  for (const std::uint32_t word : words) h = (std::rotl(h, 23) ^ word) * 0x9e3779b97f4a7c15ULL;
  return h ^ (h >> 32);
}

/// Gives equal signatures the same number, in the order of first appearance. Signatures are compared whole, so no
/// collision of hashes joins what differs.
class Numbering {
 public:
  explicit Numbering(std::size_t nodes) : slots_(std::bit_ceil(2 * nodes + 1), kNone), begin_{0} {}

  /// The number of the signature, and whether it is new.
  std::pair<std::int32_t, bool> number(std::span<const std::uint32_t> signature) {
    std::size_t slot = hash(signature) & (slots_.size() - 1);
    for (; slots_[slot] != kNone; slot = (slot + 1) & (slots_.size() - 1)) {
      const auto known = at(slots_[slot]);
      if (std::equal(known.begin(), known.end(), signature.begin(), signature.end())) return {slots_[slot], false};
    }
    slots_[slot] = static_cast<std::int32_t>(begin_.size() - 1);
    words_.insert(words_.end(), signature.begin(), signature.end());
    begin_.push_back(words_.size());
    return {slots_[slot], true};
  }

 private:
  std::span<const std::uint32_t> at(std::int32_t number) const noexcept {
    return std::span(words_).subspan(begin_[number], begin_[number + 1] - begin_[number]);
  }

  std::vector<std::int32_t> slots_;  // open addressing
  std::vector<std::uint32_t> words_;
  std::vector<std::size_t> begin_;  // [numbers + 1] into words_
};

void place(QuotientRound& round, NodeId node, std::pair<std::int32_t, bool> found) {
  round.class_of[node] = found.first;
  if (found.second) {
    round.representative.push_back(node);
    round.multiplicity.push_back(0);
  }
  ++round.multiplicity[found.first];
}

QuotientRound by_features(std::span<const std::uint8_t> features, std::size_t nodes) {
  QuotientRound round;
  round.class_of.resize(nodes);
  const std::size_t width = nodes == 0 ? 0 : features.size() / nodes;
  std::vector<std::uint32_t> signature((width + 3) / 4, 0);
  Numbering numbering(nodes);
  for (std::size_t n = 0; n < nodes; ++n) {
    if (width > 0) std::memcpy(signature.data(), features.data() + n * width, width);
    place(round, static_cast<NodeId>(n), numbering.number(signature));
  }
  return round;
}

/// Appends the neighbours' classes with their counts, ascending, after their number.
void append_neighbours(std::vector<std::uint32_t>& signature, std::span<const NodeId> neighbours,
                       const std::vector<std::int32_t>& class_of, bool multiplicity,
                       std::vector<std::int32_t>& scratch) {
  scratch.clear();
  for (const NodeId n : neighbours) scratch.push_back(class_of[n]);
  std::sort(scratch.begin(), scratch.end());
  const std::size_t place_of_size = signature.size();
  signature.push_back(0);
  for (std::size_t i = 0; i < scratch.size();) {
    std::size_t end = i;
    while (end < scratch.size() && scratch[end] == scratch[i]) ++end;
    signature.push_back(static_cast<std::uint32_t>(scratch[i]));
    signature.push_back(multiplicity ? static_cast<std::uint32_t>(end - i) : 1);
    ++signature[place_of_size];
    i = end;
  }
}

/// Reads one direction's neighbours back from a signature, and returns what follows it.
std::span<const std::uint32_t> take_edges(std::span<const std::uint32_t> rest, QuotientEdges& edges) {
  const std::size_t size = rest[0];
  for (std::size_t i = 0; i < size; ++i) {
    edges.neighbour.push_back(static_cast<std::int32_t>(rest[1 + 2 * i]));
    edges.count.push_back(static_cast<std::int32_t>(rest[2 + 2 * i]));
  }
  edges.offset.push_back(static_cast<std::int32_t>(edges.neighbour.size()));
  return rest.subspan(1 + 2 * size);
}

QuotientRound refined(const QuotientRound& before, const Adjacency* producers, const Adjacency* consumers,
                      bool multiplicity) {
  QuotientRound round;
  const std::size_t nodes = before.class_of.size();
  round.class_of.resize(nodes);
  if (producers != nullptr) round.producers.offset.push_back(0);
  if (consumers != nullptr) round.consumers.offset.push_back(0);
  Numbering numbering(nodes);
  std::vector<std::uint32_t> signature;
  std::vector<std::int32_t> scratch;
  for (std::size_t n = 0; n < nodes; ++n) {
    signature.assign(1, static_cast<std::uint32_t>(before.class_of[n]));
    for (const Adjacency* adjacency : {producers, consumers}) {
      if (adjacency != nullptr) {
        append_neighbours(signature, (*adjacency)[n], before.class_of, multiplicity, scratch);
      }
    }
    const auto found = numbering.number(signature);
    place(round, static_cast<NodeId>(n), found);
    if (!found.second) continue;
    round.previous.push_back(before.class_of[n]);
    std::span<const std::uint32_t> rest = std::span(signature).subspan(1);
    if (producers != nullptr) rest = take_edges(rest, round.producers);
    if (consumers != nullptr) take_edges(rest, round.consumers);
  }
  return round;
}

void check(std::span<const NodeId> ends, std::size_t nodes) {
  for (const NodeId n : ends) {
    if (n < 0 || static_cast<std::size_t>(n) >= nodes) {
      throw Error(ErrorCode::argument, "quotient: an edge has node " + std::to_string(n) + "; allowed are 0 to " +
                                           std::to_string(nodes) + " exclusive");
    }
  }
}

}  // namespace

std::vector<QuotientRound> quotient(std::span<const NodeId> producer, std::span<const NodeId> consumer,
                                    std::span<const std::uint8_t> features, std::size_t nodes,
                                    const QuotientOptions& options) {
  if (producer.size() != consumer.size()) {
    throw Error(ErrorCode::argument, "quotient: " + std::to_string(producer.size()) + " producers and " +
                                         std::to_string(consumer.size()) + " consumers; an edge has one of each");
  }
  if (nodes > kMaxNodes || (nodes == 0 ? !features.empty() : features.size() % nodes != 0)) {
    throw Error(ErrorCode::argument,
                "quotient: " + std::to_string(features.size()) + " bytes of features for " + std::to_string(nodes) +
                    " nodes; every node has as many, and there are at most " + std::to_string(kMaxNodes) + " nodes");
  }
  if (options.rounds < 0 || options.rounds > kMaxRounds) {
    throw Error(ErrorCode::argument, "quotient: " + std::to_string(options.rounds) + " rounds; allowed are 0 to " +
                                         std::to_string(kMaxRounds));
  }
  check(producer, nodes);
  check(consumer, nodes);
  const Adjacency producers(consumer, producer, nodes), consumers(producer, consumer, nodes);
  std::vector<QuotientRound> rounds{by_features(features, nodes)};
  for (int k = 0; k < options.rounds; ++k) {
    rounds.push_back(refined(rounds.back(), options.producers ? &producers : nullptr,
                             options.consumers ? &consumers : nullptr, options.multiplicity));
  }
  return rounds;
}

}  // namespace perfpass
