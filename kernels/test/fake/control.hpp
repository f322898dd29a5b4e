// The settings of the fake runtime. It maps the file whose path is in MILLRACE_FAKE_CUDA. The file begins with eight bytes that
// differ after every change to the file. Words of the form name=value follow, separated by spaces, up to a zero byte:
//
//   call=cudaMemcpyAsync   the function that fails; none by default
//   code=700               the code that it returns
//   from=3                 fails from the third call on; 1 by default
//   how=once               fails once. how=always: fails at every call from then on. how=device: from then on every CUDA
//                          function fails, as after a sticky error. how=hang: from then on no work ends, and functions
//                          that wait for it never return
//   compute=90,70          compute capabilities of the GPUs, one per GPU; two GPUs with 9.0 by default
//   pools=0                there are no memory pools
//   limits=0               the driver doesn't support a limit for a pool
//   answer=1               kernels, such as the probe's, write nothing
//   driver=12000           version of the driver; 13000 by default
//   missing=cuLaunchKernel the driver lacks that function
//   threads=512            maximum number of threads per block of a loaded kernel; 1024 by default
//   trace=/path            appends a line for each launch of a loaded kernel to that file
//   tell=1                 report the first failure on standard error
//
// Every change to the file resets the call counter.
#pragma once

#include <stddef.h>

struct FakeSettings {
    char call[64], missing[64], trace[512];
    int code, from, pools, limits, mute, driver, tell, gpus, threads;
    enum { once, always, device, hang } how;
    int compute[8];
};

// Every fake CUDA function calls fake_enter first. It returns the code with which the function must fail, or 0. It also sets
// *settings to the current settings.
int fake_enter(const char *function, FakeSettings *settings = nullptr);

// Waits forever if work no longer ends.
void fake_wait();

// Returns whether work no longer ends.
bool fake_hangs();
