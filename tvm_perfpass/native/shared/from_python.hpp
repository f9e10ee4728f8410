// What both walks take from Python and give back to it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>
#include <vector>

#include "assemble.hpp"
#include "rules.hpp"

namespace perfpass::ir {

namespace nb = nanobind;

inline Handle handle(std::uintptr_t address) { return reinterpret_cast<Handle>(address); }

/// A tvm_perfpass.rules.Rule.
inline Rule rule_from_python(nb::handle row) {
  Rule rule;
  rule.op = op_from_name(nb::cast<std::string>(row.attr("op")));
  rule.form = form_from_name(nb::cast<std::string>(row.attr("form")));
  for (nb::handle read : nb::iter(row.attr("reads"))) {
    rule.reads.push_back({nb::cast<std::string>(read[0]), how_from_name(nb::cast<std::string>(read[1])),
                          column_from_name(nb::cast<std::string>(read[2]))});
  }
  if (nb::object inputs = row.attr("inputs"); !inputs.is_none()) {
    rule.all_inputs = false;
    for (nb::handle i : nb::iter(inputs)) rule.inputs.push_back(nb::cast<std::size_t>(i));
  }
  for (nb::handle pair : nb::iter(row.attr("fixed"))) {
    rule.fixed.emplace_back(column_from_name(nb::cast<std::string>(pair[0])), nb::cast<std::int32_t>(pair[1]));
  }
  return rule;
}

inline RuleTable rules_from_python(const nb::dict& rows) {
  RuleTable rules;
  for (auto [name, row] : rows) rules.emplace(nb::cast<std::string>(name), rule_from_python(row));
  return rules;
}

/// (perfpass._core.Graph, kernel group [N] int32).
inline nb::tuple walk_to_python(WalkResult&& result) {
  auto* groups = new std::vector<std::int32_t>(std::move(result.kernel_group));
  nb::capsule owner(groups, [](void* p) noexcept { delete static_cast<std::vector<std::int32_t>*>(p); });
  return nb::make_tuple(std::move(result.graph),
                        nb::ndarray<nb::numpy, const std::int32_t>(groups->data(), {groups->size()}, owner));
}

}  // namespace perfpass::ir
