// Compiles operators with NVRTC, without a GPU. The library opens NVRTC at run time, so it works without NVRTC.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <new>

#include "runtime.hpp"

namespace millrace {

namespace {

// The parts of nvrtc.h that are used. These functions are the same in CUDA 12 and 13.
typedef struct _nvrtcProgram *Program;
enum { kOutOfMemory = 1, kInvalidOption = 5, kCompilation = 6, kBuiltins = 7 };
struct Functions {
    int (*version)(int *major, int *minor);
    int (*create)(Program *program, const char *text, const char *name, int headers, const char *const *header_texts,
                  const char *const *header_names);
    int (*destroy)(Program *program);
    int (*compile)(Program program, int count, const char *const *options);
    int (*log_bytes)(Program program, size_t *bytes);
    int (*log)(Program program, char *log);
    int (*image_bytes)(Program program, size_t *bytes);
    int (*image)(Program program, char *image);
    const char *(*message)(int result);
};

// An opened NVRTC. It begins with the structure of the ABI, to which the caller has a pointer.
struct Compiler : millrace_compiler {
    Functions nvrtc;
    char folder[1024]; // folder of NVRTC, with a slash at the end
};

// The options for every operator. Results must equal the results of the code for the CPU.
constexpr const char *kOptions[] = {"--std=c++17", "--fmad=false"};
constexpr uint32_t kOwnOptions = sizeof kOptions / sizeof kOptions[0] + 1; // including the architecture

// ---- opening ----

template <class Function>
bool find(void *library, const char *name, Function *function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
}

bool find_functions(void *library, Functions *f) {
    return find(library, "nvrtcVersion", &f->version) && find(library, "nvrtcCreateProgram", &f->create) &&
           find(library, "nvrtcDestroyProgram", &f->destroy) && find(library, "nvrtcCompileProgram", &f->compile) &&
           find(library, "nvrtcGetProgramLogSize", &f->log_bytes) && find(library, "nvrtcGetProgramLog", &f->log) &&
           find(library, "nvrtcGetCUBINSize", &f->image_bytes) && find(library, "nvrtcGetCUBIN", &f->image) &&
           find(library, "nvrtcGetErrorString", &f->message);
}

// Writes the folder of the library that contains the function, with a slash at the end, or an empty text if the folder
// is unknown.
void folder_of(const void *function, char *folder, size_t room) {
    Dl_info info;
    folder[0] = 0;
    if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return;
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash == nullptr || static_cast<size_t>(slash + 1 - info.dli_fname) >= room) return;
    memcpy(folder, info.dli_fname, slash + 1 - info.dli_fname);
    folder[slash + 1 - info.dli_fname] = 0;
}

void *open_in(const char *folder, const char *name, int flags) {
    char path[1200];
    if (snprintf(path, sizeof path, "%s%s", folder, name) >= static_cast<int>(sizeof path)) return nullptr;
    return dlopen(path, flags);
}

// Opens NVRTC in the folder of this library, or else on the system's search path.
void *search() {
    char folder[1024];
    folder_of(reinterpret_cast<const void *>(compiler_open), folder, sizeof folder);
    const char *const folders[] = {folder, ""};
    for (const char *in : folders) {
        for (const char *name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
            if (void *library = open_in(in, name, RTLD_NOW | RTLD_LOCAL)) return library;
        }
    }
    return nullptr;
}

// Opens NVRTC's built-in functions. NVRTC opens them by file name alone, which fails outside the loader's path. If they can't be
// opened here, NVRTC reports an error when it compiles.
void open_builtins(const Compiler &compiler) {
    char name[64];
    snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", compiler.version / 1000, compiler.version % 1000 / 10);
    if (compiler.folder[0] != 0) (void)open_in(compiler.folder, name, RTLD_NOW | RTLD_GLOBAL);
}

int32_t fail_open(const char *path, millrace_error *error) {
    const char *reason = dlerror();
    return fail(error, MILLRACE_UNAVAILABLE, 0,
                "NVRTC can't be opened (%s): install it (Debian: cuda-nvrtc-12-4), name libnvrtc.so, or use operators that are compiled",
                path == nullptr ? "no libnvrtc.so.13, .12 or .so" : reason == nullptr ? path : reason);
}

int32_t open_compiler(Compiler *compiler, const char *path, millrace_error *error) {
    void *library = path == nullptr ? search() : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return fail_open(path, error);
    int major = 0, minor = 0;
    if (!find_functions(library, &compiler->nvrtc) || compiler->nvrtc.version(&major, &minor) != 0) {
        return fail(error, MILLRACE_UNAVAILABLE, 0, "%s is not NVRTC of CUDA 12 or later", path == nullptr ? "libnvrtc.so" : path);
    }
    compiler->size = sizeof(millrace_compiler), compiler->version = 1000 * major + 10 * minor;
    folder_of(reinterpret_cast<const void *>(compiler->nvrtc.version), compiler->folder, sizeof compiler->folder);
    open_builtins(*compiler);
    return MILLRACE_OK;
}

// ---- compiling ----

int32_t check(millrace_error *error, const Functions &nvrtc, int result, const char *call) {
    if (result == 0) return MILLRACE_OK;
    int32_t status = result == kOutOfMemory ? MILLRACE_OUT_OF_MEMORY : result == kBuiltins ? MILLRACE_UNAVAILABLE : MILLRACE_INVALID;
    return fail(error, status, 0, "%s: %s", call, nvrtc.message(result));
}

int32_t run(const Functions &nvrtc, Program program, const millrace_source *source, int *result, millrace_error *error) {
    char architecture[64];
    snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%u", source->compute);
    uint32_t count = kOwnOptions + source->option_count;
    const char **options = new (std::nothrow) const char *[count];
    if (options == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for the compiler's options");
    options[0] = architecture;
    for (uint32_t i = 1; i < count; i++) options[i] = i < kOwnOptions ? kOptions[i - 1] : source->options[i - kOwnOptions];
    *result = nvrtc.compile(program, static_cast<int>(count), options);
    delete[] options;
    return MILLRACE_OK;
}

// Allocates `bytes` bytes and a terminating zero.
char *text_of(size_t bytes) {
    char *text = static_cast<char *>(malloc(bytes + 1));
    if (text != nullptr) text[bytes] = 0;
    return text;
}

int32_t take_log(const Functions &nvrtc, Program program, millrace_compiled *compiled, millrace_error *error) {
    size_t bytes = 0;
    if (int32_t s = check(error, nvrtc, nvrtc.log_bytes(program, &bytes), "nvrtcGetProgramLogSize")) return s;
    char *log = text_of(bytes);
    if (log == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for the compiler's log");
    compiled->log = log;
    return check(error, nvrtc, nvrtc.log(program, log), "nvrtcGetProgramLog");
}

int32_t take_image(const Functions &nvrtc, Program program, millrace_compiled *compiled, millrace_error *error) {
    size_t bytes = 0;
    if (int32_t s = check(error, nvrtc, nvrtc.image_bytes(program, &bytes), "nvrtcGetCUBINSize")) return s;
    char *image = text_of(bytes);
    if (image == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for an image");
    compiled->image = image, compiled->bytes = bytes;
    return check(error, nvrtc, nvrtc.image(program, image), "nvrtcGetCUBIN");
}

int32_t compile_program(const Compiler &compiler, Program program, const millrace_source *source, millrace_compiled *compiled,
                        millrace_error *error) {
    int result = 0;
    if (int32_t s = run(compiler.nvrtc, program, source, &result, error)) return s;
    if (int32_t s = take_log(compiler.nvrtc, program, compiled, error)) return s;
    switch (result) {
    case kCompilation:
        return MILLRACE_OK;
    case kInvalidOption: // NVRTC also returns it for an architecture that is newer than NVRTC
        return fail(error, MILLRACE_INVALID, 0, "NVRTC %d.%d refuses an option, or compute capability %u.%u: %s",
                    compiler.version / 1000, compiler.version % 1000 / 10, source->compute / 10, source->compute % 10, compiled->log);
    case kBuiltins:
        return fail(error, MILLRACE_UNAVAILABLE, 0, "NVRTC in %s can't compile: install libnvrtc-builtins of the same version: %s",
                    compiler.folder, compiled->log);
    }
    if (int32_t s = check(error, compiler.nvrtc, result, "nvrtcCompileProgram")) return s;
    return take_image(compiler.nvrtc, program, compiled, error);
}

} // namespace

int32_t compiler_open(const char *path, const millrace_compiler **out, millrace_error *error) {
    Compiler *compiler = new (std::nothrow) Compiler();
    if (compiler == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for a compiler");
    if (int32_t s = open_compiler(compiler, path, error)) {
        delete compiler;
        return s;
    }
    *out = compiler;
    return MILLRACE_OK;
}

int32_t compile(const millrace_compiler *self, const millrace_source *source, millrace_compiled **out, millrace_error *error) {
    const Compiler &compiler = *static_cast<const Compiler *>(self);
    millrace_compiled *compiled = new (std::nothrow) millrace_compiled();
    if (compiled == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for a compiled operator");
    compiled->size = sizeof *compiled;
    Program program = nullptr;
    int created = compiler.nvrtc.create(&program, source->text, source->name, static_cast<int>(source->headers),
                                        source->header_texts, source->header_names);
    int32_t status = check(error, compiler.nvrtc, created, "nvrtcCreateProgram");
    if (status == MILLRACE_OK) {
        status = compile_program(compiler, program, source, compiled, error);
        (void)compiler.nvrtc.destroy(&program);
    }
    if (status != MILLRACE_OK) {
        compiled_free(compiled);
        return status;
    }
    *out = compiled;
    return MILLRACE_OK;
}

void compiled_free(millrace_compiled *compiled) {
    free(const_cast<void *>(compiled->image));
    free(const_cast<char *>(compiled->log));
    delete compiled;
}

} // namespace millrace
