#include "prediction/bundle.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "perfpass/error.hpp"
#include "trees/document.hpp"

namespace perfpass::detail {
namespace {

using document::Value;

constexpr std::string_view kFormat = "perfpass predictor bundle";
constexpr double kVersion = 1;

[[noreturn]] void refuse(const std::string& where, const std::string& found) {
  throw Error(ErrorCode::format,
              "predictor bundle: " + where + ": " + found + "; write the bundle anew with `perfpass export-core`");
}

/// One object of the document, with the way to it.
class Object {
 public:
  Object(const Value& value, std::string where) : value_(value), where_(std::move(where)) {
    if (value.kind != Value::Kind::object) refuse(where_, "not an object");
  }

  const Value& at(const char* name) const {
    const Value* found = value_.find(name);
    if (found == nullptr) refuse(path(name), "missing");
    return *found;
  }
  bool has(const char* name) const { return value_.find(name) != nullptr; }
  Object object(const char* name) const { return {at(name), path(name)}; }
  const std::string& text(const char* name) const {
    const Value& found = at(name);
    if (found.kind != Value::Kind::string) refuse(path(name), "not a text");
    return found.string;
  }
  double number(const char* name) const {
    const Value& found = at(name);
    if (found.kind != Value::Kind::number || !std::isfinite(found.number)) refuse(path(name), "not a finite number");
    return found.number;
  }
  double positive(const char* name) const {
    const double found = number(name);
    if (!(found > 0.0)) refuse(path(name), std::to_string(found) + " is not above 0");
    return found;
  }
  bool flag(const char* name) const {
    const Value& found = at(name);
    if (found.kind != Value::Kind::boolean) refuse(path(name), "not true or false");
    return found.number != 0.0;
  }
  /// Of `size` numbers; 0: of 1 to 64.
  std::vector<double> numbers(const char* name, std::size_t size) const {
    const Value& found = at(name);
    if (found.kind != Value::Kind::numbers || found.numbers.empty() ||
        (size == 0 ? found.numbers.size() > 64 : found.numbers.size() != size)) {
      refuse(path(name), "not a list of " + (size == 0 ? "1 to 64" : std::to_string(size)) + " numbers");
    }
    for (const double number : found.numbers) {
      if (!std::isfinite(number)) refuse(path(name), "a number that is not finite");
    }
    return found.numbers;
  }
  std::vector<double> positives(const char* name, std::size_t size) const {
    std::vector<double> found = numbers(name, size);
    for (const double number : found) {
      if (!(number > 0.0)) refuse(path(name), "a number that is not above 0");
    }
    return found;
  }
  Flags flags(const char* name, std::size_t size) const {
    Flags found;
    for (const double number : numbers(name, size)) {
      if (number != 0.0 && number != 1.0) refuse(path(name), "a flag that is neither 0 nor 1");
      found.push_back(number != 0.0 ? 1 : 0);
    }
    return found;
  }
  std::vector<std::string> texts(const char* name) const {
    const Value& found = at(name);
    std::vector<std::string> out;
    for (const Value& item : found.items) {
      if (item.kind != Value::Kind::string) refuse(path(name), "not a list of texts");
      out.push_back(item.string);
    }
    if (out.empty()) refuse(path(name), "not a list of texts");
    return out;
  }
  Three three(const char* name) const {
    const std::vector<double> found = numbers(name, 3);
    return {found[0], found[1], found[2]};
  }
  std::string path(const char* name) const { return where_.empty() ? name : where_ + "." + name; }

