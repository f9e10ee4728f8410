// A plug-in execution provider that takes no node. onnxruntime shows every provider the graph that it is about to
// place; this one writes it down, and later the begin and end of every run.
//
// Interface: onnxruntime_ep_c_api.h (1.23). No function here throws, and none returns an error for a fault of its own:
// a session must not fail because somebody looks at it.
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "graph_writer.hpp"
#include "observation.hpp"
#include "perfpass_ort.h"

namespace perfpass::ort {
namespace {

constexpr const char* kVendor = "perfpass";
constexpr const char* kVersion = PERFPASS_VERSION;

struct Provider : OrtEp {
  Provider(const Runtime& loaded, std::shared_ptr<Observation> seen)
      : OrtEp{}, runtime(loaded), observation(std::move(seen)) {
    ort_version_supported = ORT_API_VERSION;
    OrtEp::GetName = name;
    OrtEp::GetCapability = look;
    if (observation == nullptr) return;
    OrtEp::OnRunStart = begin_run;
    OrtEp::OnRunEnd = end_run;
  }

  static const char* ORT_API_CALL name(const OrtEp*) noexcept { return PERFPASS_ORT_PROVIDER; }

  static OrtStatus* ORT_API_CALL look(OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo*) noexcept {
    const auto& provider = *static_cast<Provider*>(self);
    if (provider.observation == nullptr) return nullptr;
    try {
      provider.write_down(graph);
    } catch (const std::exception& e) {
      provider.observation->set_problem(e.what());
    } catch (...) {
      provider.observation->set_problem("the graph could not be read");
    }
    return nullptr;
  }

  void write_down(const OrtGraph* graph) const {
    const auto start = std::chrono::steady_clock::now();
    const OrtNode* parent = nullptr;
    runtime.check(runtime.api->Graph_GetParentNode(graph, &parent));
    if (parent != nullptr) return;  // a subgraph: it is part of the graph around it
    GraphWriter writer(runtime);
    WireWriter model = writer.model(graph);
    const auto duration = std::chrono::steady_clock::now() - start;
    observation->set_graph(std::move(model), writer.nodes(),
                           static_cast<std::uint64_t>(std::chrono::nanoseconds(duration).count()));
  }

  static OrtStatus* ORT_API_CALL begin_run(OrtEp* self, const OrtRunOptions*) noexcept {
    try {
      static_cast<Provider*>(self)->observation->runs.begin();
    } catch (...) {  // no memory: this run is not recorded
    }
    return nullptr;
  }

  static OrtStatus* ORT_API_CALL end_run(OrtEp* self, const OrtRunOptions*, bool) noexcept {
    try {
      static_cast<Provider*>(self)->observation->runs.end();
    } catch (...) {
    }
    return nullptr;
  }

  const Runtime& runtime;  // the factory's, which outlives its providers
  const std::shared_ptr<Observation> observation;
};

struct Factory : OrtEpFactory {
  explicit Factory(const Runtime& loaded) : OrtEpFactory{}, runtime(loaded) {
    ort_version_supported = ORT_API_VERSION;
    OrtEpFactory::GetName = [](const OrtEpFactory*) noexcept { return PERFPASS_ORT_PROVIDER; };
    OrtEpFactory::GetVendor = [](const OrtEpFactory*) noexcept { return kVendor; };
    OrtEpFactory::GetVendorId = [](const OrtEpFactory*) noexcept { return std::uint32_t{0}; };
    OrtEpFactory::GetVersion = [](const OrtEpFactory*) noexcept { return kVersion; };
    OrtEpFactory::GetSupportedDevices = choose_device;
    OrtEpFactory::CreateEp = create;
    OrtEpFactory::ReleaseEp = [](OrtEpFactory* self, OrtEp* ep) noexcept {
      delete static_cast<Provider*>(ep);
      static_cast<Factory*>(self)->drop();
    };
    OrtEpFactory::IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
    OrtEpFactory::ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
    OrtEpFactory::CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                                       OrtAllocator** allocator) noexcept -> OrtStatus* {
      *allocator = nullptr;
      return nullptr;
    };
    OrtEpFactory::CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** transfer) noexcept -> OrtStatus* {
      *transfer = nullptr;
      return nullptr;
    };
  }

  /// One device, so that one provider is made for a session. It is the CPU: every machine has one.
  static OrtStatus* ORT_API_CALL choose_device(OrtEpFactory* self, const OrtHardwareDevice* const* devices,
                                               std::size_t count, OrtEpDevice** chosen, std::size_t most,
                                               std::size_t* found) noexcept {
    const Runtime& runtime = static_cast<Factory*>(self)->runtime;
    *found = 0;
    for (std::size_t i = 0; i < count && most > 0; ++i) {
      if (runtime.api->HardwareDevice_Type(devices[i]) != OrtHardwareDeviceType_CPU) continue;
      OrtStatus* status = runtime.ep->CreateEpDevice(self, devices[i], nullptr, nullptr, &chosen[0]);
      if (status == nullptr) *found = 1;
      return status;
    }
    return nullptr;
  }

