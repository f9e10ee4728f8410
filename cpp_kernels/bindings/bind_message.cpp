#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>

#include "bindings.hpp"
#include "perfpass/message_fields.hpp"
#include "perfpass/mil_program.hpp"

namespace perfpass::bindings {
namespace {

constexpr std::size_t kLongestText = 1 << 16;
constexpr std::size_t kMostEntries = 1 << 16;  // of a map, whose keys and messages are all held at once
constexpr std::size_t kMostNumbers = 1 << 20;  // of one list

[[noreturn]] void no_message() {
  throw Error(ErrorCode::format, "a number where a message belongs; the file is damaged");
}

/// A message of a file that stays where it is: what is asked for is looked up in its bytes, and nothing else becomes an
/// object of Python. A file of 16 MB may have millions of fields.
class Message {
 public:
  Message(nb::object data, std::size_t begin, std::size_t end, std::shared_ptr<FieldBudget> budget)
      : data_(std::move(data)), begin_(begin), end_(end), budget_(std::move(budget)) {
    const Buffer borrowed(data_);
    std::size_t count = 0;
    MessageFields fields(borrowed.bytes(), begin, end);
    MessageField field;
    for (const std::size_t left = budget_->left(); count <= left && fields.next(field); ++count) {
      seen_ |= bit(field.number);
    }
    budget_->take(count);
  }

  const std::shared_ptr<FieldBudget>& budget() const noexcept { return budget_; }

  bool has(std::uint64_t number) const {
    if (!may_have(number)) return false;
    bool found = false;
    each([&](const MessageField& field, const Buffer&) { return !(found = field.number == number); });
    return found;
  }

  std::uint64_t first_from(std::uint64_t least) const {
    std::uint64_t found = 0;
    each([&](const MessageField& field, const Buffer&) {
      if (field.number >= least) found = field.number;
      return found == 0;
    });
    return found;
  }

  Message one(std::uint64_t number) const {
    const auto found = last(number);
    return found ? inside(*found) : Message(data_, 0, 0, budget_);
  }

  std::size_t size(std::uint64_t number) const {
    const auto found = last(number);
    return found ? bytes_of(*found) : 0;
  }

  nb::bytes content(std::uint64_t number) const {
    const auto found = last(number);
    if (!found) return nb::bytes("", 0);
    const Buffer borrowed(data_);
    return nb::bytes(borrowed.bytes().data() + found->first, bytes_of(*found));
  }

  nb::list contents(std::uint64_t number) const {
    nb::list found;
    of(number, [&](const MessageField& field, const Buffer& borrowed) {
      found.append(nb::bytes(borrowed.bytes().data() + field.first, bytes_of(field)));
    });
    return found;
  }

  std::int64_t integer(std::uint64_t number, std::int64_t otherwise) const {
    const auto found = last(number);
    if (!found) return otherwise;
    if (!found->is_number) throw Error(ErrorCode::format, "text where a number belongs; the file is damaged");
    return static_cast<std::int64_t>(found->first);
  }

  nb::list integers(std::uint64_t number) const {
    nb::list found;
    const auto append = [&](std::uint64_t value) {
      if (nb::len(found) == kMostNumbers) {
        throw Error(ErrorCode::limit, "a list of more than 1,048,576 numbers; no such list is read");
      }
      found.append(static_cast<std::int64_t>(value));
    };
    of(number, [&](const MessageField& field, const Buffer& borrowed) {
      if (field.is_number) return append(field.first);
      MessageFields packed(borrowed.bytes(), field.first, field.last);
      for (; packed.more(); budget_->take(1)) append(packed.number());
    });
    return found;
  }

