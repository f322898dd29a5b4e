// Errors: from cudaError_t to the ABI's statuses, and into the caller's buffer.
#include <stdarg.h>
#include <stdio.h>

#include "runtime.hpp"

namespace millrace {

namespace {

// Which kind of failure a CUDA error is. LOST are those that CUDA documents as leaving the process's context
// unusable ("any further CUDA work will return the same error"), and those of a device that has gone.
int32_t status_of(cudaError_t result) {
    switch (result) {
    case cudaErrorNotReady:
        return MILLRACE_NOT_READY;
    case cudaErrorMemoryAllocation:
        return MILLRACE_OUT_OF_MEMORY;
    case cudaErrorLaunchOutOfResources:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorInvalidPtx:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorLaunchMaxDepthExceeded:
        return MILLRACE_LAUNCH;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorStubLibrary:
    case cudaErrorDevicesUnavailable:
        return MILLRACE_UNAVAILABLE;
    case cudaErrorInvalidDevice:
        return MILLRACE_NOT_FOUND;
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorContextIsDestroyed:
    case cudaErrorCudartUnloading:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsServerNotReady:
    case cudaErrorExternalDevice:
    case cudaErrorTimeout:
    case cudaErrorUnknown:
        return MILLRACE_LOST;
    default:
        return MILLRACE_INVALID;
    }
}

} // namespace

int32_t fail(millrace_error *error, int32_t status, int32_t code, const char *format, ...) {
    error->status = status;
    error->code = code;
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return status;
}

int32_t fail_cuda(millrace_error *error, cudaError_t result, const char *call) {
    // A sticky error stays in the runtime whatever is done; this clears the others.
    (void)cudaGetLastError();
    int32_t status = status_of(result);
    if (status == MILLRACE_UNAVAILABLE) {
        return fail(error, status, result, "%s: %s (is the NVIDIA driver installed, new enough, and a GPU visible?)",
                    call, cudaGetErrorString(result));
    }
    return fail(error, status, result, "%s: %s: %s", call, cudaGetErrorName(result), cudaGetErrorString(result));
}

int32_t check_launch(millrace_error *error, const char *kernel) {
    cudaError_t result = cudaGetLastError();
    if (result == cudaSuccess) return MILLRACE_OK;
    int32_t status = fail_cuda(error, result, kernel);
    if (status != MILLRACE_LOST && status != MILLRACE_OUT_OF_MEMORY) {
        status = error->status = MILLRACE_LAUNCH;
    }
    return status;
}

} // namespace millrace
