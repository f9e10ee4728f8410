// From a Relax function to an OpGraph: its bindings in order, functions that it calls inlined, with an explicit stack.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../shared/assemble.hpp"
#include "../shared/rules.hpp"
#include "reflection.hpp"

namespace perfpass::relax {

/// A lowered function as an operator (tvm_perfpass/relax/kernels.py). `op` conv, matmul and einsum are products, whose
/// sizes decide what they are shown as.
struct Kernel {
  std::string name;
  OpKind op = OpKind::unknown;
  std::vector<std::size_t> order;
  std::vector<Handle> shapes;   // Arrays of sizes: of its arguments, then of its results
  std::vector<Handle> extents;  // of the reduced axes of a product
};

struct Module {
  Handle main = nullptr;                         // relax.Function
  std::unordered_map<Handle, Handle> functions;  // GlobalVar to function
  std::unordered_map<Handle, Kernel> kernels;    // GlobalVar to lowered function
  std::vector<std::string> parameters;           // names of main's parameters that hold weights
  bool infer_weights = false;  // take variables in weight slots for weights (no parameters were named)
  std::vector<std::pair<Handle, std::int64_t>> sizes;  // symbolic variables of main with their values
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

/// Error(shape) for a size without a value, Error(unsupported) for what has no operator graph (recursion, planned
/// memory), Error(graph) for a module that is not well formed; AbiError if TVM cannot be read.
ir::WalkResult walk(Reflection& tvm, const ir::RuleTable& rules, const Module& module, Workspace& workspace);

}  // namespace perfpass::relax