  nb::list reals(std::uint64_t number, std::string_view code) const {
    std::vector<std::uint8_t> bytes;
    of(number, [&](const MessageField& field, const Buffer& borrowed) {
      const std::uint8_t* begin = borrowed.bytes().data() + field.first;
      bytes.insert(bytes.end(), begin, begin + bytes_of(field));
    });
    const std::size_t width = code == "d" ? 8 : 4;
    if (bytes.size() % width != 0) {
      throw Error(ErrorCode::format, std::to_string(bytes.size()) + " bytes where numbers of " + std::to_string(width) +
                                         " belong; the file is damaged");
    }
    nb::list found;
    for (std::size_t at = 0; at < bytes.size(); at += width) {
      double wide = 0;
      float narrow = 0;
      std::memcpy(width == 8 ? static_cast<void*>(&wide) : &narrow, bytes.data() + at, width);
      found.append(width == 8 ? wide : static_cast<double>(narrow));
    }
    return found;
  }

  nb::object text(std::uint64_t number) const {
    const auto found = last(number);
    if (!found) return nb::str("");
    const Buffer borrowed(data_);
    return text_of(*found, borrowed);
  }

  nb::list texts(std::uint64_t number) const {
    nb::list found;
    of(number, [&](const MessageField& field, const Buffer& borrowed) { found.append(text_of(field, borrowed)); });
    return found;
  }

  /// An operation of Core ML's MIL, in one walk: its kind, [(name, bytes of its type)] of its outputs, and {name: [name
  /// of a value, or the message of a constant]} of its arguments. Fields after MIL.proto of coremltools 9.0.
  nb::tuple operation() const {
    const Buffer borrowed(data_);
    nb::object kind = nb::str("");
    nb::list outputs;
    nb::dict arguments;
    each_in(borrowed, [&](const MessageField& field) {
      if (field.number == 1) kind = text_of(field, borrowed);
      if (field.number == 2) add_argument(inside(field), borrowed, arguments);
      if (field.number == 3) {
        const Message output = inside(field);
        nb::object name = nb::str(""), type = nb::bytes("", 0);
        output.each_in(borrowed, [&](const MessageField& one) {
          if (one.number == 1) name = text_of(one, borrowed);
          if (one.number == 2) type = nb::bytes(borrowed.bytes().data() + one.first, bytes_of(one));
        });
        outputs.append(nb::make_tuple(name, type));
      }
    });
    return nb::make_tuple(kind, outputs, arguments);
  }

  /// The graph of a block of MIL (mil_program.hpp), or None. `inputs`: [(name, type, shape)]. `value` gives type, shape
  /// and role of what stands in these bytes, None for a text; `operation` what an operation became: None, the place of
  /// what it passes on, or (kind, source, attributes, inputs, [(type, shape, role)] of constants within).
  nb::object program(const nb::list& inputs, const nb::callable& value, const nb::callable& operation) const {
    const Buffer borrowed(data_);
    const auto budget = std::make_shared<FieldBudget>(*budget_);
    const auto message = [&](MilSpan span) { return Message(data_, span.begin, span.end, budget); };
    MilMeaning meaning;
    meaning.value = [&](MilSpan type, bool is_constant, std::optional<MilSpan> given) {
      const nb::object stored = given ? nb::cast(message(*given)) : nb::none();
      const nb::bytes content(borrowed.bytes().data() + type.begin, type.end - type.begin);
      return value_from(value(content, is_constant, stored, nb::cast(budget)));
    };
    meaning.operation = [&](MilSpan span, std::span<const MilRead> read) -> std::optional<MilLowered> {
      nb::list places;
      for (const MilRead& one : read) places.append(nb::make_tuple(one.name, one.value));
      return lowered_from(operation(message(span), places));
    };
    std::vector<MilInput> given;
    for (const nb::handle one : inputs) {
      const auto row = nb::cast<nb::tuple>(one);
      MilInput& input = given.emplace_back();
      input.name = nb::cast<std::string_view>(row[0]);
      input.value = {dtype_from_name(nb::cast<std::string_view>(row[1])), nb::cast<std::vector<std::int64_t>>(row[2]),
                     TensorRole::input};
    }
    std::optional<OpGraph> graph = read_mil_block(borrowed.bytes(), {begin_, end_}, *budget, given, meaning);
    return graph ? nb::cast(std::move(*graph)) : nb::none();
  }

