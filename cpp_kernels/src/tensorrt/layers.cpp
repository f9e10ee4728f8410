#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "onnx/name_table.hpp"
#include "perfpass/engine_layers.hpp"
#include "support/text_hash.hpp"
#include "support/json_cursor.hpp"

namespace perfpass {
namespace {

constexpr std::size_t kMostLayers = 1'000'000;
constexpr std::size_t kMostAxes = 16;
constexpr std::size_t kLongestName = 4096;
constexpr std::size_t kLongestLabel = 80;  // of a layer in the names of its weights

template <typename T>
using ByText = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

class Reading {
 public:
  Reading(std::string_view text, const EngineMeaning& meaning) : json_(text), meaning_(meaning) {}

  std::optional<OpGraph> read() {
    bool has_layers = false;
    const bool whole = json_.object([&](std::string_view key) {
      std::string_view skipped;
      if (key != "Layers") return json_.value(skipped);
      has_layers = true;
      return json_.array([&] { return layers_.size() < kMostLayers && layer(); });
    });
    if (!whole || !has_layers || layers_.empty() || !json_.at_end()) return std::nullopt;
    return built();
  }

 private:
  struct Tensor {
    std::string_view name;
    DType dtype = DType::undefined;
    std::size_t dims = 0, end = 0;  // into dims_
  };
  struct Layer {
    std::string_view name;
    std::size_t inputs = 0, outputs = 0, end = 0;  // into tensors_
    const EngineLayer* lowered = nullptr;          // null where it reads and writes nothing
  };
  struct Member {
    std::size_t number = 0;  // among those that are read
    std::string_view value;
  };

  bool layer() {
    Layer made;
    bool is_named = false;
    members_.clear();
    read_.clear();
    written_.clear();
    const bool whole = json_.object([&](std::string_view key) {
      if (key == "Name") return is_named = json_.plain(made.name) && made.name.size() <= kLongestName;
      if (key == "Inputs") return list(read_);
      if (key == "Outputs") return list(written_);
      Member member;
      if (!json_.value(member.value)) return false;
      const auto& known = meaning_.members;
      member.number = static_cast<std::size_t>(std::find(known.begin(), known.end(), key) - known.begin());
      if (member.number < known.size()) members_.push_back(member);
      return true;
    });
    if (!whole || !is_named) return false;
    made.inputs = tensors_.size();
    tensors_.insert(tensors_.end(), read_.begin(), read_.end());
    made.outputs = tensors_.size();
    tensors_.insert(tensors_.end(), written_.begin(), written_.end());
    made.end = tensors_.size();
    if (made.end > made.inputs && (made.lowered = lowered(made)) == nullptr) return false;
    layers_.push_back(made);
    return true;
  }

  bool list(std::vector<Tensor>& tensors) {
    return json_.array([&] { return tensor(tensors.emplace_back()); });
  }

  bool tensor(Tensor& made) {
    bool is_named = false, is_exact = false;
    std::string_view exact, other;
    made.dims = made.end = dims_.size();
    const bool whole = json_.object([&](std::string_view key) {
      if (key == "Name") return is_named = json_.plain(made.name);
      if (key == "Format/Datatype") return is_exact = json_.plain(exact);
      if (key == "Format") return json_.plain(other);
      if (key == "Dimensions") return sizes(made);
      std::string_view skipped;
      return json_.value(skipped);
    });
    if (!whole || !is_named) return false;
    made.dtype = dtype_of(is_exact ? exact : other);
    return true;
  }

  bool sizes(Tensor& made) {
    std::int64_t product = 1;
    const bool whole = json_.array([&] {
      std::int64_t size = 0;
      if (!json_.integer(size) || size < 0 || size >= kMaxElements) return false;
      product = size == 0 || product < kMaxElements / size ? product * size : kMaxElements;
      dims_.push_back(size);
      return true;
    });
    made.end = dims_.size();
    return whole && made.end - made.dims <= kMostAxes && product < kMaxElements;
  }

  DType dtype_of(std::string_view format) {
    const auto known = dtypes_.find(format);
    if (known != dtypes_.end()) return known->second;
    return dtypes_[std::string(format)] = meaning_.dtype(format);
  }

  EngineTensor described(const Tensor& tensor) const {
    return {tensor.dtype, {dims_.begin() + tensor.dims, dims_.begin() + tensor.end}};
  }

  void append(const Tensor& tensor) {
    key_ += static_cast<char>(tensor.dtype);
    key_ += static_cast<char>(tensor.end - tensor.dims);
    key_.append(reinterpret_cast<const char*>(dims_.data() + tensor.dims), 8 * (tensor.end - tensor.dims));
  }

