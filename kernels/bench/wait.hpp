// The ways in which the host waits for an event.
#pragma once

#include <cuda_runtime.h>

#include "cuda.hpp"
#include "forms.hpp"

namespace yardstick {

// Creates an untimed event with the flags for this way of waiting.
Event make_wait_event(Wait wait);

// Returns when the event has been reached, or at once if it was never recorded.
void wait_for(cudaEvent_t event, Wait wait);

// Polls until the event has been reached.
inline void poll(cudaEvent_t event) {
    cudaError_t result;
    while ((result = cudaEventQuery(event)) == cudaErrorNotReady) {
    }
    check(result, "cudaEventQuery");
}

} // namespace yardstick
