// Colour refinement on graphs small enough to see the classes.
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "perfpass/quotient.hpp"

namespace {

using perfpass::NodeId;
using perfpass::quotient;

// Two chains 0 -> 1 -> 2 and 3 -> 4 -> 5, all alike, and a third 6 -> 7 whose end is missing.
const std::vector<NodeId> kProducer = {0, 1, 3, 4, 6};
const std::vector<NodeId> kConsumer = {1, 2, 4, 5, 7};
const std::vector<std::uint8_t> kAlike(8, 1);

}  // namespace

TEST(quotient_equal_chains_share_their_classes) {
  const auto rounds = quotient(kProducer, kConsumer, kAlike, 8, perfpass::QuotientOptions{.rounds = 2});
  CHECK(rounds.size() == 3);
  CHECK((rounds[0].class_of == std::vector<std::int32_t>(8, 0)));
  CHECK((rounds[1].class_of == std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0, 2}));
  CHECK((rounds[2].class_of == std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 3, 4}));
  CHECK((rounds[2].multiplicity == std::vector<std::int32_t>{2, 2, 2, 1, 1}));
  CHECK((rounds[2].producers.neighbour == std::vector<std::int32_t>{0, 1, 0}));
}

TEST(quotient_repeated_edges_count_only_with_multiplicity) {
  const std::vector<NodeId> producer = {0, 0, 0}, consumer = {1, 1, 2};
  const std::vector<std::uint8_t> features(3, 0);
  const perfpass::QuotientOptions counted{.rounds = 1}, sets{.rounds = 1, .multiplicity = false};
  CHECK(quotient(producer, consumer, features, 3, counted)[1].representative.size() == 3);
  CHECK(quotient(producer, consumer, features, 3, sets)[1].representative.size() == 2);
}

TEST(quotient_refuses_edges_and_features_that_do_not_fit) {
  CHECK_ERROR(quotient(kProducer, kConsumer, kAlike, 7), perfpass::ErrorCode::argument, "bytes of features");
  CHECK_ERROR(quotient(kProducer, {}, kAlike, 8), perfpass::ErrorCode::argument, "0 consumers");
  const std::vector<NodeId> outside = {9};
  CHECK_ERROR(quotient(outside, outside, kAlike, 8), perfpass::ErrorCode::argument, "node 9");
  const perfpass::QuotientOptions many{.rounds = 65};
  CHECK_ERROR(quotient(kProducer, kConsumer, kAlike, 8, many), perfpass::ErrorCode::argument, "65 rounds");
}
