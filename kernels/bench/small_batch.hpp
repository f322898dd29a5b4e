// Small batches, and the ways to enqueue a small batch on a stream.
#pragma once

#include <stdint.h>

#include <memory>

#include "cuda.hpp"
#include "slots.hpp"

namespace yardstick {

// The properties in which small batches differ: the bytes of the slot that they use, and the number that the first
// kernel adds to each byte. Kernel k adds `add` + k, so the expected output follows from the input.
struct SmallBatch {
    uint64_t bytes; // 1 to the size of the slot
    uint32_t add;
};

// The slot, and the number of kernels between its copies. The kernels work in place in device_in.
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

// One call for each copy and each kernel.
std::unique_ptr<Enqueuer> by_calls(const SmallWork &work);

// A graph that is captured once and launched unchanged. Every batch must equal `batch`.
std::unique_ptr<Enqueuer> by_graph(const SmallWork &work, const SmallBatch &batch);

// A graph in which the kernels' arguments and the sizes of the copies are updated, node by node, before each launch.
std::unique_ptr<Enqueuer> by_updated_nodes(const SmallWork &work, const SmallBatch &batch);

// A graph that is captured again for each batch and updates the executable form of the first graph.
std::unique_ptr<Enqueuer> by_recapture(const SmallWork &work, const SmallBatch &batch);

} // namespace yardstick
