#include "perfpass/mil_program.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "onnx/name_table.hpp"
#include "support/text_hash.hpp"

namespace perfpass {
namespace {

constexpr std::size_t kLongestText = 1 << 16;
constexpr std::size_t kMostNodes = 1'000'000;
constexpr std::size_t kMostPlaces = 256;              // that one operation reads: each is sought among those before it
constexpr std::uint32_t kInline = ~std::uint32_t{0};  // in a signature: a constant that stands in the operation

using Numbers = std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>>;

class Reading {
 public:
  Reading(std::span<const std::uint8_t> data, FieldBudget& budget, const MilMeaning& meaning)
      : data_(data), budget_(budget), meaning_(meaning) {}

  std::optional<OpGraph> read(MilSpan block, std::span<const MilInput> inputs) {
    std::vector<std::int32_t> given, results;
    for (const MilInput& input : inputs) {
      given.push_back(draft(input.name, values_.emplace_back(input.value)));
      name(input.name, {static_cast<std::uint32_t>(values_.size() - 1), given.back()});
    }
    std::vector<std::string_view> outputs;
    const bool whole = each(block, [&](const MessageField& field) {
      std::string_view text;
      if (field.number == 2) {
        if (!is_text(field, text)) return false;
        outputs.push_back(text);
      }
      return field.number != 3 || (!field.is_number && operation({field.first, field.last}));
    });
    if (!whole) return std::nullopt;
    std::unordered_set<std::int32_t> met;
    for (const std::string_view output : outputs) {
      const std::uint32_t position = names_.find(output);
      if (position == onnx::NameTable::kAbsent) return std::nullopt;
      const std::int32_t tensor = named_[position].tensor;
      if (tensor >= 0 && met.insert(tensor).second) results.push_back(tensor);
    }
    return built(given, results);
  }

 private:
  struct Value {
    std::uint32_t number = 0;
    std::int32_t tensor = -1;
  };
  struct Tensor {
    std::string_view name;
    const MilValue* value = nullptr;
  };
  struct Node {
    const MilLowered* lowered = nullptr;
    std::string_view name;
    std::size_t inputs = 0, outputs = 0, end = 0;  // into operands_
  };
  struct Place {
    std::string_view name;
    std::uint32_t position = 0;  // of the name
    Value value;
  };
  struct Output {
    std::string_view name;
    MilSpan type;
  };

  /// Calls `see` with the fields of a message while it answers true; whether it always did.
  template <typename See>
  bool each(MilSpan message, See see) {
    MessageFields fields(data_, message.begin, message.end);
    MessageField field;
    while (fields.next(field)) {
      budget_.take(1);
      if (!see(field)) return false;
    }
    return true;
  }

  std::string_view bytes(MilSpan span) const {
    return {reinterpret_cast<const char*>(data_.data()) + span.begin, span.end - span.begin};
  }