 private:
  const Value& value_;
  std::string where_;
};

constexpr auto kOperators = static_cast<std::size_t>(OpKind::count_);

Families families_of(const Object& top) {
  const std::vector<std::string> operators = top.texts("operators");
  bool same = operators.size() == kOperators;
  for (std::size_t i = 0; same && i < kOperators; ++i) same = operators[i] == op_name(static_cast<OpKind>(i));
  if (!same) {
    throw Error(ErrorCode::unsupported,
                "predictor bundle: its operators are not those of this library; write it with the same version of "
                "perfpass");
  }
  Families found;
  found.names = top.texts("families");
  for (const double index : top.numbers("family_of_operator", kOperators)) {
    if (index < 0 || index >= static_cast<double>(found.names.size()) || index != std::floor(index)) {
      refuse("family_of_operator", "an index that is no family");
    }
    found.of_operator.push_back(static_cast<std::size_t>(index));
  }
  found.vector_attention = top.flag("vector_attention");
  return found;
}

EngineTime engine_of(const Object& o, const Families& families) {
  const std::size_t size = families.names.size();
  EngineTime t{};
  t.conv = families.index("conv"), t.conv1d = families.index("conv1d"), t.conv3x3 = families.index("conv3x3");
  t.conv_grouped = families.index("conv_grouped"), t.conv_depthwise = families.index("conv_depthwise");
  t.dense = families.index("dense"), t.matmul = families.index("matmul"), t.softmax = families.index("softmax");
  t.attention = families.index("attention"), t.attention_vector = families.index("attention_vector");
  t.speed = o.positives("speed", size), t.fed = o.positives("fed", size);
  t.bandwidth = o.positives("bandwidth", size);
  t.kept = o.numbers("kept", size), t.factor = o.positives("factor", size), t.launched = o.numbers("launched", size);
  t.on_matrix = o.flags("on_matrix", size), t.product = o.flags("product", size), t.usual = o.flags("usual", size);
  t.folded = o.flags("folded", kOperators), t.joined = o.flags("joined", kOperators);
  t.joined_launches = o.number("joined_launches");
  const std::vector<double> rows = o.positives("tile_rows", 0), columns = o.positives("tile_columns", rows.size());
  const double full_tile = o.positive("full_tile");
  const double vector_exponent = o.number("vector_exponent"), matrix_exponent = o.number("matrix_exponent");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto reached = [area = rows[i] * columns[i] / full_tile](double by) {
      return std::min(1.0, std::pow(area, by));
    };
    t.tiling.tiles.push_back({rows[i], columns[i], reached(vector_exponent), reached(matrix_exponent)});
  }
  t.tiling.splits = o.positives("splits", 0);
  t.tiling.convolution_splits = o.positive("convolution_splits");
  t.tiling.prologue = o.number("prologue"), t.tiling.sms = o.positive("sms");
  t.attention_keys = o.number("attention_keys");
  t.generic_depthwise = o.positive("generic_depthwise"), t.generic_area = o.number("generic_area");
  t.cache_bytes = o.number("cache_bytes"), t.cache_speed = o.positive("cache_speed"), t.least_s = o.positive("least_s");
  t.step_s = o.number("step_s"), t.step_bandwidth = o.positive("step_bandwidth");
  t.launch_s = o.number("launch_s"), t.issue_s = o.number("issue_s");
  t.call_s = o.positive("call_s"), t.smoothness = o.positive("smoothness");
  return t;
}

CpuTime cpu_of(const Object& o, const Families& families) {
  const std::size_t size = families.names.size();
  CpuTime t{};
  t.conv = families.index("conv"), t.conv1d = families.index("conv1d");
  t.conv1d_ragged = families.index("conv1d_ragged"), t.conv3x3 = families.index("conv3x3");
  t.conv_grouped = families.index("conv_grouped"), t.conv_depthwise = families.index("conv_depthwise");
  t.dense = families.index("dense"), t.matmul = families.index("matmul"), t.vector = families.index("vector");
  t.attention = families.index("attention"), t.attention_vector = families.index("attention_vector");
  t.function = families.index("function"), t.dense_8bit = families.index("dense_8bit");
  t.conv_transpose = families.index("conv_transpose");
  t.rate = o.numbers("rate", size);
  t.streamed = o.flags("streamed", size), t.convolution = o.flags("convolution", size);
  t.pointwise = o.flags("pointwise", size), t.tiled = o.flags("tiled", size), t.strided = o.flags("strided", size);
  t.unscheduled = o.flags("unscheduled", size);
  t.functions = o.flags("functions", kOperators), t.folded = o.flags("folded", kOperators);
  t.narrowed = o.flags("narrowed", kOperators);
  t.ragged_rows = o.flag("ragged_rows"), t.pixels = o.flag("pixels");
  const Object c = o.object("constants");
  t.tensors = c.number("tensors"), t.elementwise = c.number("elementwise"), t.weights = c.number("weights");
  t.memory = c.number("memory"), t.packing = c.number("packing"), t.issue = c.number("issue");
  t.call = c.number("call"), t.sets = c.number("sets"), t.inner = c.number("inner"), t.tile = c.number("tile");
  t.ragged = c.number("ragged"), t.cores = c.number("cores"), t.sync = c.number("sync");
  t.flops = o.positive("flops"), t.clock_hz = o.positive("clock_hz");
  t.memory_bytes_s = o.positive("memory_bytes_s"), t.cache_bytes = o.positive("cache_bytes");
  t.core_memory_bytes_s = o.positive("core_memory_bytes_s"), t.log_cores = o.number("log_cores");
  if (!(t.log_cores >= 0)) refuse(o.path("log_cores"), "below 0");
  t.least_s = o.positive("least_s"), t.smoothness = o.positive("smoothness");
  t.function_flops = o.number("function_flops"), t.sets_bytes = o.positive("sets_bytes");
  t.line_bytes = o.positive("line_bytes"), t.ways = o.positive("ways"), t.lanes = o.positive("lanes");
  // They divide whole numbers.
  if (t.lanes < 1 || t.lanes > 1024) refuse(o.path("lanes"), "not from 1 to 1024");
  if (t.sets_bytes < 1 || t.sets_bytes > 1 << 30) refuse(o.path("sets_bytes"), "not from 1 to 2^30");
  return t;
}

CountingOptions counting_of(const Object& o) {
  CountingOptions found;
  found.float_as = dtype_from_name(o.text("float_as"));
  if (!is_floating(found.float_as)) refuse("counting.float_as", "'" + o.text("float_as") + "' is no floating type");
  found.strided = o.flag("strided");
  found.folds = o.flag("folds");
  found.fuses = o.flag("fuses");
  const auto whole = [&o](const char* name, double most) {
    const double value = o.number(name);
    if (value < 1 || value > most || value != std::floor(value)) refuse(o.path(name), "not a whole number in range");
    return value;
  };
  found.alignment_bytes = static_cast<std::int64_t>(whole("alignment_bytes", 1 << 20));
  found.allocator = allocator_from_name(o.text("allocator"));
  found.weight_copies = static_cast<int>(whole("weight_copies", 16));
  return found;
}

std::variant<DeviceMemory, HostMemory> memory_of(const Object& o) {
  if (o.text("kind") == "device") {
    DeviceMemory m{};
    m.share = o.three("share"), m.beside = o.three("beside");
    m.least_alive = o.number("least_alive"), m.searches = o.flag("searches");
    return m;
  }
  if (o.text("kind") != "process") refuse("memory.kind", "'" + o.text("kind") + "' is neither device nor process");
  HostMemory m{};
  m.runtime = o.number("runtime"), m.weights = o.number("weights"), m.activations = o.number("activations");
  m.allocator = o.number("allocator"), m.low = o.number("low"), m.high = o.number("high");
  m.floor = o.number("floor"), m.least_alive = o.number("least_alive"), m.packs = o.flag("packs");
  return m;
}

}  // namespace

