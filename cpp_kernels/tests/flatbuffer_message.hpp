// FlatBuffers for the tests of their readers: tables of (field, value), written one behind the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perfpass::testing {

struct Item;
using Field = std::pair<unsigned, Item>;

struct Item {
  enum class Kind : std::uint8_t { scalar, text, numbers, table, list } kind = Kind::table;
  std::string bytes;      // of a scalar, a text or numbers
  std::size_t count = 0;  // of numbers
  std::vector<Field> fields;
  std::vector<Item> items;
};

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <typename T>
Item scalar(T value) {
  return {Item::Kind::scalar, raw(value), 0, {}, {}};
}
inline Item text(std::string_view value) { return {Item::Kind::text, std::string(value), 0, {}, {}}; }
template <typename T>
Item numbers(std::initializer_list<T> values) {
  Item item{Item::Kind::numbers, {}, values.size(), {}, {}};
  for (const T value : values) item.bytes += raw(value);
  return item;
}
inline Item table(std::vector<Field> fields) { return {Item::Kind::table, {}, 0, std::move(fields), {}}; }
inline Item list(std::vector<Item> items) { return {Item::Kind::list, {}, 0, {}, std::move(items)}; }

/// Appends the item and returns its place. Offsets are written once it is known where they lead.
inline std::uint32_t append(std::string& out, const Item& item) {
  const auto point = [&](std::size_t from, const Item& to) {
    const std::uint32_t place = append(out, to);
    const std::uint32_t offset = place - static_cast<std::uint32_t>(from);
    std::memcpy(out.data() + from, &offset, sizeof offset);
  };
  if (item.kind == Item::Kind::table) {
    unsigned slots = 0;
    for (const Field& field : item.fields) slots = std::max(slots, field.first + 1);
    std::vector<std::uint16_t> places(slots, 0);
    std::uint16_t size = 4;
    for (const auto& [slot, value] : item.fields) {
      places[slot] = size;
      size = static_cast<std::uint16_t>(size + (value.kind == Item::Kind::scalar ? value.bytes.size() : 4));
    }
    out += raw(static_cast<std::uint16_t>(4 + 2 * slots)) + raw(size);
    for (const std::uint16_t place : places) out += raw(place);
    const auto at = static_cast<std::uint32_t>(out.size());
    out += raw(static_cast<std::int32_t>(4 + 2 * slots));
    for (const auto& [slot, value] : item.fields) {
      out += value.kind == Item::Kind::scalar ? value.bytes : std::string(4, '\0');
    }
    for (const auto& [slot, value] : item.fields) {
      if (value.kind != Item::Kind::scalar) point(at + places[slot], value);
    }
    return at;
  }
  const auto at = static_cast<std::uint32_t>(out.size());
  if (item.kind == Item::Kind::list) {
    out += raw(static_cast<std::uint32_t>(item.items.size())) + std::string(4 * item.items.size(), '\0');
    for (std::size_t i = 0; i < item.items.size(); ++i) point(at + 4 + 4 * i, item.items[i]);
    return at;
  }
  const std::size_t count = item.kind == Item::Kind::text ? item.bytes.size() : item.count;
  out += raw(static_cast<std::uint32_t>(count)) + item.bytes;
  return at;
}

inline std::string file(std::string_view identifier, const Item& root) {
  std::string out(4, '\0');
  out += identifier;
  const std::uint32_t place = append(out, root);
  std::memcpy(out.data(), &place, sizeof place);
  return out;
}

inline std::span<const std::uint8_t> span_of(const std::string& bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace perfpass::testing
