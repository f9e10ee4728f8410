// Loops once with their passes, branches by the one that is taken or has the most work.
#include <algorithm>
#include <cmath>

#include "perfpass/error.hpp"
#include "stablehlo/flattener.hpp"

namespace perfpass::stablehlo {
namespace {

constexpr double kMostPasses = 1e12;  // of nested loops

}  // namespace

const Operation* Flattener::maker_in(const Region& region, ValueId v) const {
  for (const std::uint32_t id : region.operations) {
    const Operation& op = g_.module.operations[id];
    if (v >= op.result_begin && v < op.result_begin + op.result_count) return &op;
  }
  return nullptr;
}

const Operation* Flattener::returned_by(const Region& region) const {
  if (region.operations.empty()) return nullptr;
  const Operation& last = g_.module.operations[region.operations.back()];
  return last.code == Code::return_ ? &last : nullptr;
}

std::optional<std::int64_t> Flattener::scalar(const Region& region, ValueId v, std::span<const Value> inits,
                                              const std::vector<bool>& same) const {
  if (v >= region.arg_begin && v < region.arg_begin + region.arg_count) {
    const std::uint32_t i = v - region.arg_begin;
    return same[i] ? known_scalar(inits[i]) : std::nullopt;
  }
  if (const Operation* op = maker_in(region, v)) {
    if (op->code != Code::constant || !is_integer(g_.types[result_type(*op, 0)].dtype)) return std::nullopt;
    const auto values = constant_integers(*op, 1, 1);
    return values ? std::optional((*values)[0]) : std::nullopt;
  }
  return env_[v] == kUnbound ? std::nullopt : known_scalar(static_cast<Value>(env_[v]));
}

std::optional<double> Flattener::passes(const Region& condition, const Region& body, std::span<const Value> inits,
                                        const std::vector<bool>& same) const {
  const Operation *ends = returned_by(condition), *next = returned_by(body);
  if (ends == nullptr || next == nullptr || ends->operand_count != 1) return std::nullopt;
  const Operation* test = maker_in(condition, g_.module.operands[ends->operand_begin]);
  if (test == nullptr || test->code != Code::compare || test->operand_count != 2) return std::nullopt;
  ValueId left = g_.module.operands[test->operand_begin], right = g_.module.operands[test->operand_begin + 1];
  const std::string_view how = test->attributes;
  const auto says = [&](std::string_view word) {
    const std::size_t at = how.find(word);
    return at != std::string_view::npos && (at == 0 || !std::isalnum(static_cast<unsigned char>(how[at - 1]))) &&
           (at + 2 >= how.size() || !std::isalnum(static_cast<unsigned char>(how[at + 2])));
  };
  const auto counts = [&](ValueId v) {
    return v >= condition.arg_begin && v < condition.arg_begin + condition.arg_count && !same[v - condition.arg_begin];
  };
  bool less = says("LT") || says("LE");
  const bool equal = says("LE") || says("GE"), other = says("NE");
  if (!less && !other && !says("GT") && !says("GE")) return std::nullopt;
  if (!counts(left)) {
    std::swap(left, right);
    less = !less;
  }
  if (!counts(left)) return std::nullopt;
  const std::uint32_t k = left - condition.arg_begin;
  const auto bound = scalar(condition, right, inits, same), begin = known_scalar(inits[k]);
  const ValueId after = g_.module.operands[next->operand_begin + k], before = body.arg_begin + k;
  const Operation* step = maker_in(body, after);
  if (!bound || !begin || step == nullptr || step->operand_count != 2) return std::nullopt;
  ValueId a = g_.module.operands[step->operand_begin], b = g_.module.operands[step->operand_begin + 1];
  if (step->code == Code::add && b == before) std::swap(a, b);
  if (a != before || (step->code != Code::add && step->code != Code::subtract)) return std::nullopt;
  const auto by = scalar(body, b, inits, same);
  if (!by || *by == 0) return std::nullopt;
  const double stride = static_cast<double>(*by) * (step->code == Code::add ? 1.0 : -1.0);
  const double distance = static_cast<double>(*bound) - static_cast<double>(*begin);
  if (!other && less != (stride > 0)) return std::nullopt;
  const double count = equal ? std::floor(distance / stride) + 1 : std::ceil(distance / stride);
  return std::max(count, 0.0);
}

void Flattener::loop(const Operation& op, double repeat) {
  if (op.region_count != 2) throw Error(ErrorCode::format, "a while has not its two regions; the file is damaged");
  const Region& condition = g_.module.regions[op.region_begin];
  const Region& body = g_.module.regions[op.region_begin + 1];
  const std::vector<Value> inits = operands_of(op);
  const Operation* next = returned_by(body);
  if (next == nullptr || next->operand_count != inits.size() || body.arg_count != inits.size() ||
      condition.arg_count != inits.size() || op.result_count != inits.size()) {
    throw Error(ErrorCode::format, "a while carries other values than it returns; the file is damaged");
  }
  visited_ += condition.operations.size() + body.operations.size();  // they are searched
  std::vector<bool> same(inits.size());
  for (std::uint32_t i = 0; i < inits.size(); ++i) {
    same[i] = g_.module.operands[next->operand_begin + i] == body.arg_begin + i;
  }
  const std::optional<double> found = passes(condition, body, inits, same);
  if (!found) {
    noted("a while whose passes only values decide is counted once; its real cost is a multiple of that", true);
  } else if (*found == 0) {
    bind(op, inits);
    return;
  }
  const double times = repeat * found.value_or(1.0);
  if (times > kMostPasses) {
    throw Error(ErrorCode::limit, "loops of the module make more than 10^12 passes; check the bound of its while");
  }
  for (std::uint32_t i = 0; i < inits.size(); ++i) {
    Value v = inits[i];
    if (!same[i] && g_.values[v].known != kNobody) {  // another number in every pass
      FlatValue varying = g_.values[v];
      varying.known = kNobody;
      g_.values.push_back(varying);
      v = static_cast<Value>(g_.values.size() - 1);
    }
    env_[body.arg_begin + i] = static_cast<std::int32_t>(v);
  }
  bind(op, flatten_region(body, times));
}

std::pair<double, double> Flattener::work_from(std::size_t begin) const {
  double macs = 0, bytes = 0;
  for (std::size_t n = begin; n < g_.ops.size(); ++n) {
    const FlatOp& op = g_.ops[n];
    if (op.out_count == 0) continue;
    const double out = static_cast<double>(elements_of(g_.type(op.out_begin)));
    bytes += out * op.repeat * bits_of(g_.type(op.out_begin).dtype);
    if (op.in_count < 2) continue;
    const Type &left = g_.type(g_.in(op)[0]), &right = g_.type(g_.in(op)[1]);
    if (op.code == Code::dot_general || op.code == Code::dot) {
      macs +=
          op.repeat * std::sqrt(out * static_cast<double>(elements_of(left)) * static_cast<double>(elements_of(right)));
    } else if (op.code == Code::convolution) {
      macs += op.repeat * out * static_cast<double>(elements_of(right));
    }
  }
  return {macs, bytes};
}

void Flattener::branch(const Operation& op, double repeat) {
  const std::vector<Value> in = operands_of(op);
  if (in.empty() || op.region_count == 0) throw Error(ErrorCode::format, std::string(op.name) + " has no branches");
  if (const auto index = known_scalar(in[0])) {
    const std::int64_t last = op.region_count - 1;
    const std::int64_t taken = op.code == Code::if_          ? (*index != 0 ? 0 : 1)
                               : *index < 0 || *index > last ? last
                                                             : *index;
    bind(op, flatten_region(g_.module.regions[op.region_begin + static_cast<std::uint32_t>(std::min(taken, last))],
                            repeat));
    return;
  }
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  std::vector<std::vector<Value>> results;
  std::size_t heaviest = 0;
  std::pair<double, double> most{-1.0, -1.0};
  for (std::uint32_t r = 0; r < op.region_count; ++r) {
    const std::size_t begin = g_.ops.size();
    results.push_back(flatten_region(g_.module.regions[op.region_begin + r], repeat));
    parts.emplace_back(begin, g_.ops.size());
    if (const auto work = work_from(begin); work > most) {
      most = work;
      heaviest = r;
    }
  }
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (r == heaviest) continue;
    for (std::size_t n = parts[r].first; n < parts[r].second; ++n) g_.ops[n].repeat = 0.0;
  }
  noted("of a branch that only values decide, the part with the most work is counted; the others count 0 times");
  bind(op, results[heaviest]);
}

}  // namespace perfpass::stablehlo
