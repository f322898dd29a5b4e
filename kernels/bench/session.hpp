// The environment in which a request runs: its GPU, which is the current device, and the free list of slots.
#pragma once

#include "cuda.hpp"
#include "mix.hpp"
#include "request.hpp"
#include "slots.hpp"

namespace yardstick {

struct Session {
    int device;
    uint32_t multiprocessors;
    uint64_t seed; // different for every request
    FreeList &free_list;

    // Enqueues a slot's kernel on a stream.
    void mix(cudaStream_t stream, const Slot &slot, uint32_t rounds) const {
        launch_mix(stream, MixArgs{slot.device_in.get(), slot.device_out.get(), slot.bytes, rounds, nullptr},
                   multiprocessors);
    }
};

// Makes the request's GPU the current device. Throws BadRequest if there is no GPU with that number, and Failure if
// there is no GPU at all.
Session open_session(const Request &request, FreeList &free_list);

} // namespace yardstick
