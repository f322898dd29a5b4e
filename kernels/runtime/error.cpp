// Errors: converts cudaError_t to the ABI's statuses and writes the caller's buffer.
#include <stdarg.h>
#include <stdio.h>

#include "runtime.hpp"

namespace millrace {

namespace {

// Returns the kind of failure of a CUDA error. Every code that is not listed here is a loss. Toolkits add codes, and an unknown
// code may come from a lost device. An unknown code is therefore never treated as an invalid argument. The process ends, and the
// next process checks the device again. internal/device/cuda/testdata/codes.txt lists every code with its kind, and a test
// compares it with this function.
int32_t status_of(cudaError_t result) {
    switch (result) {
    case cudaErrorNotReady:
        return MILLRACE_NOT_READY;
    case cudaErrorMemoryAllocation:
        return MILLRACE_OUT_OF_MEMORY;
    case cudaErrorInvalidConfiguration:
    case cudaErrorLaunchMaxDepthExceeded:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidPtx:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilationDisabled:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorLaunchIncompatibleTexturing:
    case cudaErrorCooperativeLaunchTooLarge:
    case cudaErrorInvalidClusterSize:
        return MILLRACE_LAUNCH;
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
        return MILLRACE_UNAVAILABLE;
    case cudaErrorInvalidDevice:
        return MILLRACE_NOT_FOUND;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidPitchValue:
    case cudaErrorInvalidSymbol:
    case cudaErrorInvalidHostPointer:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorNotYetImplemented:
    case cudaErrorUnsupportedLimit:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered:
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
        return MILLRACE_INVALID;
    default:
        return MILLRACE_LOST;
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
    // This call clears all errors except a sticky error.
    (void)cudaGetLastError();
    int32_t status = status_of(result);
    if (status == MILLRACE_UNAVAILABLE) {
        return fail(error, status, result, "%s: %s (is the NVIDIA driver installed, new enough, and a GPU visible?)",
                    call, cudaGetErrorString(result));
    }
    return fail(error, status, result, "%s: %s: %s", call, cudaGetErrorName(result), cudaGetErrorString(result));
}

int32_t check_image(millrace_error *error, cudaError_t result, const char *kernel) {
    int32_t status = check(error, result, kernel);
    if (status != MILLRACE_LAUNCH) return status;
    return fail(error, MILLRACE_UNAVAILABLE, 0,
                "%s: %s: this GPU and its driver cannot run the kernels that the library has: it was built for compute "
                "capability %d.%d and later (docs/gpus.md)", kernel, cudaGetErrorName(result), least_compute() / 10, least_compute() % 10);
}

int32_t check_launch(millrace_error *error, const char *kernel) {
    cudaError_t result = cudaGetLastError();
    if (result == cudaSuccess) return MILLRACE_OK;
    int32_t status = fail_cuda(error, result, kernel);
    if (status == MILLRACE_INVALID) status = error->status = MILLRACE_LAUNCH;
    return status;
}

} // namespace millrace
