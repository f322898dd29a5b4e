// library.cuh: the header of an operator with its own host code, which is built as a shared library, NAME.so. The host
// code may launch several kernels, and call libraries such as cuBLAS. If one kernel is enough, write an operator with
// operator.cuh instead. Such an operator needs no host code and can be tested on a CPU.
//
//     #include <millrace/library.cuh>
//
//     MILLRACE_OPERATOR(name, 1)                  // then parameters, result fields and reasons, as in operator.cuh
//     MILLRACE_RESULT(uint32_t, value)
//
//     static int32_t create(const millrace_operator *, int32_t ordinal, const void *params, size_t bytes, void **instance,
//                           millrace_error *error) { ... }
//     ...
//     MILLRACE_HOST_CODE(create, destroy, needs, launch)
//
// millrace.h specifies these functions. In addition:
//
//  - The worker has checked the parameters. A C struct with the parameters as members, in order of declaration, has the
//    layout of the block.
//  - The worker has already set needs->result for `needs`, which must not change it. `needs` sets needs->scratch. It
//    sets needs->in_place if the kernels may read and write the host's memory.
//  - `launch` writes each record of the result. If the operator declares a reason, it also writes each status: 0, the
//    number of a reason from 1 on in order of declaration, or MILLRACE_FAILED. The record of a status other than 0 is
//    zeros. `launch` isn't called without rows.
//  - `create` loads the kernels, for example with cudaFuncGetAttributes, because a later load could wait for running
//    work.
//  - A function that fails returns MILLRACE_UNAVAILABLE if this GPU can't run the code, MILLRACE_OUT_OF_MEMORY or
//    MILLRACE_INVALID. launch may also return MILLRACE_LAUNCH. MILLRACE_LOST ends the worker, so return it only for
//    sticky errors. Write the message into the error. The worker adds the operator's name.
//  - create, launch and destroy call cudaSetDevice first, because any thread may call them. None of them waits for the
//    device.
//
// Build it with a compiler for CUDA, for every architecture that it will run on:
//
//     nvcc -std=c++17 -O3 -arch=sm_90 -shared -Xcompiler -fPIC,-fvisibility=hidden -cudart static -I HEADERS -o NAME.so NAME.cu
#pragma once

#include "../millrace.h"
#include "millrace/run.cuh"

namespace millrace {

// Describes host code. The description has no threads, and the code's accesses aren't checked.
template <class P, class R, class Reason, class S, class Pass>
MILLRACE_CONSTEXPR DescriptionOf<P, R, Reason, S, Pass> describe_host_code(const char *name, uint32_t version) {
    static_assert(Pass::internal_count_ == 0, "host code launches its kernels itself: remove MILLRACE_PASS and MILLRACE_SCRATCH");
    DescriptionOf<P, R, Reason, S, Pass> all = describe<P, R, Reason, S, Pass>(name, version, MILLRACE_LIBRARY, 0, 0);
    all.head.checked = 0;
    return all;
}

} // namespace millrace

#define MILLRACE_HOST_CODE(create, destroy, needs, launch)   \
    enum : int { millrace_last = MILLRACE_COUNT };           \
    MILLRACE_HOST_CODE_OF(millrace_last, create, destroy, needs, launch)
#define MILLRACE_HOST_CODE_OF(N, create, destroy, needs, launch)                                                   \
    extern "C" {                                                                                                    \
    extern __attribute__((visibility("default"))) const millrace::DescriptionOf<MILLRACE_DECLARED(N)>               \
        millrace_operator_description;                                                                              \
    constexpr millrace::DescriptionOf<MILLRACE_DECLARED(N)> millrace_operator_description =                         \
        millrace::describe_host_code<MILLRACE_DECLARED(N)>(millrace_operator_name, millrace_operator_version);      \
    static const millrace_operator millrace_operator_entry = {sizeof(millrace_operator), millrace_operator_version, \
        millrace_operator_name, &millrace_operator_description, create, destroy, needs, launch};                    \
    extern __attribute__((visibility("default"))) const millrace_library millrace_operator_library;                 \
    const millrace_library millrace_operator_library = {sizeof(millrace_library), MILLRACE_ABI_VERSION,             \
        MILLRACE_ABI_LEAST, 0, &millrace_operator_entry};                                                           \
    }