  bool is_text(const MessageField& field, std::string_view& text) const {
    if (field.is_number || field.last - field.first > kLongestText) return false;
    text = bytes({field.first, field.last});
    return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) > 127; });
  }

  /// The entry of a map: its key and the message of its value.
  bool entry(MilSpan message, std::string_view& key, MilSpan& value) {
    return each(message, [&](const MessageField& field) {
      if (field.number == 1) return is_text(field, key);
      if (field.number == 2) value = {field.first, field.last};
      return field.number != 2 || !field.is_number;
    });
  }

  void name(std::string_view text, Value value) {
    const auto [position, is_new] = names_.insert(text);
    if (is_new) named_.emplace_back();
    named_[position] = value;
  }

  std::int32_t draft(std::string_view text, const MilValue& value) {
    tensors_.push_back({text, &value});
    return static_cast<std::int32_t>(tensors_.size()) - 1;
  }

  void append(std::uint32_t number) { key_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void append(std::string_view text) {
    append(static_cast<std::uint32_t>(text.size()));
    key_.append(text);
  }

  /// The number of the value of that type and content.
  std::uint32_t value_of(MilSpan type, bool is_constant, std::optional<MilSpan> given, std::optional<MilSpan> content) {
    key_.clear();
    append(is_constant ? (content ? 2U : 1U) : 0U);
    append(bytes(type));
    if (content) append(bytes(*content));
    if (const auto known = numbers_.find(std::string_view(key_)); known != numbers_.end()) return known->second;
    values_.push_back(meaning_.value(type, is_constant, given));
    return numbers_[key_] = static_cast<std::uint32_t>(values_.size() - 1);
  }

  bool operation(MilSpan message) {
    std::string_view kind;
    bool is_plain = true;
    entries_.clear();
    attributes_.clear();
    outputs_.clear();
    const bool whole = each(message, [&](const MessageField& field) {
      if (field.number == 1) return is_text(field, kind);
      if (field.number < 1 || field.number > 5) return true;
      if (field.is_number) return false;
      const MilSpan inside{field.first, field.last};
      if (field.number == 2) entries_.push_back(inside);
      if (field.number == 5) attributes_.push_back(inside);
      if (field.number == 4) is_plain = false;
      return field.number != 3 || output(inside);
    });
    if (!whole) return false;
    if (kind == "const") return constant();
    return is_plain && !kind.starts_with("constexpr_") && operator_of(message, kind);
  }

  bool output(MilSpan message) {
    Output& made = outputs_.emplace_back();
    return each(message, [&](const MessageField& field) {
      if (field.number == 1) return is_text(field, made.name);
      if (field.number == 2) made.type = {field.first, field.last};
      return field.number != 2 || !field.is_number;
    });
  }

  /// A constant: what it is depends on its type and on the numbers that stand in the file (field 3 of its value).
  bool constant() {
    std::optional<MilSpan> given, content;
    for (const MilSpan attribute : attributes_) {
      std::string_view key;
      MilSpan value;
      if (!entry(attribute, key, value)) return false;
      if (key == "val") given = value;
    }
    const bool whole = !given || each(*given, [&](const MessageField& field) {
      if (field.number == 3) content = MilSpan{field.first, field.last};
      return field.number != 3 || !field.is_number;
    });
    if (!whole) return false;
    for (const Output& made : outputs_) {
      const std::uint32_t number = value_of(made.type, true, given, content);
      const MilValue& value = values_[number];
      name(made.name, {number, value.is_tensor ? draft(made.name, value) : -1});
    }
    return true;
  }

  bool operator_of(MilSpan message, std::string_view kind) {
    types_.clear();
    for (const Output& made : outputs_) types_.push_back(value_of(made.type, false, {}, {}));
    key_.clear();
    places_.clear();
    append(kind);
    for (const MilSpan one : entries_) {
      if (!argument(one)) return false;
    }
    append(static_cast<std::uint32_t>(types_.size()));
    for (const std::uint32_t type : types_) append(type);
    auto known = known_.find(std::string_view(key_));
    if (known == known_.end()) {
      std::vector<MilRead> read;
      for (const Place& place : places_) read.push_back({place.name, place.value.number});
      std::optional<MilLowered> lowered = meaning_.operation(message, read);
      if (!lowered) return false;
      lowered_.push_back(std::move(*lowered));
      known = known_.emplace(key_, static_cast<std::uint32_t>(lowered_.size() - 1)).first;
    }
    return repeat(lowered_[known->second], outputs_.empty() ? kind : outputs_.front().name);
  }

  /// An argument into the signature: its name, and of each value what it is and where the same one was read before.
  bool argument(MilSpan message) {
    std::string_view text;
    MilSpan bindings;
    if (!entry(message, text, bindings)) return false;
    append(text);
    const std::size_t counted = key_.size();
    std::uint32_t count = 0;
    append(count);
    const bool whole = each(bindings, [&](const MessageField& field) {
      if (field.number != 1) return true;
      ++count;
      return !field.is_number && binding({field.first, field.last});
    });
    std::memcpy(key_.data() + counted, &count, sizeof count);
    return whole;
  }

  bool binding(MilSpan message) {
    std::string_view text;
    std::optional<MilSpan> constant;
    const bool whole = each(message, [&](const MessageField& field) {
      if (field.number == 1) return is_text(field, text);
      if (field.number == 2) constant = MilSpan{field.first, field.last};
      return field.number != 2 || !field.is_number;
    });
    if (!whole) return false;
    if (constant) {
      append(kInline);
      append(bytes(*constant));
      return true;
    }
    const std::uint32_t position = names_.find(text);
    if (position == onnx::NameTable::kAbsent || places_.size() == kMostPlaces) return false;
    const auto same = [&](const Place& place) { return place.position == position; };
    append(named_[position].number);
    append(static_cast<std::uint32_t>(std::find_if(places_.begin(), places_.end(), same) - places_.begin()));
    places_.push_back({text, position, named_[position]});
    return true;
  }

  bool repeat(const MilLowered& lowered, std::string_view text) {
    if (lowered.same_as >= 0) {
      name(outputs_.front().name, places_[lowered.same_as].value);
      return true;
    }
    if (nodes_.size() >= kMostNodes) return false;
    const auto made = static_cast<std::int32_t>(tensors_.size());
    for (const MilValue& value : lowered.constants) draft({}, value);
    Node& node = nodes_.emplace_back();
    node.lowered = &lowered;
    node.name = text;
    node.inputs = operands_.size();
    for (const std::int32_t input : lowered.inputs) {
      operands_.push_back(input >= 0 ? places_[input].value.tensor : input == -1 ? -1 : made - 2 - input);
    }
    node.outputs = operands_.size();
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      operands_.push_back(draft(outputs_[i].name, values_[types_[i]]));
      name(outputs_[i].name, {types_[i], operands_.back()});
    }
    node.end = operands_.size();
    return true;
  }

  /// Tensors that something reads or writes, in the order in which they were met.
  OpGraph built(std::span<const std::int32_t> inputs, std::span<const std::int32_t> outputs) const {
    std::vector<std::int32_t> number(tensors_.size(), -1);
    for (const auto list : {std::span<const std::int32_t>(operands_), inputs, outputs}) {
      for (const std::int32_t tensor : list) {
        if (tensor >= 0) number[tensor] = 0;
      }
    }
    GraphBuilder builder;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (number[i] < 0) continue;
      const MilValue& value = *tensors_[i].value;
      number[i] = builder.add_tensor(tensors_[i].name, value.dtype, value.shape, value.role);
    }
    std::vector<std::int32_t> numbered(operands_.size());
    const auto renumbered = [&](std::int32_t tensor) { return tensor < 0 ? -1 : number[tensor]; };
    std::transform(operands_.begin(), operands_.end(), numbered.begin(), renumbered);
    for (const Node& node : nodes_) {
      const std::span<const std::int32_t> all(numbered);
      builder.add_node(node.lowered->op, node.lowered->source, node.name, node.lowered->attributes,
                       all.subspan(node.inputs, node.outputs - node.inputs),
                       all.subspan(node.outputs, node.end - node.outputs));
    }
    std::vector<std::int32_t> given, results;
    std::transform(inputs.begin(), inputs.end(), std::back_inserter(given), renumbered);
    std::transform(outputs.begin(), outputs.end(), std::back_inserter(results), renumbered);
    return std::move(builder).finish(given, results);
  }

  std::span<const std::uint8_t> data_;
  FieldBudget& budget_;
  const MilMeaning& meaning_;
  onnx::NameTable names_{0};
  std::vector<Value> named_;     // by position in names_
  std::deque<MilValue> values_;  // by number; tensors point into it
  Numbers numbers_;              // of values, by type and content
  std::deque<MilLowered> lowered_;
  Numbers known_;  // of lowered_, by signature
  std::vector<Tensor> tensors_;
  std::vector<Node> nodes_;
  std::vector<std::int32_t> operands_;
  // of the operation that is read
  std::string key_;
  std::vector<MilSpan> entries_, attributes_;
  std::vector<Output> outputs_;
  std::vector<std::uint32_t> types_;
  std::vector<Place> places_;
};

}  // namespace

std::optional<OpGraph> read_mil_block(std::span<const std::uint8_t> data, MilSpan block, FieldBudget& budget,
                                      std::span<const MilInput> inputs, const MilMeaning& meaning) {
  return Reading(data, budget, meaning).read(block, inputs);
}

}  // namespace perfpass
