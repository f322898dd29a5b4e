// The index of near-duplicates on a GPU. neardup_index.hpp has the order of the kernels. neardup_state.hpp has the functions of
// the ABI.
#include "neardup_index.hpp"
#include "runtime/operator.hpp"

namespace millrace {

// A stream of a GPU, and the error of the call in progress.
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
        kernel<<<static_cast<uint32_t>(blocks), threads, 0, stream>>>(arguments...);
        return check_launch(error, name);
    }
    int32_t run_together(const char *name, uint64_t blocks, uint32_t threads, void (*kernel)(NeardupStep), NeardupStep step) {
        void *arguments[] = {&step};
        (void)cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(kernel), dim3(static_cast<uint32_t>(blocks)),
                                          dim3(threads), arguments, 0, stream);
        return check_launch(error, name);
    }
};

} // namespace millrace

#include "neardup_state.hpp"
