// The fake driver API. Every function first checks whether it must fail.
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <string>

#include "control.hpp"
#include "millrace/description.h"

struct FakeFunction {
    const FakeModule *module;
    void *code;
    const millrace_pass *pass; // nullptr for the operator's own code
};

struct FakeModule {
    void *library;
    int fd; // descriptor of the library's copy, or -1
    std::map<std::string, FakeFunction> functions;
};

#define ENTER() \
    do { \
        if (int code = fake_enter(__func__)) return static_cast<CUresult>(code); \
    } while (0)

namespace {

constexpr unsigned kFatbin = 0xba55ed50, kCuda = 190; // EM_CUDA: a real cubin, which the CPU can't run
constexpr char kPtx[] = "// .version ";

using Run = void (*)(const millrace_batch *batch, const void *block, uint32_t first, uint32_t end);
using Pass = void (*)(const millrace_batch *batch, const void *block, uint32_t blocks, uint32_t first, uint32_t end);

const millrace_description *description_of(const FakeModule *module) {
    return static_cast<const millrace_description *>(dlsym(module->library, "millrace_operator_description"));
}

// Returns the pass with that symbol, or nullptr.
const millrace_pass *find_pass(const FakeModule *module, const std::string &symbol) {
    const millrace_description *d = description_of(module);
    for (uint32_t i = 0; d != nullptr && i < d->passes; i++) {
        const char *entry = reinterpret_cast<const char *>(d) + d->passes_at + i * d->pass_size;
        const millrace_pass *pass = reinterpret_cast<const millrace_pass *>(entry);
        if (symbol == std::string("millrace_operator_pass_") + pass->name) return pass;
    }
    return nullptr;
}

// Returns the size of a shared library, which ends with its section headers.
size_t size_of(const char *elf) {
    const ElfW(Ehdr) *header = reinterpret_cast<const ElfW(Ehdr) *>(elf);
    return header->e_shoff + header->e_shentsize * header->e_shnum;
}

// Opens a copy of a library. The loader opens each path only once. Each copy's descriptor stays open, so no two libraries have
// the same path.
void *open_copy(const char *elf, int *copy) {
    if (memcmp(elf, ELFMAG, SELFMAG) != 0 || reinterpret_cast<const ElfW(Ehdr) *>(elf)->e_machine == kCuda) return nullptr;
    int fd = *copy = memfd_create("fake-module", MFD_CLOEXEC);
    if (fd < 0) return nullptr;
    size_t bytes = size_of(elf), written = 0;
    while (written < bytes) {
        ssize_t n = write(fd, elf + written, bytes - written);
        if (n <= 0) break;
        written += static_cast<size_t>(n);
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return written == bytes ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
}

void *open_named(const char *ptx) {
    char path[4096];
    const char *end = strchr(ptx, '\n');
    if (end == nullptr || strlen(end) == 0) return nullptr;
    snprintf(path, sizeof path, "%.*s", static_cast<int>(end - ptx), ptx);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void *open_image(const char *image, int *copy) {
    unsigned first;
    memcpy(&first, image, sizeof first);
    if (first == kFatbin) {
        unsigned short header;
        memcpy(&header, image + 6, sizeof header);
        return open_copy(image + header, copy);
    }
    if (!memcmp(image, kPtx, sizeof kPtx - 1)) return open_named(image + sizeof kPtx - 1);
    return open_copy(image, copy);
}

void trace(const char *path, const FakeFunction *function, const unsigned (&sizes)[7], const millrace_batch &batch, const void *block) {
    FILE *file = fopen(path, "a");
    if (file == nullptr) return;
    const millrace_description *d = description_of(function->module);
    fprintf(file, "%s%s%s grid=%u,%u,%u block=%u,%u,%u shared=%u size=%u rows=%u bytes=%u stride=%u status=%llu strings=%llu params=",
            d->name, function->pass == nullptr ? "" : ".", function->pass == nullptr ? "" : function->pass->name, sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], batch.size, batch.rows, batch.bytes,
            batch.stride, static_cast<unsigned long long>(batch.status - batch.result),
            static_cast<unsigned long long>(batch.strings - batch.result));
    for (uint32_t i = 0; i < d->parameter_bytes; i++) fprintf(file, "%02x", static_cast<const uint8_t *>(block)[i]);
    fprintf(file, "\n");
    fclose(file);
}

} // namespace

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned options, CUjit_option *names, void **values) {
    FakeSettings settings;
    if (int code = fake_enter(__func__, &settings)) {
        for (unsigned i = 0; i < options; i++) {
            if (names[i] == CU_JIT_ERROR_LOG_BUFFER) strcpy(static_cast<char *>(values[i]), "ptxas says why");
        }
        return static_cast<CUresult>(code);
    }
    FakeModule *loaded = new FakeModule{nullptr, -1, {}};
    loaded->library = open_image(static_cast<const char *>(image), &loaded->fd);
    if (loaded->library == nullptr) {
        if (loaded->fd >= 0) close(loaded->fd);
        delete loaded;
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *module = loaded;
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
    ENTER();
    fake_wait();
    dlclose(module->library);
    if (module->fd >= 0) close(module->fd);
    delete module;
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER();
    void *code = dlsym(module->library, name);
    if (code == nullptr) return CUDA_ERROR_NOT_FOUND;
    FakeFunction &found = module->functions[name];
    found = {module, code, find_pass(module, name)};
    *function = &found;
    return CUDA_SUCCESS;
}
CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    ENTER();
    void *found = dlsym(module->library, name), *symbol = nullptr;
    Dl_info info;
    if (found == nullptr || dladdr1(found, &info, &symbol, RTLD_DL_SYMENT) == 0 || symbol == nullptr) return CUDA_ERROR_NOT_FOUND;
    *address = reinterpret_cast<CUdeviceptr>(found), *bytes = static_cast<const ElfW(Sym) *>(symbol)->st_size;
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute, CUfunction) {
    FakeSettings settings;
    if (int code = fake_enter(__func__, &settings)) return static_cast<CUresult>(code);
    *value = settings.threads;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared, CUstream, void **arguments, void **) {
    FakeSettings settings;
    if (int code = fake_enter(__func__, &settings)) return static_cast<CUresult>(code);
    if (fake_hangs() || settings.mute) return CUDA_SUCCESS;
    const millrace_batch &batch = *static_cast<const millrace_batch *>(arguments[0]);
    if (settings.trace[0] != 0) {
        trace(settings.trace, function, {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared}, batch, arguments[1]);
    }
    if (function->pass == nullptr) {
        reinterpret_cast<Run>(function->code)(&batch, arguments[1], 0, batch.rows);
        return CUDA_SUCCESS;
    }
    Pass pass = reinterpret_cast<Pass>(function->code); // runs later blocks first, because their order must not matter
    pass(&batch, arguments[1], grid_x, grid_x / 2, grid_x);
    pass(&batch, arguments[1], grid_x, 0, grid_x / 2);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long, cudaDriverEntryPointQueryResult *result) {
    FakeSettings settings;
    if (int code = fake_enter(__func__, &settings)) return static_cast<cudaError_t>(code);
    *function = nullptr, *result = cudaDriverEntryPointSymbolNotFound;
    if (!strcmp(symbol, settings.missing)) return cudaSuccess;
#define FUNCTION(name) \
    if (!strcmp(symbol, #name)) *function = reinterpret_cast<void *>(name), *result = cudaDriverEntryPointSuccess
    FUNCTION(cuModuleLoadDataEx);
    FUNCTION(cuModuleUnload);
    FUNCTION(cuModuleGetFunction);
    FUNCTION(cuModuleGetGlobal);
    FUNCTION(cuFuncGetAttribute);
    FUNCTION(cuLaunchKernel);
    return cudaSuccess;
}
