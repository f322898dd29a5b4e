// What the fake runtime is told to do. The file that MILLRACE_FAKE_CUDA names is mapped: eight bytes that change whenever
// it does, then words of the form name=value, separated by spaces, up to a zero byte:
//
//   call=cudaMemcpyAsync   the function that fails; none by default
//   code=700               with this code
//   from=3                 at the third call of it; 1 by default
//   how=once               just then, or how=always: at every call from then on, or how=device: from then on every
//                          function of CUDA fails, as after a sticky error, or how=hang: from then on no work ends, and
//                          whoever waits for it waits for ever
//   compute=90,70          compute capabilities of the GPUs, of which there are as many; two of 9.0 by default
//   pools=0                no memory pools
//   limits=0               a driver that knows no limit of a pool
//   answer=1               the probe's kernel, or any other, writes nothing
//   driver=12000           the driver's version; 13000 by default
//   tell=1                 say on standard error when the failure comes for the first time
//
// Counting starts anew with every change of the file.
#pragma once

#include <stddef.h>

struct FakeSettings {
    char call[64];
    int code, from, pools, limits, mute, driver, tell, gpus;
    enum { once, always, device, hang } how;
    int compute[8];
};

// Enters a function of CUDA: the code that it is to fail with, 0 for none. Settings are those of now.
int fake_enter(const char *function, FakeSettings *settings = nullptr);

// Waits for ever if no work ends any more.
void fake_wait();

// Whether no work ends any more.
bool fake_hangs();
