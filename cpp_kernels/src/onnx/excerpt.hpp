// Bytes of a file of which parts were left out, with the places and lengths of the gaps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace perfpass::onnx {

/// Shorter parts are never left out: skipping them would cost more than copying them.
constexpr std::uint64_t kMinGap = 4096;

/// A part of the file that was left out.
struct Gap {
  std::size_t at;        // where it would follow, in the bytes that are there
  std::uint64_t length;  // >= kMinGap
  std::uint64_t before;  // lengths of all gaps before this one
};

/// What is there of a file. Without gaps: any serialized model in memory.
class Excerpt {
 public:
  Excerpt(std::span<const std::uint8_t> bytes) noexcept : bytes_(bytes), head_(bytes) {}
  Excerpt(std::span<const std::uint8_t> bytes, std::span<const Gap> gaps, std::span<const std::uint8_t> head) noexcept
      : bytes_(bytes), gaps_(gaps), head_(head) {}

  std::span<const std::uint8_t> bytes() const noexcept { return bytes_; }
  bool has_gaps() const noexcept { return !gaps_.empty(); }
  /// The first bytes of the file, whether or not they are part of the excerpt.
  std::span<const std::uint8_t> head() const noexcept { return head_; }

  /// The place in the file of a byte that is there: a gap at `at` lies before it.
  std::uint64_t place(const std::uint8_t* at) const noexcept {
    return position(at) + skipped(std::upper_bound(gaps_.begin(), gaps_.end(), position(at), after));
  }

  /// How far the file goes on from `at`, right behind the length of a field, to `end`, where a message ends.
  std::uint64_t distance(const std::uint8_t* at, const std::uint8_t* end) const noexcept {
    return place(end) - place_behind_length(at);
  }

  /// How much is there of the `length` bytes that follow `at` in the file; at most up to `end`.
  std::size_t present(const std::uint8_t* at, std::uint64_t length, const std::uint8_t* end) const noexcept {
    const std::uint64_t stop = place_behind_length(at) + length;
    const auto gap = std::lower_bound(gaps_.begin(), gaps_.end(), stop,
                                      [](const Gap& g, std::uint64_t p) { return g.at + g.before < p; });
    const std::uint64_t skipped_before = skipped(gap);
    const std::uint64_t inside = stop - std::min(stop, skipped_before);
    return static_cast<std::size_t>(std::clamp<std::uint64_t>(inside, position(at), position(end)) - position(at));
  }

 private:
  using Gaps = std::span<const Gap>::iterator;

  static bool after(std::size_t at, const Gap& gap) noexcept { return at < gap.at; }
  std::size_t position(const std::uint8_t* at) const noexcept { return static_cast<std::size_t>(at - bytes_.data()); }

  /// Lengths of the gaps before `gap`.
  std::uint64_t skipped(Gaps gap) const noexcept { return gap == gaps_.begin() ? 0 : gap[-1].before + gap[-1].length; }

  /// As place, but a gap at `at` lies behind: it is what the length announces.
  std::uint64_t place_behind_length(const std::uint8_t* at) const noexcept {
    return position(at) + skipped(std::lower_bound(gaps_.begin(), gaps_.end(), position(at),
                                                   [](const Gap& g, std::size_t p) { return g.at < p; }));
  }

  std::span<const std::uint8_t> bytes_;
  std::span<const Gap> gaps_;
  std::span<const std::uint8_t> head_;
};

}  // namespace perfpass::onnx
