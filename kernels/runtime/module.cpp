// Loads a user's compiled operator into a device. The operator then works like a built-in one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <new>

#include "description.hpp"
#include "driver.hpp"
#include "library.hpp"
#include "operator.hpp"

namespace millrace {

namespace {

constexpr char kDescriptionSymbol[] = "millrace_operator_description", kCodeSymbol[] = "millrace_operator_run";
constexpr char kPassSymbol[] = "millrace_operator_pass_";
constexpr uint64_t kMostBlocks = 0x7fffffff; // maximum number of blocks of a launch

// A loaded operator. It begins with the structure of the ABI, to which the caller has a pointer.
struct Module : millrace_operator {
    int ordinal;
    Driver driver;
    CUmodule module;
    CUfunction kernel;
    CUfunction passes[MILLRACE_MOST_PASSES];
    millrace_description *own; // `description`, in host memory
    std::atomic<uint32_t> instances;
};

struct Instance {
    Module *module;
    ResultSize size;
    void *tables;                         // in device memory; nullptr without tables
    alignas(8) uint8_t block[kMostBlock]; // padded with zeros
};

void free_module(Module *module) {
    free(module->own);
    delete module;
}

// ---- the operator's functions ----

// Copies the tables that follow the parameter block to the device.
int32_t upload_tables(Instance *instance, const uint8_t *params, size_t bytes, millrace_error *error) {
    const Module *module = instance->module;
    uint64_t start = tables_start(module->own);
    if (start >= bytes) return MILLRACE_OK;
    if (int32_t s = check(error, cudaSetDevice(module->ordinal), "cudaSetDevice")) return s;
    return upload(params + start, bytes - start, &instance->tables, error);
}

int32_t create(const millrace_operator *self, int32_t ordinal, const void *params, size_t bytes, void **out,
               millrace_error *error) {
    Module *module = const_cast<Module *>(static_cast<const Module *>(self));
    if (ordinal != module->ordinal) {
        return fail(error, MILLRACE_INVALID, 0, "operator %s was loaded into GPU %d, not into GPU %d", self->name,
                    module->ordinal, ordinal);
    }
    ResultSize size;
    if (int32_t s = bind_block(module->own, params, bytes, &size, error)) return s;
    Instance *instance = new (std::nothrow) Instance{module, size, nullptr, {}};
    if (instance == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for operator %s", self->name);
    if (module->own->parameter_bytes != 0) memcpy(instance->block, params, module->own->parameter_bytes);
    if (int32_t s = upload_tables(instance, static_cast<const uint8_t *>(params), bytes, error)) {
        delete instance;
        return s;
    }
    module->instances++;
    *out = instance;
    return MILLRACE_OK;
}

int32_t destroy(void *self, millrace_error *error) {
    Instance *instance = static_cast<Instance *>(self);
    int32_t status = MILLRACE_OK;
    if (instance->tables != nullptr) {
        status = check(error, cudaSetDevice(instance->module->ordinal), "cudaSetDevice");
        if (status == MILLRACE_OK) status = check(error, cudaFree(instance->tables), "cudaFree");
    }
    instance->module->instances--;
    delete instance;
    return status;
}

int32_t needs(const void *self, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    if (int32_t s = check_shape(shape, error)) return s;
    const Instance *instance = static_cast<const Instance *>(self);
    needs->result = layout_of(instance->size, shape->rows, shape->bytes).end;
    needs->scratch = scratch_of(instance->module->own, shape->rows, shape->bytes);
    return MILLRACE_OK;
}

// The kernel uses uint32 for numbers of threads and records. The result limits blocks * threads to less than 2^31, so that
// neither number overflows when blocks stride over the records.
uint32_t record_blocks(const millrace_description *d, uint64_t rows) {
    return blocks_for(rows, d->teams, (1u << 31) / d->threads - 1);
}

// Launches one kernel. All kernels have the same two arguments.
int32_t launch_kernel(const Instance *instance, CUfunction kernel, uint32_t blocks, uint32_t threads, millrace_batch *batch,
                      void *cuda_stream, millrace_error *error) {
    const Module *module = instance->module;
    void *arguments[] = {batch, const_cast<uint8_t *>(instance->block)};
    CUresult launched = module->driver.launch(kernel, blocks, 1, 1, threads, 1, 1, 0, static_cast<CUstream>(cuda_stream),
                                              arguments, nullptr);
    int32_t status = check(error, launched, module->name);
    if (status == MILLRACE_INVALID) status = error->status = MILLRACE_LAUNCH; // like check_launch
    return status;
}

// Clears the scratch memory and launches the passes.
int32_t launch_passes(const Instance *instance, millrace_batch *batch, void *cuda_stream, millrace_error *error) {
    const Module *module = instance->module;
    const millrace_description *d = module->own;
    if (d->passes == 0) return MILLRACE_OK;
    cudaError_t cleared = cudaMemsetAsync(reinterpret_cast<void *>(batch->scratch), 0, scratch_of(d, batch->rows, batch->bytes),
                                          static_cast<cudaStream_t>(cuda_stream));
    if (int32_t s = check(error, cleared, "cudaMemsetAsync")) return s;
    for (uint32_t i = 0; i < d->passes; i++) {
        millrace_pass pass = pass_of(d, i);
        uint64_t blocks = blocks_of(pass, batch->rows, batch->bytes);
        if (blocks == 0) continue;
        if (blocks > kMostBlocks) {
            return fail(error, MILLRACE_INVALID, 0, "operator %s: pass %s has %llu blocks for this batch: at most %llu are possible",
                        module->name, pass.name, static_cast<unsigned long long>(blocks), static_cast<unsigned long long>(kMostBlocks));
        }
        if (int32_t s = launch_kernel(instance, module->passes[i], static_cast<uint32_t>(blocks), pass.threads, batch, cuda_stream,
                                      error)) {
            return s;
        }
    }
    return MILLRACE_OK;
}

int32_t launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const Instance *instance = static_cast<const Instance *>(self);
    if (int32_t s = check_shape(args, error)) return s;
    if (args->rows == 0) return MILLRACE_OK;
    const Module *module = instance->module;
    const ResultLayout layout = layout_of(instance->size, args->rows, args->bytes);
    millrace_batch batch = {
        sizeof batch, static_cast<uint32_t>(args->rows), static_cast<uint32_t>(args->bytes), instance->size.stride,
        args->batch, args->offsets, args->result, args->result + layout.status, args->result + layout.strings,
        args->scratch, reinterpret_cast<uint64_t>(instance->tables),
    };
    if (int32_t s = launch_passes(instance, &batch, cuda_stream, error)) return s;
    return launch_kernel(instance, module->kernel, record_blocks(module->own, args->rows), module->own->threads, &batch, cuda_stream,
                         error);
}

// ---- loading ----

// Returns whether the image is complete. The driver doesn't get the size, so it would read beyond a truncated file.
bool complete_elf(const uint8_t *image, uint64_t bytes) {
    if (bytes < 64) return false;
    uint64_t segments, sections;
    uint16_t segment_bytes, segment_count, section_bytes, section_count;
    memcpy(&segments, image + 32, 8), memcpy(&sections, image + 40, 8);
    memcpy(&segment_bytes, image + 54, 2), memcpy(&segment_count, image + 56, 2);
    memcpy(&section_bytes, image + 58, 2), memcpy(&section_count, image + 60, 2);
    return segments <= bytes && static_cast<uint64_t>(segment_bytes) * segment_count <= bytes - segments &&
           sections <= bytes && static_cast<uint64_t>(section_bytes) * section_count <= bytes - sections;
}

bool complete_fatbin(const uint8_t *image, uint64_t bytes) {
    uint16_t header;
    uint64_t rest;
    if (bytes < 16) return false;
    memcpy(&header, image + 6, sizeof header), memcpy(&rest, image + 8, sizeof rest);
    return header <= bytes && rest <= bytes - header;
}

bool is_ptx(const uint8_t *image, uint64_t bytes) {
    if (bytes > 0 && image[bytes - 1] == 0) bytes--;
    return memchr(image, 0, bytes) == nullptr && memmem(image, bytes, ".version", 8) != nullptr;
}

int32_t check_kind(const uint8_t *image, uint64_t bytes, millrace_error *error) {
    constexpr uint8_t kElf[] = {0x7f, 'E', 'L', 'F', 2}, kFatbin[] = {0x50, 0xed, 0x55, 0xba};
    bool complete = true;
    if (bytes >= sizeof kElf && memcmp(image, kElf, sizeof kElf) == 0) {
        complete = complete_elf(image, bytes);
    } else if (bytes >= sizeof kFatbin && memcmp(image, kFatbin, sizeof kFatbin) == 0) {
        complete = complete_fatbin(image, bytes);
    } else if (!is_ptx(image, bytes)) {
        return fail(error, MILLRACE_INVALID, 0, "the image is not a cubin, a fatbin or PTX");
    }
    return complete ? MILLRACE_OK : fail(error, MILLRACE_INVALID, 0, "the image is incomplete");
}

// Converts the result of loading an image. A rejected image doesn't indicate the state of the device, so the code is 0.
int32_t check_load(millrace_error *error, CUresult result, const char *log) {
    const char *name = cudaGetErrorName(static_cast<cudaError_t>(result)), *separator = *log == 0 ? "" : ": ";
    switch (result) {
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND:
    case CUDA_ERROR_SHARED_OBJECT_INIT_FAILED:
    case CUDA_ERROR_NOT_FOUND:
        return fail(error, MILLRACE_INVALID, 0, "the driver refuses the image: %s%s%s", name, separator, log);
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
        return fail(error, MILLRACE_UNAVAILABLE, 0, "this GPU or its driver can't run the image: %s%s%s", name, separator, log);
    default:
        return check(error, result, "cuModuleLoadDataEx");
    }
}

int32_t load_image(Module *module, const void *image, uint64_t bytes, millrace_error *error) {
    if (int32_t s = check_kind(static_cast<const uint8_t *>(image), bytes, error)) return s;
    char *copy = static_cast<char *>(malloc(bytes + 1)); // PTX ends with a zero byte
    if (copy == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for an image");
    memcpy(copy, image, bytes);
    copy[bytes] = 0;
    char log[1024] = {};
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, reinterpret_cast<void *>(sizeof log - 1)};
    CUresult loaded = module->driver.load(&module->module, copy, 2, options, values);
    free(copy);
    return check_load(error, loaded, log);
}

// Converts the result of a search for a symbol.
int32_t check_symbol(millrace_error *error, CUresult result, const char *symbol) {
    if (result != CUDA_ERROR_NOT_FOUND) return check(error, result, symbol);
    return fail(error, MILLRACE_INVALID, 0, "the image has no %s: compile it from a source with millrace/operator.cuh", symbol);
}

// Copies the description from the GPU. A fatbin may be compressed, so the description can't always be read from the file.
int32_t read_description(Module *module, millrace_error *error) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (int32_t s = check_symbol(error, module->driver.global(&address, &bytes, module->module, kDescriptionSymbol),
                                 kDescriptionSymbol)) {
        return s;
    }
    if (bytes < sizeof(millrace_description) || bytes > kMostDescription) {
        return fail(error, MILLRACE_INVALID, 0, "the image has a description of %zu bytes", bytes);
    }
    module->own = static_cast<millrace_description *>(malloc(bytes));
    if (module->own == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for a description");
    if (int32_t s = copy_and_wait(module->own, reinterpret_cast<const void *>(address), bytes, cudaMemcpyDeviceToHost, error)) {
        return s;
    }
    if (int32_t s = check_description(module->own, bytes, error)) return s;
    if (module->own->form != MILLRACE_LIBRARY) return MILLRACE_OK;
    return fail(error, MILLRACE_INVALID, 0, "operator %s is host code: build it as a shared library", module->own->name);
}

// Finds a kernel. The query also loads the kernel's code. If the code were loaded at the first launch, the load could wait for
// running work.
int32_t find_kernel(const Module *module, const char *symbol, uint32_t threads, CUfunction *kernel, millrace_error *error) {
    if (int32_t s = check_symbol(error, module->driver.function(kernel, module->module, symbol), symbol)) return s;
    int most = 0;
    if (int32_t s = check(error, module->driver.attribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, *kernel),
                          "cuFuncGetAttribute")) {
        return s;
    }
    if (threads <= static_cast<uint32_t>(most)) return MILLRACE_OK;
    return fail(error, MILLRACE_UNAVAILABLE, 0, "operator %s has %u threads per block in %s: this GPU can run at most %d",
                module->own->name, threads, symbol, most);
}

int32_t find_kernels(Module *module, millrace_error *error) {
    const millrace_description *d = module->own;
    for (uint32_t i = 0; i < d->passes; i++) {
        millrace_pass pass = pass_of(d, i);
        char symbol[sizeof kPassSymbol + MILLRACE_NAME_BYTES];
        snprintf(symbol, sizeof symbol, "%s%s", kPassSymbol, pass.name);
        if (int32_t s = find_kernel(module, symbol, pass.threads, &module->passes[i], error)) return s;
    }
    return find_kernel(module, kCodeSymbol, d->threads, &module->kernel, error);
}

int32_t load(Module *module, const void *image, uint64_t bytes, millrace_error *error) {
    if (int32_t s = find_driver(&module->driver, error)) return s;
    if (int32_t s = load_image(module, image, bytes, error)) return s;
    int32_t status = read_description(module, error);
    if (status == MILLRACE_OK) status = find_kernels(module, error);
    if (status != MILLRACE_OK) (void)module->driver.unload(module->module); // the first failure is reported
    return status;
}

} // namespace

