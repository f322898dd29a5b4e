// Calls into the library of an operator that was compiled for the CPU.
#ifndef MILLRACE_CPULIB_BRIDGE_H
#define MILLRACE_CPULIB_BRIDGE_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#include "millrace/description.h"

typedef void (*mr_cpu_run_function)(const millrace_batch *batch, const void *block, uint32_t first, uint32_t end);
typedef void (*mr_cpu_pass_function)(const millrace_batch *batch, const void *block, uint32_t blocks, uint32_t first, uint32_t end);

// Opens a library. On failure, it returns NULL and `message` holds the reason. The library stays open.
static inline void *mr_cpu_open(const char *path, char *message, size_t capacity) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) snprintf(message, capacity, "%s", dlerror());
    return library;
}

// Finds a function of a library. On failure, it returns NULL and `message` holds the reason.
static inline void *mr_cpu_find(void *library, const char *name, char *message, size_t capacity) {
    void *function = dlsym(library, name);
    if (function == NULL) snprintf(message, capacity, "%s", dlerror());
    return function;
}

// The memory of a batch. It keeps addresses of Go's memory only during a call.
typedef struct mr_cpu_batch {
    uint32_t rows, bytes, stride;
} mr_cpu_batch;

static inline millrace_batch mr_cpu_batch_of(mr_cpu_batch b, const uint8_t *data, const uint32_t *offsets, uint8_t *result,
                                             uint8_t *status, uint8_t *strings, uint8_t *scratch, const uint8_t *tables) {
    millrace_batch batch = {sizeof batch,       b.rows,            b.bytes,            b.stride,           (uintptr_t)data,  (uintptr_t)offsets,
                            (uintptr_t)result, (uintptr_t)status, (uintptr_t)strings, (uintptr_t)scratch, (uintptr_t)tables};
    return batch;
}

// Computes the records from `first` up to, but not including, `end`.
static inline void mr_cpu_run(void *run, mr_cpu_batch b, const uint8_t *data, const uint32_t *offsets, uint8_t *result,
                              uint8_t *status, uint8_t *strings, uint8_t *scratch, const uint8_t *tables, const uint8_t *block,
                              uint32_t first, uint32_t end) {
    millrace_batch batch = mr_cpu_batch_of(b, data, offsets, result, status, strings, scratch, tables);
    ((mr_cpu_run_function)run)(&batch, block, first, end);
}

// Runs the blocks of a pass from `first` up to, but not including, `end`.
static inline void mr_cpu_pass(void *pass, mr_cpu_batch b, const uint8_t *data, const uint32_t *offsets, uint8_t *scratch,
                               const uint8_t *tables, const uint8_t *block, uint32_t blocks, uint32_t first, uint32_t end) {
    millrace_batch batch = mr_cpu_batch_of(b, data, offsets, NULL, NULL, NULL, scratch, tables);
    ((mr_cpu_pass_function)pass)(&batch, block, blocks, first, end);
}

#endif
