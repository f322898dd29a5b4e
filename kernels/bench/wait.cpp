// The ways in which the host waits for an event.
#include "wait.hpp"

#include <sched.h>

namespace yardstick {

Event make_wait_event(Wait wait) {
    return make_event(cudaEventDisableTiming | (wait == Wait::blocking ? cudaEventBlockingSync : cudaEventDefault));
}

void wait_for(cudaEvent_t event, Wait wait) {
    switch (wait) {
    case Wait::spin:
        return poll(event);
    case Wait::yield: {
        cudaError_t result;
        while ((result = cudaEventQuery(event)) == cudaErrorNotReady) sched_yield();
        return check(result, "cudaEventQuery");
    }
    case Wait::sync:
    case Wait::blocking: // the event's flag makes it block
        return check(cudaEventSynchronize(event), "cudaEventSynchronize");
    }
}

} // namespace yardstick
