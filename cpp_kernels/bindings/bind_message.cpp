#include "bindings.hpp"
#include "perfpass/message_fields.hpp"

namespace perfpass::bindings {

void register_message(nb::module_& m) {
  m.def(
      "message_fields",
      [](nb::handle data, std::size_t begin, std::size_t end, std::size_t most) {
        const Buffer borrowed(data);
        const std::vector<MessageField> found = message_fields(borrowed.bytes(), begin, end, most);
        nb::dict fields;
        for (const MessageField& field : found) {
          const nb::int_ number(field.number);
          const nb::object one =
              field.is_number ? nb::object(nb::int_(field.first)) : nb::object(nb::make_tuple(field.first, field.last));
          if (fields.contains(number)) {
            nb::cast<nb::list>(fields[number]).append(one);
          } else {
            nb::list alone;
            alone.append(one);
            fields[number] = alone;
          }
        }
        return nb::make_tuple(fields, found.size());
      },
      nb::arg("data"), nb::arg("begin"), nb::arg("end"), nb::arg("most"),
      "Fields of a protobuf message by number, in the file's order, each a number or where its bytes are; and how "
      "many, at most one more than `most`.");
}

}  // namespace perfpass::bindings
