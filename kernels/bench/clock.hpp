// The host's clocks.
#pragma once

#include <time.h>

namespace yardstick {

inline double read_clock(clockid_t clock) {
    timespec now = {};
    (void)clock_gettime(clock, &now); // fails only for unknown clocks
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Seconds since an unspecified start.
inline double now() { return read_clock(CLOCK_MONOTONIC); }

// CPU seconds that all threads of the process have used.
inline double cpu_seconds() { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

} // namespace yardstick