  nb::dict map(std::uint64_t number) const {
    nb::dict found;
    std::size_t count = 0;
    of(number, [&](const MessageField& field, const Buffer&) {
      if (++count > kMostEntries) {
        throw Error(ErrorCode::limit, "a map of more than 65,536 entries; no such map is read");
      }
      const Message entry = inside(field);
      found[entry.text(1)] = nb::cast(entry.one(2));
    });
    return found;
  }

 private:
  friend class Messages;

  static MilValue value_from(const nb::object& row) {
    if (row.is_none()) return {DType::undefined, {}, TensorRole::literal, false};
    const auto parts = nb::cast<nb::tuple>(row);
    return {dtype_from_name(nb::cast<std::string_view>(parts[0])), nb::cast<std::vector<std::int64_t>>(parts[1]),
            role_from_name(nb::cast<std::string_view>(parts[2]))};
  }

  static std::optional<MilLowered> lowered_from(const nb::object& row) {
    MilLowered made;
    if (row.is_none()) return std::nullopt;
    if (nb::isinstance<nb::int_>(row)) {
      made.same_as = nb::cast<std::int32_t>(row);
      return made;
    }
    const auto parts = nb::cast<nb::tuple>(row);
    made.op = op_from_name(nb::cast<std::string_view>(parts[0]));
    made.source = nb::cast<std::string>(parts[1]);
    made.attributes = attributes_from_dict(nb::cast<nb::dict>(parts[2]));
    made.inputs = nb::cast<std::vector<std::int32_t>>(parts[3]);
    for (const nb::handle one : nb::cast<nb::list>(parts[4])) made.constants.push_back(value_from(nb::borrow(one)));
    return made;
  }

  static std::uint64_t bit(std::uint64_t number) { return std::uint64_t{1} << (number & 63); }
  bool may_have(std::uint64_t number) const { return (seen_ & bit(number)) != 0; }

  static std::size_t bytes_of(const MessageField& field) {
    if (field.is_number) no_message();
    return field.last - field.first;
  }

  Message inside(const MessageField& field) const {
    bytes_of(field);
    return {data_, field.first, field.last, budget_};
  }

  /// An entry of an operation's arguments: its name, and the bindings of its values.
  static void add_argument(const Message& entry, const Buffer& borrowed, nb::dict& arguments) {
    if (nb::len(arguments) == kMostEntries) {
      throw Error(ErrorCode::limit, "an operation of more than 65,536 arguments; no such operation is read");
    }
    nb::object name = nb::str("");
    nb::list values;
    entry.each_in(borrowed, [&](const MessageField& field) {
      if (field.number == 1) name = text_of(field, borrowed);
      if (field.number != 2) return;
      values = nb::list();
      entry.inside(field).each_in(borrowed, [&](const MessageField& binding) {
        if (binding.number == 1) values.append(bound(entry.inside(binding), borrowed));
      });
    });
    arguments[name] = values;
  }

  static nb::object bound(const Message& binding, const Buffer& borrowed) {
    nb::object found = nb::str("");
    std::optional<Message> constant;
    binding.each_in(borrowed, [&](const MessageField& field) {
      if (field.number == 1) found = text_of(field, borrowed);
      if (field.number == 2) constant = binding.inside(field);
    });
    return constant ? nb::cast(*constant) : found;
  }

  static nb::object text_of(const MessageField& field, const Buffer& borrowed) {
    if (field.is_number || field.last - field.first > kLongestText) {
      throw Error(ErrorCode::format, "a name that is no text or longer than 64 KiB; the file is damaged");
    }
    const auto* begin = reinterpret_cast<const char*>(borrowed.bytes().data() + field.first);
    PyObject* made = PyUnicode_DecodeUTF8(begin, static_cast<Py_ssize_t>(field.last - field.first), "replace");
    if (made == nullptr) throw nb::python_error();
    return nb::steal(made);
  }

  template <typename See>
  void each_in(const Buffer& borrowed, See see) const {
    MessageFields fields(borrowed.bytes(), begin_, end_);
    MessageField field;
    while (fields.next(field)) see(field);
  }

  /// Calls `see` with the fields in order, while it answers true.
  template <typename See>
  void each(See see) const {
    const Buffer borrowed(data_);
    MessageFields fields(borrowed.bytes(), begin_, end_);
    MessageField field;
    while (fields.next(field) && see(field, borrowed)) {
    }
  }

