// What a request finds when it runs: its GPU, made current, and the slots that others left.
#pragma once

#include "cuda.hpp"
#include "mix.hpp"
#include "request.hpp"
#include "slots.hpp"

namespace yardstick {

struct Session {
    int device;
    uint32_t multiprocessors;
    uint64_t seed; // another for every request
    Shelf &shelf;

    // Puts a slot's kernel on a stream.
    void mix(cudaStream_t stream, const Slot &slot, uint32_t rounds) const {
        launch_mix(stream, MixArgs{slot.device_in.get(), slot.device_out.get(), slot.bytes, rounds, nullptr},
                   multiprocessors);
    }
};

// Makes the request's GPU current. Throws BadRequest if there is no GPU of that number, Failure if there is none.
Session open_session(const Request &request, Shelf &shelf);

} // namespace yardstick
