// The index of near-duplicates in the fake library. It is the real index, but its kernels run on fibers.
#include <pthread.h>

#include "../../runtime/runtime.hpp"

#undef __device__
#undef __global__
#include "../cuda_on_host.hpp"
#include "../hopper_on_host.hpp"

#include "../../neardup_index.hpp"

namespace millrace {

static pthread_mutex_t fibers = PTHREAD_MUTEX_INITIALIZER; // the emulator runs one kernel at a time

struct NeardupQueue {
    cudaStream_t stream;
    millrace_error *error;

    int32_t clear(void *memory, uint64_t bytes) {
        return check(error, cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync");
    }
    int32_t copy(void *to, const void *from, uint64_t bytes) {
        return check(error, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
    }
    template <class... Parameters, class... Arguments>
    int32_t run(const char *name, uint64_t blocks, uint32_t threads, void (*kernel)(Parameters...), const Arguments &...arguments) {
        if (int32_t s = check_launch(error, name)) return s;
        pthread_mutex_lock(&fibers);
        emulator::launch(static_cast<uint32_t>(blocks), threads, kernel, arguments...);
        pthread_mutex_unlock(&fibers);
        return MILLRACE_OK;
    }
    int32_t run_together(const char *name, uint64_t blocks, uint32_t threads, void (*kernel)(NeardupStep), const NeardupStep &step) {
        if (int32_t s = check_launch(error, name)) return s;
        pthread_mutex_lock(&fibers);
        emulator::launch_clusters(static_cast<uint32_t>(blocks), static_cast<uint32_t>(blocks), threads, kernel, step);
        pthread_mutex_unlock(&fibers);
        return MILLRACE_OK;
    }
};

} // namespace millrace

#include "../../neardup_state.hpp"