  template <typename See>
  void of(std::uint64_t number, See see) const {
    if (!may_have(number)) return;
    each([&](const MessageField& field, const Buffer& borrowed) {
      if (field.number == number) see(field, borrowed);
      return true;
    });
  }

  /// The field that counts: of several the last one.
  std::optional<MessageField> last(std::uint64_t number) const {
    std::optional<MessageField> found;
    of(number, [&](const MessageField& field, const Buffer&) { found = field; });
    return found;
  }

  nb::object data_;  // borrowed for each call alone: a file that is mapped can be closed
  std::size_t begin_, end_;
  std::shared_ptr<FieldBudget> budget_;
  std::uint64_t seen_ = 0;  // numbers of fields, of 64 one bit: most of those that are asked for are not there
};

/// The messages of a repeated field, made one by one.
class Messages {
 public:
  Messages(const Message& whole, std::uint64_t number)
      : whole_(whole), number_(number), at_(whole.may_have(number) ? whole.begin_ : whole.end_) {}

  Message next() {
    const Buffer borrowed(whole_.data_);
    MessageFields fields(borrowed.bytes(), at_, whole_.end_);
    MessageField field;
    while (fields.next(field)) {
      at_ = fields.at();
      if (field.number == number_) return whole_.inside(field);
    }
    throw nb::stop_iteration();
  }

 private:
  Message whole_;
  std::uint64_t number_;
  std::size_t at_;
};

}  // namespace

void register_message(nb::module_& m) {
  nb::class_<FieldBudget>(m, "FieldBudget", "How many fields may still be read of a file.")
      .def(nb::init<std::size_t, std::string>(), nb::arg("most"), nb::arg("what"))
      .def_prop_ro("left", &FieldBudget::left)
      .def("take", &FieldBudget::take, nb::arg("count"));

  nb::class_<Messages>(m, "Messages", "The messages of a repeated field, made one by one.")
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &Messages::next);

  nb::class_<Message>(m, "Message", "A message whose fields are looked up in its bytes as they are asked for.")
      .def(nb::init<nb::object, std::size_t, std::size_t, std::shared_ptr<FieldBudget>>(), nb::arg("data"),
           nb::arg("begin"), nb::arg("end"), nb::arg("budget"))
      .def_prop_ro("budget", &Message::budget)
      .def("has", &Message::has, nb::arg("number"))
      .def("first_from", &Message::first_from, nb::arg("least"),
           "The number of the first field whose number is not below that; 0 without one.")
      .def("one", &Message::one, nb::arg("number"), "The message of a field, empty where it is not set.")
      .def(
          "all", [](const Message& message, std::uint64_t number) { return Messages(message, number); },
          nb::arg("number"))
      .def("size", &Message::size, nb::arg("number"), "Bytes of a field, 0 where it is not set.")
      .def("content", &Message::content, nb::arg("number"), "A copy of a field's bytes.")
      .def("contents", &Message::contents, nb::arg("number"))
      .def("integer", &Message::integer, nb::arg("number"), nb::arg("default") = 0)
      .def("integers", &Message::integers, nb::arg("number"), "Numbers of a repeated field, packed or one by one.")
      .def("reals", &Message::reals, nb::arg("number"), nb::arg("code"),
           "Numbers of fixed width, packed or one by one: 'f' of 32 and 'd' of 64 bits.")
      .def("text", &Message::text, nb::arg("number"), "A name, '' where it is not set.")
      .def("texts", &Message::texts, nb::arg("number"))
      .def("operation", &Message::operation,
           "As an operation of Core ML: its kind, [(name, bytes of its type)] of its outputs, and {name: [name of a "
           "value, or the message of a constant]} of its arguments.")
      .def("program", &Message::program, nb::arg("inputs"), nb::arg("value"), nb::arg("operation"),
           "The graph of a block of MIL whose operations are lowered once for every signature, or None.")
      .def("map", &Message::map, nb::arg("number"), "A map of messages by name.");
}

}  // namespace perfpass::bindings
