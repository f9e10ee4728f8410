// A set of operators, looked up by number.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>

#include "perfpass/operators.hpp"

namespace perfpass::detail {

class OperatorSet {
 public:
  OperatorSet(std::initializer_list<OpKind> members) {
    for (const OpKind op : members) contains_[static_cast<std::size_t>(op)] = true;
  }
  bool operator()(OpKind op) const noexcept { return contains_[static_cast<std::size_t>(op)]; }

 private:
  std::array<bool, static_cast<std::size_t>(OpKind::count_)> contains_{};
};

}  // namespace perfpass::detail
