// The ways to allocate scratch memory of a different size for each batch.
#pragma once

#include <stdint.h>

#include <memory>

#include "cuda.hpp"
#include "forms.hpp"

namespace yardstick {

// Scratch for the batches of one pipeline. A batch calls `take` before its kernels are enqueued and `give_back` after them. The
// batch calls `finish` after the host has detected its completion. All three functions may call CUDA. Scratch adds up the time of
// their CUDA calls.
class Scratch {
public:
    virtual ~Scratch() = default;
    virtual uint8_t *take(uint64_t slot, uint64_t bytes, cudaStream_t stream) = 0;
    virtual void give_back(uint64_t slot, cudaStream_t stream) = 0;
    virtual void finish(uint64_t slot) = 0;

    // Returns the host seconds spent in allocation calls since the previous call of this function.
    double take_seconds();

protected:
    // Adds up the time of an allocation call.
    template <class Call>
    void timed(Call call);

private:
    double seconds_ = 0;
};

// `most` is the largest size that will be requested.
std::unique_ptr<Scratch> make_scratch(ScratchMode mode, int device, uint64_t slots, uint64_t most);

} // namespace yardstick
