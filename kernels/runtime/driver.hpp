// The functions of CUDA's driver API that load modules. The CUDA runtime returns their addresses, so the library isn't
// linked with the driver.
#pragma once

#include <cuda.h>

#include "runtime.hpp"

namespace millrace {

struct Driver {
    decltype(&cuModuleLoadDataEx) load;
    decltype(&cuModuleUnload) unload;
    decltype(&cuModuleGetFunction) function;
    decltype(&cuModuleGetGlobal) global;
    decltype(&cuFuncGetAttribute) attribute;
    decltype(&cuLaunchKernel) launch;
};

// Finds the functions. It returns MILLRACE_UNAVAILABLE if the driver lacks a function.
int32_t find_driver(Driver *driver, millrace_error *error);

// Converts the result of a call of the driver. The driver and the CUDA runtime have the same codes.
inline int32_t check(millrace_error *error, CUresult result, const char *call) {
    return check(error, static_cast<cudaError_t>(result), call);
}

} // namespace millrace
