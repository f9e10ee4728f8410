#include <nanobind/stl/string_view.h>

#include <cstring>

#include "bindings.hpp"
#include "perfpass/message_fields.hpp"

namespace perfpass::bindings {
namespace {

constexpr std::size_t kLongestText = 1 << 16;
constexpr std::size_t kMostItems = 1 << 16;  // of what a node reads, of an attribute's value
constexpr std::int64_t kNumber = -1;         // in the place of an end: the field is a number

[[noreturn]] void no_message() {
  throw Error(ErrorCode::format, "a number where a message belongs; the file is damaged");
}

void append(nb::list& items, nb::object item) {
  if (nb::len(items) == kMostItems) {
    throw Error(ErrorCode::limit,
                "a node that reads, or an attribute that has, over 65536 items; so many are not read");
  }
  items.append(item);
}

std::string_view text_of(const MessageField& field, const Buffer& borrowed) {
  if (field.is_number || field.last - field.first > kLongestText) {
    throw Error(ErrorCode::format, "a name that is no text or longer than 64 KiB; the file is damaged");
  }
  return {reinterpret_cast<const char*>(borrowed.bytes().data() + field.first), field.last - field.first};
}

nb::object text(std::string_view content) {
  PyObject* made = PyUnicode_DecodeUTF8(content.data(), static_cast<Py_ssize_t>(content.size()), "replace");
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

/// (number, value, -1) of a number and (number, begin, end) of anything else.
nb::tuple row_of(const MessageField& field) {
  if (field.is_number) return nb::make_tuple(field.number, field.first, kNumber);
  return nb::make_tuple(field.number, field.first, field.last);
}

/// Names and places of the messages of a repeated field, and the other fields as they are; neither goes on after one
/// more than `most`.
nb::tuple index(nb::handle data, std::size_t begin, std::size_t end, std::uint64_t number, std::size_t most) {
  const Buffer borrowed(data);
  MessageFields fields(borrowed.bytes(), begin, end);
  MessageField field;
  nb::list found, others;
  while (nb::len(found) <= most && nb::len(others) <= most && fields.next(field)) {
    if (field.number != number) {
      others.append(nb::make_tuple(field.number, field.is_number ? field.first : 0,
                                   field.is_number ? std::uint64_t{0} : field.first,
                                   field.is_number ? kNumber : static_cast<std::int64_t>(field.last)));
      continue;
    }
    if (field.is_number) no_message();
    MessageFields within(borrowed.bytes(), field.first, field.last);
    MessageField part;
    nb::object name = nb::str("");
    while (within.next(part)) {
      if (part.number != 1) continue;
      name = text(text_of(part, borrowed));
      break;
    }
    found.append(nb::make_tuple(name, field.first, field.last));
  }
  return nb::make_tuple(found, others);
}

/// An entry of a node's attributes, its value's fields: one as a tuple, else a list of them.
void add_attribute(const MessageField& entry, const Buffer& borrowed, nb::dict& attributes) {
  if (entry.is_number) throw Error(ErrorCode::format, "a map with a number for an entry; the file is damaged");
  MessageFields fields(borrowed.bytes(), entry.first, entry.last);
  MessageField field, value;
  value.is_number = true;
  nb::object key = nb::str("");
  while (fields.next(field)) {
    if (field.number == 1) key = text(text_of(field, borrowed));
    if (field.number == 2) value = field;
  }
  nb::list parts;
  if (!value.is_number) {
    MessageFields inner(borrowed.bytes(), value.first, value.last);
    while (inner.next(field)) append(parts, row_of(field));
  }
  attributes[key] = nb::len(parts) == 1 ? nb::object(parts[0]) : nb::object(parts);
}

/// A node: name, operator, what it reads of others' results, attributes.
nb::tuple node_def(nb::handle data, std::size_t begin, std::size_t end) {
  const Buffer borrowed(data);
  MessageFields fields(borrowed.bytes(), begin, end);
  MessageField field;
  nb::object name = nb::str(""), op = nb::str("");
  nb::list inputs;
  nb::dict attributes;
  while (fields.next(field)) {
    if (field.number == 1) {
      name = text(text_of(field, borrowed));
    } else if (field.number == 2) {
      op = text(text_of(field, borrowed));
    } else if (field.number == 3) {
      const std::string_view read = text_of(field, borrowed);
      if (read.empty() || read.front() != '^') append(inputs, text(read));
    } else if (field.number == 5) {
      add_attribute(field, borrowed, attributes);
    }
  }
  return nb::make_tuple(name, op, inputs, attributes);
}

}  // namespace

void register_graph_def(nb::module_& m) {
  m.def(
      "message_index", &index, nb::arg("data"), nb::arg("begin"), nb::arg("end"), nb::arg("number"), nb::arg("most"),
      "Of a message of protobuf: [(text of field 1, begin, end)] of the messages in its field `number`, and [(number, "
      "value, begin, end)] of its other fields, whose end is -1 where they are numbers; what stands behind "
      "one more than `most` of either is left out.");
  m.def("node_def", &node_def, nb::arg("data"), nb::arg("begin"), nb::arg("end"),
        "A NodeDef of TensorFlow: name, operator, the results that it reads (control alone left out), and by attribute "
        "(field, begin, end) of its value, (field, value, -1) of a number; a list of those unless there is one.");
}

}  // namespace perfpass::bindings
