// The ways to allocate scratch memory of a different size for each batch.
#include "scratch.hpp"

#include <utility>
#include <vector>

#include "clock.hpp"

namespace yardstick {

double Scratch::take_seconds() { return std::exchange(seconds_, 0); }

template <class Call>
void Scratch::timed(Call call) {
    double start = now();
    call();
    seconds_ += now() - start;
}

namespace {

// Allocates the largest size once per slot.
class Preallocated : public Scratch {
public:
    Preallocated(uint64_t slots, uint64_t most) {
        for (uint64_t i = 0; i < slots; i++) memory_.push_back(make_device_memory(most));
    }
    uint8_t *take(uint64_t slot, uint64_t, cudaStream_t) override { return memory_[slot].get(); }
    void give_back(uint64_t, cudaStream_t) override {}
    void finish(uint64_t) override {}

private:
    std::vector<DeviceMemory> memory_;
};

// Calls cudaMalloc before the batch and cudaFree after it. cudaFree waits for the kernels that use the memory, and also for all
// other work on the GPU.
class Synchronous : public Scratch {
public:
    explicit Synchronous(uint64_t slots) : memory_(slots) {}
    uint8_t *take(uint64_t slot, uint64_t bytes, cudaStream_t) override {
        timed([&] { memory_[slot] = make_device_memory(bytes); });
        return memory_[slot].get();
    }
    void give_back(uint64_t, cudaStream_t) override {}
    void finish(uint64_t slot) override {
        if (memory_[slot] == nullptr) return;
        timed([&] { check(cudaFree(memory_[slot].release()), "cudaFree"); });
    }

private:
    std::vector<DeviceMemory> memory_;
};

// Allocates from a separate pool, in stream order.
class Pooled : public Scratch {
public:
    Pooled(int device, uint64_t slots, uint64_t threshold) : memory_(slots) {
        cudaMemPoolProps properties = {};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        properties.location.id = device;
        cudaMemPool_t pool = nullptr;
        check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
        pool_.reset(pool);
        check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
              "cudaMemPoolSetAttribute(ReleaseThreshold)");
        // With such dependencies, a slot's stream might wait for another stream, and the comparison would not
        // measure the calls.
        int off = 0;
        check(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &off),
              "cudaMemPoolSetAttribute(ReuseAllowInternalDependencies)");
    }
    uint8_t *take(uint64_t slot, uint64_t bytes, cudaStream_t stream) override {
        timed([&] {
            check(cudaMallocFromPoolAsync(&memory_[slot], bytes, pool_.get(), stream), "cudaMallocFromPoolAsync");
        });
        return static_cast<uint8_t *>(memory_[slot]);
    }
    void give_back(uint64_t slot, cudaStream_t stream) override {
        timed([&] { check(cudaFreeAsync(memory_[slot], stream), "cudaFreeAsync"); });
    }
    void finish(uint64_t) override {}

private:
    MemoryPool pool_;
    std::vector<void *> memory_;
};

} // namespace

std::unique_ptr<Scratch> make_scratch(ScratchMode mode, int device, uint64_t slots, uint64_t most) {
    switch (mode) {
    case ScratchMode::preallocated:
        return std::make_unique<Preallocated>(slots, most);
    case ScratchMode::synchronous:
        return std::make_unique<Synchronous>(slots);
    case ScratchMode::async_released:
        return std::make_unique<Pooled>(device, slots, 0);
    case ScratchMode::async_kept:
        return std::make_unique<Pooled>(device, slots, UINT64_MAX);
    }
    throw Failure("no such way to get scratch");
}

} // namespace yardstick
