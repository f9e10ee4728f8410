// What was inferred of a node holds for every node like it, and the layers of a model repeat some dozens.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "onnx/model.hpp"

namespace perfpass::onnx {

/// As infer (model.hpp), for nodes with one output, whose attributes are those that the file states. Of ONNX's own
/// operators equal bytes are one attribute (KnownMessages), told by its place; what another format's reader gives a
/// node with an entry (Node::entry) is told by its contents. `context` beside that must be what it is for the whole
/// file.
class KnownNodes {
 public:
  bool infer(InferContext& context);

 private:
  /// All that inference reads of a node; longer ones are inferred each time.
  class Key {
   public:
    explicit Key(const InferContext& context) noexcept;
    bool is_whole() const noexcept { return size_ <= kMost; }
    /// Its high bits tell keys apart.
    std::uint64_t hash() const noexcept { return hash_; }
    bool operator==(const Key& other) const noexcept;

   private:
    static constexpr std::size_t kMost = 48;

    void add(std::uint64_t word) noexcept { words_[size_++] = word; }
    /// False where the value is more than fits.
    bool add(const Value& value) noexcept;
    bool add(const Attribute& attribute) noexcept;

    std::size_t size_ = 0;
    std::uint64_t hash_ = 0;
    std::array<std::uint64_t, kMost> words_;  // the first size_ are set
  };
  struct Known {
    Key key;
    NodeAttributes attributes;
    Value output;
  };

  static constexpr int kBits = 9;
  std::array<std::uint16_t, std::size_t{1} << kBits>
      place_{};  // by hash: one more than the place in known_, the last one wins
  std::vector<Known> known_;
};

}  // namespace perfpass::onnx
