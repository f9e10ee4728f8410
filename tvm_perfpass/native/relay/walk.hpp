// From a Relay function to an OpGraph: a post-order walk with an explicit stack.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../shared/assemble.hpp"
#include "../shared/rules.hpp"
#include "perfpass/graph.hpp"
#include "tvm_api.hpp"

namespace perfpass::relay {

struct Module {
  Handle main = nullptr;                         // relay.Function
  std::unordered_map<Handle, Handle> functions;  // GlobalVar to function
  std::vector<std::string> parameters;           // names of main's parameters that hold weights
  bool infer_weights = false;  // take variables in weight slots for weights (no parameters were named)
};

/// Memory that one walk leaves to the next: fresh pages cost as much as the walk itself.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  struct Contents;
  Contents& contents() noexcept { return *contents_; }

 private:
  std::unique_ptr<Contents> contents_;
};

using ir::RuleTable;
using ir::WalkResult;

/// Error(shape) for a dynamic shape, Error(unsupported) for what has no operator graph (references, matches,
/// recursion), Error(graph) for a module without types or with free variables; AbiError if TVM cannot be read.
WalkResult walk(Tvm& tvm, const RuleTable& rules, const Module& module, Workspace& workspace);

}  // namespace perfpass::relay
