#include <algorithm>
#include <array>
#include <unordered_map>

#include "perfpass/openvino_document.hpp"

namespace perfpass {
namespace {

constexpr std::size_t kMostLayers = 250'000;
constexpr std::size_t kHighestRank = 16;
constexpr std::size_t kDeepest = 200;  // elements of no meaning within one another
constexpr std::size_t kMostAttributes = 64;
constexpr std::int64_t kWidest = std::int64_t{1} << 48;
constexpr std::array<std::pair<std::string_view, char>, 5> kEntities{
    {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}}};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool in_name(char c) { return begins_name(c) || is_digit(c) || c == '-' || c == '.'; }

/// The entity that `text` begins with, or nullptr.
const std::pair<std::string_view, char>* entity_of(std::string_view text) {
  const auto found = std::find_if(kEntities.begin(), kEntities.end(),
                                  [&](const auto& one) { return text.substr(0, one.first.size()) == one.first; });
  return found == kEntities.end() ? nullptr : &*found;
}

/// Thrown for everything unusual, and caught in `plain_openvino`.
struct Unusual {};

void expect(bool usual) {
  if (!usual) throw Unusual{};
}

std::int64_t whole(std::string_view text) {
  expect(!text.empty() && text.size() <= 18 && std::all_of(text.begin(), text.end(), is_digit));
  std::int64_t value = 0;
  for (const char c : text) value = 10 * value + (c - '0');
  return value;
}

/// A size: open as -1, "?" or a range such as 1..8.
std::int64_t size_of(std::string_view text) {
  if (text == "-1" || text == "?") return -1;
  if (text.find("..") != std::string_view::npos) {
    expect(std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || c == '.'; }));
    return -1;
  }
  const std::int64_t size = whole(text);
  expect(size <= kWidest);
  return size;
}

struct Attribute {
  std::string_view name;
  XmlText value;
};

/// A tag that opens an element, or an element that is empty.
struct Tag {
  std::string_view name;
  std::vector<Attribute> attributes;
  bool empty = false;

  const XmlText* find(std::string_view wanted) const {
    for (const Attribute& one : attributes) {
      if (one.name == wanted) return &one.value;
    }
    return nullptr;
  }
  XmlText text(std::string_view wanted) const {
    const XmlText* found = find(wanted);
    return found == nullptr ? XmlText{} : *found;
  }
  std::int64_t number(std::string_view wanted) const {
    const XmlText* found = find(wanted);
    expect(found != nullptr && !found->escaped);
    return whole(found->raw);
  }
};

class Reader {
 public:
  explicit Reader(std::string_view content) : text_(content) {}

  OpenvinoDocument document() {
    if (takes("<?xml version=\"1.0\"")) {
      takes(" encoding=\"utf-8\"") || takes(" encoding=\"UTF-8\"");
      expect(takes("?>"));
    }
    spaces();
    Tag& net = open();
    expect(net.name == "net" && !net.empty);
    const std::string_view version = net.text("version").raw;
    expect(version == "10" || version == "11");
    bool has_layers = false, has_edges = false;
    while (!closes("net")) {
      Tag& part = open();
      if (part.name == "layers") {
        expect(!std::exchange(has_layers, true) && !part.empty);
        while (!closes("layers")) layer();
      } else if (part.name == "edges") {
        expect(!std::exchange(has_edges, true));
        if (!part.empty) {
          while (!closes("edges")) edge();
        }
      } else {
        skip(part);
      }
    }
    spaces();
    expect(has_layers && at_ == text_.size());
    return std::move(found_);
  }

 private:
  // -- XML -----------------------------------------------------------------------------------------------------------

  char peek() const {
    expect(at_ < text_.size());
    return text_[at_];
  }

