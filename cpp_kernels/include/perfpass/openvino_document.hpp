// OpenVINO's intermediate representation as its own writer puts it down: layers, ports and edges of plain XML.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfpass/export.hpp"

namespace perfpass {

/// The value of an attribute as it is written; `decode` gives its text.
struct XmlText {
  std::string_view raw;
  bool escaped = false;  // it has some of the five entities of XML
};

/// The text that an attribute stands for.
PERFPASS_API std::string decode(const XmlText& text);

/// An output; `shape`: its place in OpenvinoDocument::shapes.
struct OpenvinoPort {
  std::int64_t number = 0;
  XmlText precision, names;
  std::size_t shape = 0;
};

/// A layer; `data`, `inputs`: places in the document's tables, kNone where it has no such element.
struct OpenvinoLayer {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::int64_t number = 0;
  XmlText name, kind, opset;
  std::size_t data = kNone, inputs = kNone;
  std::size_t first_output = 0, last_output = 0;  // among OpenvinoDocument::ports
};

struct OpenvinoEdge {
  std::int64_t reader = 0, reader_port = 0, writer = 0, writer_port = 0;
};

/// A network without bodies. What is written alike in several layers stands in `data`, `inputs` and `shapes` once.
struct OpenvinoDocument {
  std::vector<OpenvinoLayer> layers;
  std::vector<OpenvinoPort> ports;
  std::vector<OpenvinoEdge> edges;
  std::vector<std::vector<std::pair<std::string_view, XmlText>>> data;
  std::vector<std::vector<std::int64_t>> inputs;  // numbers of input ports
  std::vector<std::vector<std::int64_t>> shapes;  // -1: an open size
};

/// The network of version 10 or 11 that UTF-8 holds, whose bytes the result points into. None of everything unusual,
/// which may be a network still: other versions, bodies of loops and branches, comments, references, sections of
/// characters, elements twice, names beyond ASCII, whatever is no well-formed XML, tensors of open rank.
PERFPASS_API std::optional<OpenvinoDocument> plain_openvino(std::string_view content);

}  // namespace perfpass