int32_t operator_load(millrace_device *device, const void *image, uint64_t bytes, const millrace_operator **out,
                      millrace_error *error) {
    if (int32_t s = use(device, error)) return s;
    Module *module = new (std::nothrow) Module();
    if (module == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for an operator");
    module->ordinal = device->ordinal;
    if (int32_t s = load(module, image, bytes, error)) {
        free_module(module);
        return s;
    }
    const millrace_description *d = module->own;
    static_cast<millrace_operator &>(*module) = {sizeof(millrace_operator), d->version, d->name, d, create, destroy, needs, launch};
    *out = module;
    return MILLRACE_OK;
}

int32_t operator_unload(const millrace_operator *op, millrace_error *error) {
    if (is_library(op)) return library_close(op, error);
    if (op->create != create) return fail(error, MILLRACE_INVALID, 0, "operator %s was not loaded", op->name);
    Module *module = const_cast<Module *>(static_cast<const Module *>(op));
    if (uint32_t instances = module->instances) {
        return fail(error, MILLRACE_INVALID, 0, "operator %s is in use: %u instances of it exist", op->name, instances);
    }
    int32_t status = check(error, cudaSetDevice(module->ordinal), "cudaSetDevice");
    if (status == MILLRACE_OK) status = check(error, module->driver.unload(module->module), "cuModuleUnload");
    free_module(module);
    return status;
}

} // namespace millrace
