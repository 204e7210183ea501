// A library that brings an execution provider, `TestExecutionProvider`, which takes no node: enough to see it found,
// named in a chain and loaded. Like custom_op.cpp it declares what it uses of ONNX Runtime's C ABI itself.
#include <cstddef>
#include <cstdint>

namespace {
using Function = void*;
struct ApiBase { const Function* (*GetApi)(uint32_t); const char* (*GetVersionString)(); };
enum : int { kGetEpApi = 317, kHardwareDeviceType = 307, kCreateEpDevice = 0 };
constexpr int kCpu = 0;
constexpr size_t kLater = 32;  // functions of later versions, more than there are

void* nothing() { return nullptr; }  // no error, no object, false

struct Later {
  Function all[kLater];
  Later() { for (auto& one : all) one = reinterpret_cast<Function>(&nothing); }
};

const Function* api;

struct Provider {
  uint32_t version = 22;
  const char* (*GetName)(const Provider*) = [](const Provider*) { return "TestExecutionProvider"; };
  void* (*GetCapability)(Provider*, const void*, void*) = [](Provider*, const void*, void*) -> void* { return nullptr; };
  void* (*Compile)(Provider*, const void**, const void**, size_t, void**, void**) =
      [](Provider*, const void**, const void**, size_t, void**, void**) -> void* { return nullptr; };
  void (*ReleaseNodeComputeInfos)(Provider*, void**, size_t) = [](Provider*, void**, size_t) {};
  Later later;
};

struct Factory {
  uint32_t version = 22;
  const char* (*GetName)(const Factory*) = [](const Factory*) { return "TestExecutionProvider"; };
  const char* (*GetVendor)(const Factory*) = [](const Factory*) { return "nobody"; };
  void* (*GetSupportedDevices)(Factory*, const void* const*, size_t, void**, size_t, size_t*) =
      [](Factory* self, const void* const* devices, size_t count, void** found, size_t most, size_t* number) -> void* {
        auto type = reinterpret_cast<int (*)(const void*)>(api[kHardwareDeviceType]);
        auto table = reinterpret_cast<const Function* (*)()>(api[kGetEpApi])();
        auto create = reinterpret_cast<void* (*)(Factory*, const void*, void*, void*, void**)>(table[kCreateEpDevice]);
        *number = 0;
        for (size_t i = 0; i < count && *number < most; ++i)
          if (type(devices[i]) == kCpu) {
            if (void* status = create(self, devices[i], nullptr, nullptr, &found[*number])) return status;
            ++*number;
          }
        return nullptr;
      };
  void* (*CreateEp)(Factory*, const void**, const void**, size_t, const void*, const void*, Provider**) =
      [](Factory*, const void**, const void**, size_t, const void*, const void*, Provider** made) -> void* {
        *made = new Provider; return nullptr; };
  void (*ReleaseEp)(Factory*, Provider*) = [](Factory*, Provider* one) { delete one; };
  uint32_t (*GetVendorId)(const Factory*) = [](const Factory*) -> uint32_t { return 0; };
  const char* (*GetVersion)(const Factory*) = [](const Factory*) { return "1.0.0"; };
  Later later;
} factory;
}  // namespace

extern "C" void* CreateEpFactories(const char*, const ApiBase* base, const void*, Factory** made, size_t, size_t* count) {
  api = base->GetApi(22);
  made[0] = &factory;
  *count = 1;
  return nullptr;
}
extern "C" void* ReleaseEpFactory(Factory*) { return nullptr; }