  bool takes(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  void spaces() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  std::string_view name() {
    const std::size_t begin = at_;
    expect(begins_name(peek()));
    while (at_ < text_.size() && in_name(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  /// The next tag, which opens an element; it holds until another one does.
  Tag& open() {
    spaces();
    expect(takes("<"));
    Tag& tag = tag_;
    tag.attributes.clear();
    tag.name = name();
    for (;;) {
      const std::size_t before = at_;
      spaces();
      if (takes("/>")) {
        tag.empty = true;
        return tag;
      }
      if (takes(">")) {
        tag.empty = false;
        return tag;
      }
      expect(at_ > before && tag.attributes.size() < kMostAttributes);
      const std::string_view key = name();
      expect(key.substr(0, 5) != "xmlns" && tag.find(key) == nullptr && takes("="));
      tag.attributes.push_back({key, value()});
    }
  }

  XmlText value() {
    const char quote = peek();
    expect(quote == '"' || quote == '\'');
    const std::size_t begin = ++at_;
    bool escaped = false;
    for (; peek() != quote; ++at_) {
      const char c = text_[at_];
      expect(c != '<' && static_cast<unsigned char>(c) >= 0x20);
      if (c == '&') {
        expect(entity_of(text_.substr(at_)) != nullptr);
        escaped = true;
      }
    }
    return {text_.substr(begin, at_++ - begin), escaped};
  }

  /// Whether the next tag closes the element `wanted`; another that closes is unusual.
  bool closes(std::string_view wanted) {
    spaces();
    if (!takes("</")) return false;
    expect(takes(wanted));
    spaces();
    expect(takes(">"));
    return true;
  }

  /// The rest of an element that means nothing.
  void skip(const Tag& tag) {
    if (tag.empty) return;
    std::vector<std::string_view> within{tag.name};
    while (!within.empty()) {
      for (; peek() != '<'; ++at_) {
        const char c = text_[at_];
        expect(c != '&' && c != ']' && (static_cast<unsigned char>(c) >= 0x20 || is_space(c)));
      }
      if (closes_next()) {
        expect(closes(within.back()));
        within.pop_back();
        continue;
      }
      const Tag& inner = open();
      if (inner.empty) continue;
      expect(within.size() < kDeepest);
      within.push_back(inner.name);
    }
  }

  bool closes_next() const { return text_.substr(at_, 2) == "</"; }

  // -- a network -----------------------------------------------------------------------------------------------------

  void layer() {
    Tag& tag = open();
    expect(tag.name == "layer" && found_.layers.size() < kMostLayers);
    OpenvinoLayer one;
    one.number = tag.number("id");
    one.name = tag.text("name");
    one.kind = tag.text("type");
    one.opset = tag.text("version");
    expect(!one.kind.raw.empty());
    one.first_output = found_.ports.size();
    bool has_inputs = false, has_outputs = false;
    if (!tag.empty) {
      while (!closes("layer")) {
        spaces();
        const std::size_t begin = at_;
        Tag& part = open();
        if (part.name == "data") {
          expect(one.data == OpenvinoLayer::kNone);
          one.data = data(part, text_.substr(begin, at_ - begin));
          skip(part);
        } else if (part.name == "input") {
          expect(!std::exchange(has_inputs, true));
          if (!part.empty) one.inputs = inputs();
        } else if (part.name == "output") {
          expect(!std::exchange(has_outputs, true));
          if (!part.empty) {
            while (!closes("output")) output();
          }
        } else {
          // Bodies, and how they are bound, are for the reader of all documents.
          expect(part.name == "rt_info");
          skip(part);
        }
      }
    }
    one.last_output = found_.ports.size();
    found_.layers.push_back(one);
  }

  std::size_t data(const Tag& tag, std::string_view written) {
    const auto [known, is_new] = data_.try_emplace(written, found_.data.size());
    if (is_new) {
      auto& attributes = found_.data.emplace_back();
      for (const Attribute& one : tag.attributes) attributes.emplace_back(one.name, one.value);
    }
    return known->second;
  }

  /// What follows up to `end`, looked up in `known`: `read` makes and adds what is new, and ends behind `end`.
  template <typename Read>
  std::size_t once(std::unordered_map<std::string_view, std::size_t>& known, std::string_view end, Read read) {
    const std::size_t begin = at_, last = text_.find(end, at_);
    expect(last != std::string_view::npos);
    const std::string_view written = text_.substr(begin, last - begin);
    const auto place = known.find(written);
    if (place != known.end()) {
      at_ = last + end.size();
      return place->second;
    }
    const std::size_t made = read();
    expect(at_ == last + end.size());
    known.emplace(written, made);
    return made;
  }

  std::size_t inputs() {
    return once(inputs_, "</input>", [&] {
      std::vector<std::int64_t> numbers;
      while (!closes("input")) {
        Tag& port = open();
        expect(port.name == "port");
        numbers.push_back(port.number("id"));
        skip(port);
      }
      found_.inputs.push_back(std::move(numbers));
      return found_.inputs.size() - 1;
    });
  }

  void output() {
    Tag& tag = open();
    expect(tag.name == "port");
    OpenvinoPort port{tag.number("id"), tag.text("precision"), tag.text("names"), 0};
    port.shape = tag.empty ? scalar() : once(shapes_, "</port>", [&] {
      std::vector<std::int64_t> sizes;
      while (!closes("port")) size(sizes);
      found_.shapes.push_back(std::move(sizes));
      return found_.shapes.size() - 1;
    });
    found_.ports.push_back(port);
  }

  std::size_t scalar() {
    const auto [known, is_new] = shapes_.try_emplace(std::string_view(), found_.shapes.size());
    if (is_new) found_.shapes.emplace_back();
    return known->second;
  }

  void size(std::vector<std::int64_t>& sizes) {
    Tag& tag = open();
    expect(tag.name != "rank" && tag.name != "dynamic_rank");
    if (tag.name != "dim") return skip(tag);
    expect(!tag.empty && sizes.size() < kHighestRank);
    const std::size_t begin = at_;
    while (peek() != '<') ++at_;
    sizes.push_back(size_of(text_.substr(begin, at_ - begin)));
    expect(takes("</dim>"));
  }

  void edge() {
    Tag& tag = open();
    expect(tag.name == "edge" && tag.empty);
    found_.edges.push_back(
        {tag.number("to-layer"), tag.number("to-port"), tag.number("from-layer"), tag.number("from-port")});
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Tag tag_;
  OpenvinoDocument found_;
  std::unordered_map<std::string_view, std::size_t> data_, inputs_, shapes_;  // by how they are written
};

}  // namespace

std::string decode(const XmlText& text) {
  if (!text.escaped) return std::string(text.raw);
  std::string found;
  for (std::size_t at = 0; at < text.raw.size();) {
    const auto* entity = text.raw[at] == '&' ? entity_of(text.raw.substr(at)) : nullptr;
    found += entity == nullptr ? text.raw[at] : entity->second;
    at += entity == nullptr ? 1 : entity->first.size();
  }
  return found;
}

std::optional<OpenvinoDocument> plain_openvino(std::string_view content) {
  try {
    return Reader(content).document();
  } catch (const Unusual&) {
    return std::nullopt;
  }
}

}  // namespace perfpass