  /// What layers of this signature become; nullptr where they are not to be repeated.
  const EngineLayer* lowered(const Layer& made) {
    key_.clear();
    for (const Member& member : members_) {
      key_ += static_cast<char>(member.number);
      key_ += member.value;
      key_ += '\0';
    }
    key_ += static_cast<char>(meaning_.members.size());
    for (std::size_t i = made.inputs; i < made.end; ++i) {
      if (i == made.outputs) key_ += '\xff';
      append(tensors_[i]);
    }
    if (made.outputs == made.end) key_ += '\xff';
    const auto known = known_.find(std::string_view(key_));
    if (known != known_.end()) return known->second;
    std::string members = "{";
    for (const Member& member : members_) {
      if (members.size() > 1) members += ',';
      members += '"' + meaning_.members[member.number] + "\":";
      members += member.value;
    }
    std::vector<EngineTensor> tensors;
    for (std::size_t i = made.inputs; i < made.end; ++i) tensors.push_back(described(tensors_[i]));
    const std::span<const EngineTensor> all(tensors);
    const std::size_t read = made.outputs - made.inputs;
    std::optional<EngineLayer> found = meaning_.layer(members + "}", all.first(read), all.subspan(read));
    if (!found || (!found->weights.empty() && read == 0)) return nullptr;
    return known_[key_] = &lowered_.emplace_back(std::move(*found));
  }

  std::int32_t added(const Tensor& tensor, TensorRole role) {
    const std::span<const std::int64_t> dims(dims_);
    return builder_.add_tensor(tensor.name, tensor.dtype, dims.subspan(tensor.dims, tensor.end - tensor.dims), role);
  }

  std::optional<OpGraph> built() {
    builder_.reserve(layers_.size(), tensors_.size());
    std::size_t names = 0;
    for (const Layer& layer : layers_) names += layer.end - layer.outputs;
    onnx::NameTable table(names + 16);
    for (const Layer& layer : layers_) {
      for (std::size_t i = layer.outputs; i < layer.end; ++i) table.insert(tensors_[i].name);
    }
    // By position of a name: the tensors that layers wrote under it, parts of a concatenation where they are several.
    std::vector<std::vector<std::int32_t>> known(names);
    std::vector<bool> is_read(names, false);
    std::vector<std::int32_t> inputs, results, given, written;
    for (const Layer& layer : layers_) {
      for (std::size_t i = layer.inputs; i < layer.outputs; ++i) {
        const auto [position, is_new] = table.insert(tensors_[i].name);
        if (!is_new) continue;
        inputs.push_back(added(tensors_[i], TensorRole::input));
        if (position >= known.size()) known.resize(position + 1);
        known[position] = {inputs.back()};
      }
    }
    is_read.resize(known.size(), false);
    for (const Layer& layer : layers_) {
      given.clear();
      written.clear();
      for (std::size_t i = layer.inputs; i < layer.outputs; ++i) {
        const std::uint32_t position = table.find(tensors_[i].name);
        std::vector<std::int32_t>& parts = known[position];
        is_read[position] = true;
        if (parts.empty()) return std::nullopt;  // read before a layer makes it
        if (parts.size() > 1) parts = {joined(tensors_[i], parts)};
        given.push_back(parts.front());
      }
      for (std::size_t i = layer.outputs; i < layer.end; ++i) {
        written.push_back(added(tensors_[i], TensorRole::activation));
        known[table.find(tensors_[i].name)].push_back(written.back());
      }
      if (layer.lowered != nullptr) node(layer, given, written);
    }
    for (std::size_t position = 0; position < known.size(); ++position) {
      if (!is_read[position]) results.insert(results.end(), known[position].begin(), known[position].end());
    }
    if (results.empty()) return std::nullopt;
    std::sort(results.begin(), results.end());
    return std::move(builder_).finish(inputs, results);
  }

  /// A tensor that several layers write side by side: TensorRT runs no concatenation then.
  std::int32_t joined(const Tensor& tensor, const std::vector<std::int32_t>& parts) {
    const std::int32_t made = added(tensor, TensorRole::activation);
    NodeAttributes attributes;
    attributes.view = 1;
    builder_.add_node(OpKind::concat, "written side by side", "", attributes, parts, std::span(&made, 1));
    return made;
  }

  void node(const Layer& layer, std::vector<std::int32_t>& given, const std::vector<std::int32_t>& written) {
    const EngineLayer& lowered = *layer.lowered;
    std::vector<std::int32_t> weights;
    for (const EngineLayer::Weight& weight : lowered.weights) {
      const std::string name = std::string(layer.name.substr(0, kLongestLabel)) + "." + weight.part;
      weights.push_back(builder_.add_tensor(name, weight.tensor.dtype, weight.tensor.shape, TensorRole::weight));
    }
    if (!weights.empty()) given.insert(given.begin() + 1, weights.begin(), weights.end());
    builder_.add_node(lowered.op, lowered.source, layer.name, lowered.attributes, given, written);
  }

  JsonCursor json_;
  const EngineMeaning& meaning_;
  std::vector<Layer> layers_;
  std::vector<Tensor> tensors_;
  std::vector<std::int64_t> dims_;
  ByText<DType> dtypes_;
  std::deque<EngineLayer> lowered_;
  ByText<const EngineLayer*> known_;  // by signature
  GraphBuilder builder_;
  // of the layer that is read
  std::vector<Member> members_;
  std::vector<Tensor> read_, written_;
  std::string key_;
};

}  // namespace

std::optional<OpGraph> read_engine_layers(std::string_view text, const EngineMeaning& meaning) {
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) > 127; })) {
    return std::nullopt;
  }
  return Reading(text, meaning).read();
}

}  // namespace perfpass
