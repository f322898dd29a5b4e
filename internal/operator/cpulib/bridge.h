// Calls into the library of an operator that was compiled for the CPU.
#ifndef MILLRACE_CPULIB_BRIDGE_H
#define MILLRACE_CPULIB_BRIDGE_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#include "millrace/description.h"

typedef void (*mr_cpu_run_function)(const millrace_batch *batch, const void *block, uint32_t first, uint32_t end);

// Opens a library and finds its code. On failure, it returns NULL and `message` holds the reason. The library stays open.
static inline mr_cpu_run_function mr_cpu_open(const char *path, char *message, size_t room) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    mr_cpu_run_function run = NULL;
    if (library != NULL) *(void **)&run = dlsym(library, "millrace_operator_run");
    if (run == NULL) snprintf(message, room, "%s", dlerror());
    return run;
}

// Computes the records from `first` up to, but not including, `end`.
static inline void mr_cpu_run(mr_cpu_run_function run, uint32_t rows, uint32_t bytes, uint32_t stride, const uint8_t *data,
                              const uint32_t *offsets, uint8_t *result, uint8_t *status, uint8_t *strings,
                              const uint8_t *block, uint32_t first, uint32_t end) {
    millrace_batch batch = {sizeof batch, rows, bytes, stride, (uintptr_t)data, (uintptr_t)offsets, (uintptr_t)result, (uintptr_t)status,
                            (uintptr_t)strings};
    run(&batch, block, first, end);
}

#endif
