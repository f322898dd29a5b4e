// A small batch, and the ways to get it onto a stream.
#pragma once

#include <stdint.h>

#include <memory>

#include "cuda.hpp"
#include "slots.hpp"

namespace yardstick {

// What differs from one small batch to the next: how much of the slot it takes, and what its first kernel adds to each
// byte. Kernel k adds `add` + k, so the output is known from the input.
struct SmallBatch {
    uint64_t bytes; // 1 to the slot's
    uint32_t add;
};

// The slot, and how many kernels stand between its copies. They work in place in device_in.
struct SmallWork {
    const Slot &slot;
    uint32_t kernels;
};

// One way to enqueue a small batch: a copy in, the kernels, a copy out.
class Enqueuer {
public:
    virtual ~Enqueuer() = default;
    virtual void enqueue(cudaStream_t stream, const SmallBatch &batch) = 0;
};

// A call for each copy and each kernel.
std::unique_ptr<Enqueuer> by_calls(const SmallWork &work);

// A graph captured once and launched unchanged: every batch must be the one given here.
std::unique_ptr<Enqueuer> by_graph(const SmallWork &work, const SmallBatch &batch);

// A graph whose kernels' arguments and copies' sizes are set anew, node by node, before each launch.
std::unique_ptr<Enqueuer> by_updated_nodes(const SmallWork &work, const SmallBatch &batch);

// A graph captured anew for each batch, with which the first one's executable form is updated.
std::unique_ptr<Enqueuer> by_recapture(const SmallWork &work, const SmallBatch &batch);

} // namespace yardstick
