// Compiles an operator like the worker, with NVRTC, which is opened at run time.
//
//   nvrtc LIBRARY FILE.cu INCLUDE_FOLDER ARCHITECTURE OUTPUT    LIBRARY is libnvrtc.so; sm_90 gives a cubin
//
// If the compiler reports errors, it prints them unchanged, and its exit status is 1.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <nvrtc.h>

static void *library;

template <class Function>
static Function *find(const char *name) {
    void *found = dlsym(library, name);
    if (found == nullptr) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return reinterpret_cast<Function *>(found);
}
#define NVRTC(name) find<decltype(name)>(#name)

static void check(nvrtcResult result, const char *call) {
    if (result == NVRTC_SUCCESS) return;
    fprintf(stderr, "%s: %s\n", call, NVRTC(nvrtcGetErrorString)(result));
    exit(2);
}

// Opens NVRTC, and before that its built-in functions. NVRTC opens these functions by file name alone, which fails outside the
// loader's path.
static void open_library(const std::string &path) {
    std::string folder = path.substr(0, path.rfind('/') + 1);
    (void)dlopen((folder + "libnvrtc-builtins.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
    library = dlopen(path.c_str(), RTLD_NOW);
    if (library != nullptr) return;
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: nvrtc LIBRARY FILE.cu INCLUDE_FOLDER ARCHITECTURE OUTPUT\n");
        return 2;
    }
    open_library(argv[1]);
    std::ifstream file(argv[2]);
    std::stringstream source;
    source << file.rdbuf();
    std::string include = std::string("--include-path=") + argv[3], architecture = std::string("--gpu-architecture=") + argv[4];
    std::vector<const char *> options = {include.c_str(), architecture.c_str(), "--std=c++17", "--fmad=false"};

    nvrtcProgram program;
    check(NVRTC(nvrtcCreateProgram)(&program, source.str().c_str(), argv[2], 0, nullptr, nullptr), "nvrtcCreateProgram");
    nvrtcResult result = NVRTC(nvrtcCompileProgram)(program, static_cast<int>(options.size()), options.data());
    size_t bytes = 0;
    check(NVRTC(nvrtcGetProgramLogSize)(program, &bytes), "nvrtcGetProgramLogSize");
    std::string log(bytes, 0), code;
    check(NVRTC(nvrtcGetProgramLog)(program, &log[0]), "nvrtcGetProgramLog");
    if (bytes > 1) fprintf(stderr, "%s\n", log.c_str());
    if (result == NVRTC_ERROR_COMPILATION) return 1;
    check(result, "nvrtcCompileProgram");
    check(NVRTC(nvrtcGetCUBINSize)(program, &bytes), "nvrtcGetCUBINSize");
    code.resize(bytes);
    check(NVRTC(nvrtcGetCUBIN)(program, &code[0]), "nvrtcGetCUBIN");
    std::ofstream(argv[5], std::ios::binary) << code;
}