std::size_t Families::index(const char* name) const {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
  }
  refuse("families", "'" + std::string(name) + "' is missing");
}

Bundle read_bundle(std::span<const std::uint8_t> bytes) {
  const Value value = document::named("predictor bundle", [&] { return document::parse_json(bytes); });
  const Object top(value, "");
  if (!top.has("format") || top.text("format") != kFormat) refuse("format", "not a predictor bundle");
  if (top.number("version") != kVersion) {
    throw Error(ErrorCode::unsupported,
                "predictor bundle: its version is not 1, the one that this library reads; write the bundle and build "
                "the library with the same version of perfpass");
  }
  Bundle found;
  found.version = top.text("perfpass");
  const Object device = top.object("device");
  found.device = device.text("id"), found.memory_bytes = device.positive("memory_bytes");
  found.runtime = top.text("runtime"), found.precision = top.text("precision");
  found.coverage = top.positive("coverage");
  found.families = families_of(top);
  found.counting = counting_of(top.object("counting"));
  const Object time = top.object("time");
  if (time.text("kind") == "engine") {
    found.time = engine_of(time, found.families);
  } else if (time.text("kind") == "cpu") {
    found.time = cpu_of(time, found.families);
  } else {
    refuse("time.kind", "'" + time.text("kind") + "' is neither engine nor cpu");
  }
  const Object spread = top.object("spread");
  const std::vector<std::string> causes = spread.texts("causes");
  const std::vector<double> low = spread.numbers("low", causes.size()), high = spread.numbers("high", causes.size()),
                            lack = spread.numbers("lack", causes.size());
  for (std::size_t i = 0; i < causes.size(); ++i) found.causes.push_back({causes[i], low[i], high[i], lack[i]});
  const Object power = top.object("power");
  found.power = {power.positive("peak_flops"),   power.positive("bandwidth"), power.positive("compute_share"),
                 power.positive("memory_share"), power.number("idle_w"),      power.number("limit_w")};
  found.memory = memory_of(top.object("memory"));
  const Object support = top.object("support");
  const double level = support.number("level");
  if (level != 0 && level != 1 && level != 2) refuse("support.level", "not 0, 1 or 2");
  found.level = static_cast<int>(level);
  found.said = support.text("said");
  found.level_widths = support.numbers("level_widths", 2);
  return found;
}

}  // namespace perfpass::detail
