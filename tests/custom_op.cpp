// A library of one custom operator, `test.ops:Twice`: y = 2 x, FP32. Needs no header of ONNX Runtime: it declares
// what it uses of the C ABI, whose tables of functions only ever grow at their ends.
#include <cstddef>
#include <cstdint>

#ifndef FACTOR
#define FACTOR 2.0f
#endif
#ifndef OPERATOR
#define OPERATOR "Twice"
#endif
#ifndef CREATED  // called with the `OrtKernelInfo` of each new kernel
#define CREATED(info)
#endif
#ifndef COMPUTED  // called before each run
#define COMPUTED()
#endif

namespace {
using Function = void*;
struct ApiBase { const Function* (*GetApi)(uint32_t); const char* (*GetVersionString)(); };
// places in the table `OrtApi`
enum : int {
  kGetTensorMutableData = 51, kGetDimensionsCount = 61, kGetDimensions = 62, kGetTensorShapeElementCount = 64,
  kGetTensorTypeAndShape = 65, kCreateCustomOpDomain = 26, kCustomOpDomain_Add = 27, kAddCustomOpDomain = 28,
  kKernelInfoGetAttribute_string = 87, kKernelContext_GetInput = 90, kKernelContext_GetOutput = 91, kReleaseTensorTypeAndShapeInfo = 99
};
const Function* api;
template <typename... A> void* call(int place, A... a) { return reinterpret_cast<void* (*)(A...)>(api[place])(a...); }

// `OrtCustomOp` of API version 8; zeros behind it, so that a later one finds no functions
struct Op {
  uint32_t version = 8;
  void* (*CreateKernel)(const Op*, const Function*, const void*) = [](const Op*, const Function*, const void* info) -> void* {
    static int kernel; (void)info; CREATED(info); return &kernel; };
  const char* (*GetName)(const Op*) = [](const Op*) { return OPERATOR; };
  const char* (*GetExecutionProviderType)(const Op*) = [](const Op*) -> const char* { return nullptr; };
  int (*GetInputType)(const Op*, size_t) = [](const Op*, size_t) { return 1; };
  size_t (*GetInputTypeCount)(const Op*) = [](const Op*) -> size_t { return 1; };
  int (*GetOutputType)(const Op*, size_t) = [](const Op*, size_t) { return 1; };
  size_t (*GetOutputTypeCount)(const Op*) = [](const Op*) -> size_t { return 1; };
  void (*KernelCompute)(void*, void*) = [](void*, void* context) {
    COMPUTED();
    const void* in = nullptr; void *out = nullptr, *shape = nullptr; const float* x = nullptr; float* y = nullptr;
    size_t rank = 0, count = 0; int64_t dims[16] = {0};
    call(kKernelContext_GetInput, context, size_t{0}, &in);
    call(kGetTensorTypeAndShape, in, &shape);
    call(kGetDimensionsCount, static_cast<const void*>(shape), &rank);
    call(kGetDimensions, static_cast<const void*>(shape), &dims[0], rank);
    call(kGetTensorShapeElementCount, static_cast<const void*>(shape), &count);
    reinterpret_cast<void (*)(void*)>(api[kReleaseTensorTypeAndShapeInfo])(shape);
    call(kKernelContext_GetOutput, context, size_t{0}, static_cast<const int64_t*>(dims), rank, &out);
    call(kGetTensorMutableData, const_cast<void*>(in), &x);
    call(kGetTensorMutableData, out, &y);
    for (size_t i = 0; i < count; ++i) y[i] = FACTOR * x[i];
  };
  void (*KernelDestroy)(void*) = [](void*) {};
  int (*GetInputCharacteristic)(const Op*, size_t) = [](const Op*, size_t) { return 0; };
  int (*GetOutputCharacteristic)(const Op*, size_t) = [](const Op*, size_t) { return 0; };
  Function later[32] = {nullptr};
} op;
}  // namespace

extern "C" void* RegisterCustomOps(void* options, const ApiBase* base) {
  api = base->GetApi(8);
  void* domain = nullptr;
  if (void* status = call(kCreateCustomOpDomain, "test.ops", &domain)) return status;
  if (void* status = call(kCustomOpDomain_Add, domain, static_cast<const void*>(&op))) return status;
  return call(kAddCustomOpDomain, options, domain);
}
