// The probe: a small operation with a known result, which device_check uses to test whether the device works.
#include "runtime.hpp"

namespace millrace {

namespace {

// The architectures for which the library has code, in ascending order, as 100 * major + 10 * minor. nvcc defines the
// list.
constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};

// The expected answer, which differs for every question.
__host__ __device__ inline uint32_t answer_to(uint32_t question) { return question * 2654435761u + 40503u; }

__global__ void probe_kernel(const uint32_t *question, uint32_t *answer) { *answer = answer_to(*question); }

// Any CUDA error in the probe's own work indicates a fault of the device, because the arguments are always the same. If there
// isn't enough memory, the probe drops the question, and a later call enqueues another question.
int32_t judge(Probe *probe, int32_t status, millrace_error *error) {
    if (status == MILLRACE_OK || status == MILLRACE_NOT_READY) return status;
    probe->pending = false;
    if (status == MILLRACE_OUT_OF_MEMORY) return error->status = MILLRACE_NOT_READY;
    return error->status = MILLRACE_LOST;
}

int32_t enqueue(Probe *probe, millrace_error *error) {
    ProbeWords *words = probe->words;
    words->question = ++probe->asked;
    words->answer = ~answer_to(probe->asked);
    uint32_t *question = probe->memory, *answer = probe->memory + 1;
    if (int32_t s = check(error, cudaMemcpyAsync(question, &words->question, sizeof *question, cudaMemcpyHostToDevice, probe->stream),
                          "probe: cudaMemcpyAsync to the device")) {
        return s;
    }
    void *arguments[] = {&question, &answer};
    if (int32_t s = check(error, cudaLaunchKernel(reinterpret_cast<const void *>(probe_kernel), dim3(1), dim3(1), arguments, 0, probe->stream),
                          "probe: cudaLaunchKernel")) {
        return s;
    }
    return check(error, cudaMemcpyAsync(&words->answer, answer, sizeof *answer, cudaMemcpyDeviceToHost, probe->stream),
                 "probe: cudaMemcpyAsync to the host");
}

int32_t ask_locked(Probe *probe, millrace_error *error) {
    if (!probe->pending) {
        if (int32_t s = judge(probe, enqueue(probe, error), error)) return s;
        probe->pending = true;
    }
    int32_t status = check(error, cudaStreamQuery(probe->stream), "probe: cudaStreamQuery");
    if (status != MILLRACE_OK) return judge(probe, status, error);
    probe->pending = false;
    uint32_t answer = __atomic_load_n(&probe->words->answer, __ATOMIC_ACQUIRE), want = answer_to(probe->asked);
    if (answer == want) return MILLRACE_OK;
    return fail(error, MILLRACE_LOST, 0, "probe: the device answered %u where %u is right", answer, want);
}

} // namespace

int least_compute() { return kArchitectures[0] / 10; }

int32_t probe_open(Probe *probe, millrace_error *error) {
    if (int32_t s = check(error, cudaStreamCreateWithFlags(&probe->stream, cudaStreamNonBlocking),
                          "cudaStreamCreateWithFlags")) {
        return s;
    }
    void *memory = nullptr;
    if (int32_t s = check(error, cudaMalloc(&memory, sizeof(ProbeWords)), "cudaMalloc")) return s;
    probe->memory = static_cast<uint32_t *>(memory);
    if (int32_t s = pin(&memory, sizeof(ProbeWords), cudaHostAllocDefault, error)) return s;
    probe->words = static_cast<ProbeWords *>(memory);
    pthread_mutex_init(&probe->mutex, nullptr);
    return load_kernel(probe_kernel, "loading the probe", error);
}

void probe_close(Probe *probe) {
    if (probe->words != nullptr) {
        pthread_mutex_destroy(&probe->mutex);
        (void)cudaFreeHost(probe->words);
    }
    if (probe->memory != nullptr) (void)cudaFree(probe->memory);
    if (probe->stream != nullptr) (void)cudaStreamDestroy(probe->stream);
}

int32_t probe_ask(Probe *probe, millrace_error *error) {
    // Another thread that holds the mutex may be stuck in a hung driver, so this call doesn't wait for it.
    if (pthread_mutex_trylock(&probe->mutex) != 0) {
        return fail(error, MILLRACE_NOT_READY, 0, "probe: another thread is asking");
    }
    int32_t status = ask_locked(probe, error);
    pthread_mutex_unlock(&probe->mutex);
    return status;
}

} // namespace millrace