  static OrtStatus* ORT_API_CALL create(OrtEpFactory* self, const OrtHardwareDevice* const*,
                                        const OrtKeyValuePairs* const*, std::size_t, const OrtSessionOptions* options,
                                        const OrtLogger*, OrtEp** provider) noexcept {
    const Runtime& runtime = static_cast<Factory*>(self)->runtime;
    try {
      const std::optional<std::uint64_t> token = token_of(runtime, options);
      auto observation = token ? find_observation(*token) : nullptr;
      if (observation != nullptr && observation->sealed) observation = nullptr;
      *provider = new Provider(runtime, std::move(observation));
      static_cast<Factory*>(self)->users_.fetch_add(1);
      return nullptr;
    } catch (...) {
      return runtime.api->CreateStatus(ORT_FAIL, "perfpass: no memory to observe the session");
    }
  }

  static std::optional<std::uint64_t> token_of(const Runtime& runtime, const OrtSessionOptions* options) {
    char text[24] = {};
    std::size_t size = sizeof text;
    OrtStatus* status = runtime.api->GetSessionConfigEntry(options, PERFPASS_ORT_TOKEN_KEY, text, &size);
    if (status != nullptr) {
      runtime.api->ReleaseStatus(status);
      return std::nullopt;
    }
    std::uint64_t token = 0;
    const char* end = text + ::strnlen(text, sizeof text);
    const auto read = std::from_chars(text, end, token);
    if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
    return token;
  }

  /// onnxruntime releases a provider through its factory, also when the library was unregistered in between.
  void drop() noexcept {
    if (users_.fetch_sub(1) == 1) delete this;
  }

  const Runtime runtime;

 private:
  std::atomic<int> users_{1};  // onnxruntime's registration and the providers that live
};

/// What 1.24 appended first to the functions of 1.23 is at the end of those: the table only ever grows.
constexpr std::size_t kSizeOf23 = 3120;
#if ORT_API_VERSION == 23
static_assert(sizeof(void*) != 8 || sizeof(OrtApi) == kSizeOf23);
#endif

decltype(Runtime::has_shape) find_has_shape(const OrtApiBase* base) {
#if ORT_API_VERSION >= 24
  return base->GetApi(ORT_API_VERSION)->TensorTypeAndShape_HasShape;
#else
  unsigned minor = 0;  // asked for first: GetApi prints an error for a version that it does not have
  const char* version = base->GetVersionString();
  const char* end = version + std::strlen(version);
  if (end - version < 3 || std::strncmp(version, "1.", 2) != 0) return nullptr;
  if (std::from_chars(version + 2, end, minor).ec != std::errc() || minor < 24 || sizeof(void*) != 8) return nullptr;
  const OrtApi* api = base->GetApi(24);
  if (api == nullptr) return nullptr;
  decltype(Runtime::has_shape) function = nullptr;
  std::memcpy(&function, reinterpret_cast<const char*>(api) + kSizeOf23, sizeof function);
  return function;
#endif
}

OrtStatus* refuse(const OrtApiBase* base) {
  const OrtApi* oldest = base->GetApi(1);
  if (oldest == nullptr) return nullptr;
  const std::string text = std::string("perfpass needs onnxruntime 1.") + std::to_string(ORT_API_VERSION) +
                           " or later; this one is " + base->GetVersionString();
  return oldest->CreateStatus(ORT_NOT_IMPLEMENTED, text.c_str());
}

}  // namespace
}  // namespace perfpass::ort

#define PERFPASS_EXPORT extern "C" __attribute__((visibility("default")))

PERFPASS_EXPORT OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*,
                                             OrtEpFactory** factories, size_t most, size_t* count) {
  using namespace perfpass::ort;
  *count = 0;
  try {
    Runtime runtime;
    runtime.api = base->GetApi(ORT_API_VERSION);
    if (runtime.api != nullptr) runtime.ep = runtime.api->GetEpApi();
    if (runtime.ep == nullptr) return refuse(base);
    runtime.has_shape = find_has_shape(base);
    if (most == 0) return runtime.api->CreateStatus(ORT_INVALID_ARGUMENT, "perfpass needs room for one factory");
    factories[0] = new Factory(runtime);
    *count = 1;
  } catch (...) {  // no memory: no factory
  }
  return nullptr;
}

PERFPASS_EXPORT OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  static_cast<perfpass::ort::Factory*>(factory)->drop();
  return nullptr;
}
