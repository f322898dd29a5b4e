// Emulates the parts of CUDA's driver API that load operators, for tests without a GPU. An image is the operator
// compiled for the CPU as a shared library:
//
//   the shared library itself      stands for a cubin, which is an ELF file too
//   a fatbin header and the library   stands for a fatbin
//   "// .version", a space and a path in the first line   stands for PTX
//
// A launch computes the whole batch with the library's code, or runs all blocks of a pass. The setting `trace` in
// control.hpp records launches.
#pragma once

#include <cuda_runtime.h>

enum CUresult : int {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_JIT_COMPILATION_DISABLED = 223,
    CUDA_ERROR_INVALID_SOURCE = 300,
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = 302,
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = 303,
    CUDA_ERROR_NOT_FOUND = 500,
};

struct FakeModule;
typedef FakeModule *CUmodule;
struct FakeFunction;
typedef const FakeFunction *CUfunction;
typedef FakeStream *CUstream;
typedef unsigned long long CUdeviceptr;
enum CUjit_option { CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6 };
enum CUfunction_attribute { CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0 };

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned options, CUjit_option *names, void **values);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name);
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared, CUstream stream, void **arguments, void **extra);
