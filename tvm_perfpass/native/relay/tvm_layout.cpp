// Calibration: where the fields of TVM's objects lie, found by comparing probe objects with the reflection.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "tvm_fields.hpp"

namespace perfpass::relay {
namespace {

// Objects of interest are smaller than this; the first 16 bytes are the reference-counted header.
constexpr std::size_t kProbeBytes = 192;
constexpr std::size_t kHeaderBytes = 16;
/// Copies an object's bytes without the risk of a fault past its end; returns how many bytes could be read.
std::size_t safe_copy(const void* from, std::array<unsigned char, kProbeBytes>& to) {
  iovec local{to.data(), to.size()};
  // Page by page, so that a read which crosses into an unmapped page keeps what lies before it.
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::size_t first = std::min<std::size_t>(to.size(), page - address % page);
  iovec remote[2] = {{const_cast<void*>(from), first}, {reinterpret_cast<void*>(address + first), to.size() - first}};
  const ssize_t got = process_vm_readv(getpid(), &local, 1, remote, to.size() > first ? 2 : 1, 0);
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

/// Offsets at which every probe holds its expected value; the caller accepts only a single one.
template <typename T>
std::vector<std::int32_t> matching_offsets(const std::vector<Handle>& probes, const std::vector<T>& expected) {
  std::vector<std::int32_t> offsets;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    std::array<unsigned char, kProbeBytes> bytes{};
    const std::size_t size = safe_copy(probes[i], bytes);
    std::vector<std::int32_t> here;
    for (std::size_t at = kHeaderBytes; at + sizeof(T) <= size; at += std::min<std::size_t>(sizeof(T), 8)) {
      if (std::memcmp(bytes.data() + at, &expected[i], sizeof(T)) == 0) here.push_back(static_cast<std::int32_t>(at));
    }
    if (i == 0) {
      offsets = std::move(here);
    } else {
      std::erase_if(offsets, [&](std::int32_t o) { return std::find(here.begin(), here.end(), o) == here.end(); });
    }
  }
  return offsets;
}

template <typename T>
bool all_different(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return values.size() > 1 && std::adjacent_find(values.begin(), values.end()) == values.end();
}

}  // namespace

void Tvm::forget_layout() noexcept {
  offset_.fill(-1);
  type_index_first_ = false;
  array_size_offset_ = -1;
  array_data_offset_ = -1;
  text_size_offset_ = -1;
  text_data_offset_ = -1;
}

std::vector<std::string> Tvm::calibrated() const {
  std::vector<std::string> names;
  for (std::size_t f = 0; f < kFields.size(); ++f) {
    if (offset_[f] >= 0) names.push_back(std::string(class_key(kFields[f].cls)) + "." + kFields[f].name);
  }
  if (array_size_offset_ >= 0) names.emplace_back("Array.size");
  if (array_data_offset_ >= 0) names.emplace_back("Array.items");
  if (text_data_offset_ >= 0) names.emplace_back("runtime.String.data");
  return names;
}

void Tvm::find_field(Field field, const std::vector<Handle>& probes) {
  const FieldSpec& s = spec(field);
  std::vector<std::int32_t> found;
  const auto search = [&]<typename T>(auto&& read) {
    std::vector<T> expected;
    for (const Handle probe : probes) expected.push_back(read(probe));
    if (all_different(expected)) found = matching_offsets(probes, expected);
  };
  switch (s.kind) {
    case FieldKind::object:
      search.operator()<Handle>([&](Handle p) { return child_by_reflection(p, field); });
      break;
    case FieldKind::int32:
      search.operator()<std::int32_t>(
          [&](Handle p) { return static_cast<std::int32_t>(attribute(p, s.name).integer); });
      break;
    case FieldKind::int64:
      search.operator()<std::int64_t>([&](Handle p) { return attribute(p, s.name).integer; });
      break;
    case FieldKind::dtype:
      search.operator()<std::uint32_t>([&](Handle p) { return dtype_word(attribute(p, s.name).text); });
      break;
  }
  if (found.size() == 1) offset_[static_cast<std::size_t>(field)] = found.front();
  // A variable's annotation is the very object that type inference gives it as its type. Both lie in the variable; the
  // checked type is where every expression has it.
  const std::int32_t in_calls = offset_[static_cast<std::size_t>(Field::call_type)];
  if (field == Field::var_type && std::find(found.begin(), found.end(), in_calls) != found.end()) {
    offset_[static_cast<std::size_t>(field)] = in_calls;
  }
}

void Tvm::find_type_index(const std::map<std::string, std::vector<Handle>>& probes) {
  bool all = !probes.empty();
  for (const auto& [key, objects] : probes) {
    for (const Handle object : objects) {
      unsigned index = 0;
      std::array<unsigned char, kProbeBytes> bytes{};
      all = all && type_index_(object, &index) == 0 && safe_copy(object, bytes) >= kHeaderBytes &&
            std::memcmp(bytes.data(), &index, sizeof(std::uint32_t)) == 0;
    }
  }
  type_index_first_ = all && probes.size() > 5;
}

void Tvm::find_array(const std::vector<Handle>& probes) {
  std::vector<std::int64_t> sizes;
  std::vector<Handle> first, second;
  for (const Handle probe : probes) {
    sizes.push_back(array_size(probe));
    first.push_back(array_item(probe, 0));
    second.push_back(array_item(probe, 1));
  }
  if (!all_different(sizes) || !all_different(first) || !all_different(second)) return;
  const auto size_at = matching_offsets(probes, sizes);
  const auto first_at = matching_offsets(probes, first);
  const auto second_at = matching_offsets(probes, second);
  // Items must lie in the object itself, one pointer after another.
  if (size_at.size() != 1 || first_at.size() != 1 || second_at.size() != 1) return;
  if (second_at[0] != first_at[0] + static_cast<std::int32_t>(sizeof(Handle))) return;
  array_size_offset_ = size_at[0];
  array_data_offset_ = first_at[0];
}

void Tvm::find_text(const std::vector<Handle>& identifiers) {
  std::vector<Handle> strings;
  std::vector<std::uint64_t> sizes;
  std::vector<const void*> data;
  for (const Handle identifier : identifiers) {
    Handle const string = child_by_reflection(identifier, Field::id_name);
    const std::string expected = text_by_call(string);
    if (expected.empty() || expected.size() > kProbeBytes) return;
    strings.push_back(string);
    sizes.push_back(expected.size());
    // The characters' address is the one word of the object that leads to them.
    std::array<unsigned char, kProbeBytes> bytes{};
    const std::size_t size = safe_copy(string, bytes);
    for (std::size_t at = kHeaderBytes; at + sizeof(void*) <= size; at += sizeof(void*)) {
      const void* const word = load<const void*>(bytes.data(), static_cast<std::int32_t>(at));
      std::array<unsigned char, kProbeBytes> there{};
      if (safe_copy(word, there) < expected.size()) continue;
      if (std::memcmp(there.data(), expected.data(), expected.size()) != 0) continue;
      data.push_back(word);
      break;
    }
  }
  if (data.size() != strings.size() || !all_different(sizes) || !all_different(data)) return;
  const auto size_at = matching_offsets(strings, sizes);
  const auto data_at = matching_offsets(strings, data);
  // A string made from a std::string also holds that one, with the same two words; the object's own come first.
  if (size_at.empty() || data_at.empty()) return;
  text_size_offset_ = size_at[0];
  text_data_offset_ = data_at[0];
}

void Tvm::calibrate(const std::map<std::string, std::vector<Handle>>& probes) {
  forget_layout();
  decltype(offset_) found;
  found.fill(-1);
  for (std::size_t f = 0; f < kFields.size(); ++f) {
    const auto it = probes.find(std::string(class_key(kFields[f].cls)));
    if (it == probes.end()) continue;
    try {
      find_field(static_cast<Field>(f), it->second);
    } catch (const AbiError&) {
      continue;  // this build has no such field; reading it will say so if it is ever needed
    }
    // The searches read by reflection, so offsets are put in place only when all are known.
    if (static_cast<Field>(f) != Field::call_type) std::swap(found[f], offset_[f]);
  }
  std::swap(found[static_cast<std::size_t>(Field::call_type)], offset_[static_cast<std::size_t>(Field::call_type)]);
  if (const auto it = probes.find("Array"); it != probes.end()) find_array(it->second);
  if (const auto it = probes.find("relay.Id"); it != probes.end()) find_text(it->second);
  offset_ = found;
  find_type_index(probes);
}

}  // namespace perfpass::relay
