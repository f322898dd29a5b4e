// Opens a library with a user's operator that has host code. The operator then works like a built-in one. Its host code may
// contradict its declaration. The runtime therefore checks parameter blocks before the host code gets them, and derives the size
// and the layout of results from the declaration.
#include "library.hpp"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include <atomic>
#include <new>

#include "description.hpp"
#include "operator.hpp"

namespace millrace {

namespace {

constexpr char kDescriptionSymbol[] = "millrace_operator_description", kLibrarySymbol[] = "millrace_operator_library";

constexpr uint64_t kMostScratch = 1ull << 40; // bytes; no GPU has more

// An operator of a library, on one device. It begins with the structure of the ABI, to which the caller has a pointer.
struct Opened : millrace_operator {
    int ordinal;
    const millrace_operator *host; // the library's structure
    std::atomic<uint32_t> instances;

    const millrace_description *own() const { return static_cast<const millrace_description *>(description); }
};

struct Instance {
    Opened *opened;
    ResultSize size;
    void *host; // the library's instance
};

// ---- calls of the library ----

// Prepares the error for a call of the library.
void clear(millrace_error *error) { error->code = 0, error->message[0] = 0; }

// Returns the status of a call of the library. The operator's name becomes the beginning of a failure's message. A status without
// a meaning for an operator becomes MILLRACE_INVALID. Code that can't run on this GPU doesn't indicate the state of the device,
// so its error has the code 0.
int32_t named(const char *name, int32_t status, millrace_error *error) {
    if (status == MILLRACE_OK) return status;
    if (status == MILLRACE_NOT_READY || status == MILLRACE_NOT_FOUND) status = MILLRACE_INVALID;
    if (status == MILLRACE_UNAVAILABLE) error->code = 0;
    char message[MILLRACE_MESSAGE_BYTES];
    error->message[sizeof error->message - 1] = 0;
    memcpy(message, error->message, sizeof message);
    return fail(error, status, error->code, "operator %s: %s", name, message[0] == 0 ? "it failed and gave no message" : message);
}

int32_t destroy(void *self, millrace_error *error) {
    Instance *instance = static_cast<Instance *>(self);
    Opened *opened = instance->opened;
    clear(error);
    int32_t status = named(opened->name, opened->host->destroy(instance->host, error), error);
    opened->instances--;
    delete instance;
    return status;
}

int32_t needs(const void *self, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    const Instance *instance = static_cast<const Instance *>(self);
    const Opened *opened = instance->opened;
    if (int32_t s = check_shape(shape, error)) return s;
    const uint64_t result = needs->result = layout_of(instance->size, shape->rows, shape->bytes).end;
    clear(error);
    if (int32_t s = named(opened->name, opened->host->needs(instance->host, shape, needs, error), error)) return s;
    if (needs->result != result) {
        return fail(error, MILLRACE_INVALID, 0, "operator %s: it asks for a result of %llu bytes, and it declares %llu", opened->name,
                    static_cast<unsigned long long>(needs->result), static_cast<unsigned long long>(result));
    }
    if (needs->scratch > kMostScratch) {
        return fail(error, MILLRACE_INVALID, 0, "operator %s: it asks for %llu bytes of scratch: at most %llu are possible",
                    opened->name, static_cast<unsigned long long>(needs->scratch), static_cast<unsigned long long>(kMostScratch));
    }
    needs->in_place = needs->in_place != 0;
    return MILLRACE_OK;
}

// Calls needs for a small batch, so that host code that contradicts its declaration fails before work begins.
int32_t try_needs(const Instance *instance, millrace_error *error) {
    const millrace_shape shape = {sizeof shape, 0, 1, 1, 1};
    millrace_needs result = {};
    result.size = sizeof result;
    return needs(instance, &shape, &result, error);
}

int32_t create(const millrace_operator *self, int32_t ordinal, const void *params, size_t bytes, void **out,
               millrace_error *error) {
    Opened *opened = const_cast<Opened *>(static_cast<const Opened *>(self));
    if (ordinal != opened->ordinal) {
        return fail(error, MILLRACE_INVALID, 0, "operator %s was opened for GPU %d, not for GPU %d", self->name,
                    opened->ordinal, ordinal);
    }
    ResultSize size;
    if (int32_t s = bind_block(opened->own(), params, bytes, &size, error)) return s;
    Instance *instance = new (std::nothrow) Instance{opened, size, nullptr};
    if (instance == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for operator %s", self->name);
    clear(error);
    if (int32_t s = named(self->name, opened->host->create(opened->host, ordinal, params, bytes, &instance->host, error), error)) {
        delete instance;
        return s;
    }
    if (int32_t s = try_needs(instance, error)) {
        millrace_error ignored = {sizeof ignored, 0, 0, {}}; // the first failure is reported
        (void)opened->host->destroy(instance->host, &ignored);
        delete instance;
        return s;
    }
    opened->instances++;
    *out = instance;
    return MILLRACE_OK;
}

int32_t launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const Instance *instance = static_cast<const Instance *>(self);
    const Opened *opened = instance->opened;
    if (int32_t s = check_shape(args, error)) return s;
    if (args->rows == 0) return MILLRACE_OK;
    millrace_launch all = {};
    memcpy(&all, args, args->size < sizeof all ? args->size : sizeof all);
    const ResultLayout layout = layout_of(instance->size, args->rows, args->bytes);
    all.size = sizeof all;
    all.status = instance->size.statuses ? args->result + layout.status : 0;
    all.strings = instance->size.strings ? args->result + layout.strings : 0;
    clear(error);
    return named(opened->name, opened->host->launch(instance->host, cuda_stream, &all, error), error);
}

// ---- opening ----

// Finds a symbol and its size.
const void *find(void *handle, const char *symbol, uint64_t *bytes) {
    const void *found = dlsym(handle, symbol);
    Dl_info info;
    void *entry = nullptr;
    if (found == nullptr || dladdr1(found, &info, &entry, RTLD_DL_SYMENT) == 0 || entry == nullptr) return nullptr;
    *bytes = static_cast<const ElfW(Sym) *>(entry)->st_size;
    return found;
}

// Checks the versions. It reads only members that all versions have.
int32_t check_versions(const char *path, const millrace_library *library, millrace_error *error) {
    if (library->abi_version < MILLRACE_ABI_LEAST) {
        return fail(error, MILLRACE_INVALID, 0,
                    "%s has ABI version %u, and the kernel library has version %u and needs version %u or later: build it with this "
                    "version's millrace/library.cuh",
                    path, library->abi_version, MILLRACE_ABI_VERSION, MILLRACE_ABI_LEAST);
    }
    if (library->least_version > MILLRACE_ABI_VERSION) {
        return fail(error, MILLRACE_INVALID, 0,
                    "%s has ABI version %u and needs version %u or later, and the kernel library has version %u: use a newer worker, or "
                    "build it with this version's millrace/library.cuh",
                    path, library->abi_version, library->least_version, MILLRACE_ABI_VERSION);
    }
    return MILLRACE_OK;
}

// Checks that the operator is complete and matches the description, which a program may have read from the file before.
int32_t check_operator(const char *path, const millrace_operator *op, const void *description, uint64_t bytes,
                       millrace_error *error) {
    constexpr size_t kOperatorBytes = offsetof(millrace_operator, launch) + sizeof(op->launch);
    if (op == nullptr || op->size < kOperatorBytes || op->name == nullptr || op->create == nullptr || op->destroy == nullptr ||
        op->needs == nullptr || op->launch == nullptr) {
        return fail(error, MILLRACE_INVALID, 0, "%s: its operator is incomplete", path);
    }
    if (op->description != description) {
        return fail(error, MILLRACE_INVALID, 0, "%s: the description of its operator is not %s", path, kDescriptionSymbol);
    }
    const millrace_description *d = static_cast<const millrace_description *>(description);
    if (int32_t s = check_description(d, bytes, error)) return s;
    if (d->form != MILLRACE_LIBRARY) {
        return fail(error, MILLRACE_INVALID, 0, "%s: operator %s is described as a kernel of form %u, not as host code", path, d->name,
                    d->form);
    }
    if (d->passes != 0) {
        return fail(error, MILLRACE_INVALID, 0, "%s: operator %s is host code, and it describes %u passes", path, d->name, d->passes);
    }
    if (strcmp(op->name, d->name) != 0 || op->version != d->version) {
        return fail(error, MILLRACE_INVALID, 0, "%s has operator %s version %u, and describes %s version %u", path, op->name,
                    op->version, d->name, d->version);
    }
    return MILLRACE_OK;
}

int32_t open(const char *path, const millrace_operator **op, millrace_error *error) {
    if (strchr(path, '/') == nullptr) {
        return fail(error, MILLRACE_INVALID, 0, "%s is not a path: give one with a slash", path);
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL); // never closed: a CUDA runtime in it can't be unloaded
    if (handle == nullptr) return fail(error, MILLRACE_UNAVAILABLE, 0, "the library can't be opened: %s", dlerror());
    uint64_t bytes = 0, described = 0;
    const millrace_library *library = static_cast<const millrace_library *>(find(handle, kLibrarySymbol, &bytes));
    const void *description = find(handle, kDescriptionSymbol, &described);
    if (library == nullptr || description == nullptr || bytes < offsetof(millrace_library, spare)) {
        return fail(error, MILLRACE_INVALID, 0, "%s is not a library with an operator: it has no %s: use millrace/library.cuh", path,
                    description == nullptr ? kDescriptionSymbol : kLibrarySymbol);
    }
    if (int32_t s = check_versions(path, library, error)) return s;
    if (bytes < sizeof *library || library->size < sizeof *library) {
        return fail(error, MILLRACE_INVALID, 0, "%s: its %s has %u of %llu bytes", path, kLibrarySymbol, library->size,
                    static_cast<unsigned long long>(bytes));
    }
    *op = library->op;
    return check_operator(path, library->op, description, described, error);
}

} // namespace

bool is_library(const millrace_operator *op) { return op->create == create; }

int32_t library_open(millrace_device *device, const char *path, const millrace_operator **out, millrace_error *error) {
    if (int32_t s = use(device, error)) return s;
    const millrace_operator *host = nullptr;
    if (int32_t s = open(path, &host, error)) return s;
    Opened *opened = new (std::nothrow) Opened();
    if (opened == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for an operator");
    opened->ordinal = device->ordinal, opened->host = host;
    static_cast<millrace_operator &>(*opened) = {sizeof(millrace_operator), host->version, host->name, host->description,
                                                 create, destroy, needs, launch};
    *out = opened;
    return MILLRACE_OK;
}

int32_t library_close(const millrace_operator *op, millrace_error *error) {
    Opened *opened = const_cast<Opened *>(static_cast<const Opened *>(op));
    if (uint32_t instances = opened->instances) {
        return fail(error, MILLRACE_INVALID, 0, "operator %s is in use: %u instances of it exist", op->name, instances);
    }
    delete opened;
    return MILLRACE_OK;
}

} // namespace millrace
