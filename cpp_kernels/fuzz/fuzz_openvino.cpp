// Fuzz target of OpenVINO's documents: any text gives none or a document whose places lie within its tables.
// How it is built and run: replay.hpp.
#include "perfpass/openvino_document.hpp"
#include "replay.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto found = perfpass::plain_openvino({reinterpret_cast<const char*>(data), size});
  if (!found) return 0;
  constexpr std::size_t kNone = perfpass::OpenvinoLayer::kNone;
  std::size_t ports = 0;
  for (const perfpass::OpenvinoLayer& layer : found->layers) {
    if (layer.first_output != ports || layer.last_output < ports) std::abort();
    ports = layer.last_output;
    if (layer.data != kNone && layer.data >= found->data.size()) std::abort();
    if (layer.inputs != kNone && layer.inputs >= found->inputs.size()) std::abort();
    if (perfpass::decode(layer.name).size() > layer.name.raw.size()) std::abort();
  }
  if (ports != found->ports.size()) std::abort();
  for (const perfpass::OpenvinoPort& port : found->ports) {
    if (port.shape >= found->shapes.size()) std::abort();
  }
  for (const auto& shape : found->shapes) {
    if (shape.size() > 16) std::abort();
  }
  return 0;
}
