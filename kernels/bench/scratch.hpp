// The ways to get scratch memory of another size for each batch.
#pragma once

#include <stdint.h>

#include <memory>

#include "cuda.hpp"
#include "forms.hpp"

namespace yardstick {

// Scratch for the batches of one pipeline. A batch takes it before its kernels are enqueued and gives it back behind
// them; finish is called for its slot when the host knows that the batch is done. Every one of the three may call CUDA,
// and the time in such calls is added up.
class Scratch {
public:
    virtual ~Scratch() = default;
    virtual uint8_t *take(uint64_t slot, uint64_t bytes, cudaStream_t stream) = 0;
    virtual void give_back(uint64_t slot, cudaStream_t stream) = 0;
    virtual void finish(uint64_t slot) = 0;

    // Host seconds in allocation calls since the last call of this.
    double take_seconds();

protected:
    // Adds up what an allocation call takes.
    template <class Call>
    void timed(Call call);

private:
    double seconds_ = 0;
};

// most is the largest size that will be asked for.
std::unique_ptr<Scratch> make_scratch(ScratchMode mode, int device, uint64_t slots, uint64_t most);

} // namespace yardstick
