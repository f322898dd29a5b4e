// The functions of CUDA's driver API.
#include "driver.hpp"

namespace millrace {

namespace {

template <class Function>
int32_t find(const char *name, Function *function, millrace_error *error) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSuccess;
#if CUDART_VERSION >= 12050 // CUDA 13 has only this function
    cudaError_t status = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
    cudaError_t status = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    if (int32_t s = check(error, status, "cudaGetDriverEntryPoint")) return s;
    if (result != cudaDriverEntryPointSuccess || found == nullptr) {
        return fail(error, MILLRACE_UNAVAILABLE, 0, "the NVIDIA driver has no function %s: install a newer driver", name);
    }
    *function = reinterpret_cast<Function>(found);
    return MILLRACE_OK;
}

} // namespace

int32_t find_driver(Driver *driver, millrace_error *error) {
    if (int32_t s = find("cuModuleLoadDataEx", &driver->load, error)) return s;
    if (int32_t s = find("cuModuleUnload", &driver->unload, error)) return s;
    if (int32_t s = find("cuModuleGetFunction", &driver->function, error)) return s;
    if (int32_t s = find("cuModuleGetGlobal", &driver->global, error)) return s;
    if (int32_t s = find("cuFuncGetAttribute", &driver->attribute, error)) return s;
    return find("cuLaunchKernel", &driver->launch, error);
}

} // namespace millrace
