// Devices: lists the GPUs and opens one.
#include <stdio.h>

#include <new>

#include "runtime.hpp"

namespace millrace {

namespace {

// The text form that nvidia-smi and Kubernetes use.
void format_uuid(const cudaUUID_t &uuid, char *text, size_t room) {
    const unsigned char *b = reinterpret_cast<const unsigned char *>(uuid.bytes);
    snprintf(text, room, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
             b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

// Returns an error for a GPU that is older than all code in the library.
int32_t check_compute(int ordinal, millrace_error *error) {
    int major = 0, minor = 0;
    if (int32_t s = check(error, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
                          "cudaDeviceGetAttribute")) {
        return s;
    }
    if (int32_t s = check(error, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal),
                          "cudaDeviceGetAttribute")) {
        return s;
    }
    int least = least_compute();
    if (10 * major + minor >= least) return MILLRACE_OK;
    return fail(error, MILLRACE_UNAVAILABLE, 0,
                "GPU %d has compute capability %d.%d, and the kernel library needs %d.%d or later: leave the GPU out "
                "(MILLRACE_DEVICES), or build the library for it (ARCHITECTURES in kernels/Makefile)",
                ordinal, major, minor, least / 10, least % 10);
}

// Creates the context and the parts of a device object. If it fails, the caller closes the existing parts.
int32_t open_parts(millrace_device *device, uint32_t completions, millrace_error *error) {
    if (int32_t s = check_compute(device->ordinal, error)) return s;
    if (int32_t s = use(device, error)) return s;
    if (int32_t s = probe_open(&device->probe, error)) return s;
    if (int32_t s = completions_open(&device->completions, completions, error)) return s;
    if (int32_t s = gates_open(&device->gates, error)) return s;
    if (int32_t s = kCrc32c.load(error)) return s;
    if (int32_t s = kMix.load(error)) return s;
    if (int32_t s = kQuality.load(error)) return s;
    if (int32_t s = kNeardupKeys.load(error)) return s;
    if (int32_t s = neardup_load(error)) return s;
    return kMinhash.load(error);
}

void close_parts(millrace_device *device) {
    gates_close(&device->gates);
    completions_close(&device->completions);
    probe_close(&device->probe);
    (void)cudaGetLastError();
}

} // namespace

int32_t versions(int32_t *runtime, int32_t *driver, millrace_error *error) {
    if (int32_t s = check(error, cudaRuntimeGetVersion(runtime), "cudaRuntimeGetVersion")) return s;
    return check(error, cudaDriverGetVersion(driver), "cudaDriverGetVersion");
}

int32_t device_count(int32_t *count, millrace_error *error) {
    *count = 0;
    return check(error, cudaGetDeviceCount(count), "cudaGetDeviceCount");
}

int32_t device_info(int32_t ordinal, millrace_device_info *info, millrace_error *error) {
    cudaDeviceProp properties;
    if (int32_t s = check(error, cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties")) return s;
    snprintf(info->name, sizeof info->name, "%s", properties.name);
    format_uuid(properties.uuid, info->uuid, sizeof info->uuid);
    info->memory = properties.totalGlobalMem;
    info->ordinal = ordinal;
    info->compute_major = properties.major;
    info->compute_minor = properties.minor;
    info->multiprocessors = properties.multiProcessorCount;
    snprintf(info->pci, sizeof info->pci, "%04x:%02x:%02x.0", properties.pciDomainID & 0xffff, properties.pciBusID & 0xff,
             properties.pciDeviceID & 0xff);
    return versions(&info->runtime_version, &info->driver_version, error);
}

int32_t device_open(int32_t ordinal, uint32_t completions, millrace_device **out, millrace_error *error) {
    millrace_device *device = new (std::nothrow) millrace_device();
    if (device == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for a device object");
    device->ordinal = ordinal;
    device->completions.fd = -1;
    if (int32_t s = open_parts(device, completions, error)) {
        close_parts(device);
        delete device;
        return s;
    }
    *out = device;
    return MILLRACE_OK;
}

int32_t device_close(millrace_device *device, millrace_error *error) {
    int32_t status = use(device, error);
    if (status == MILLRACE_OK) status = check(error, cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    close_parts(device);
    delete device;
    return status;
}

int32_t device_check(millrace_device *device, millrace_error *error) {
    if (use(device, error) != MILLRACE_OK) return error->status = MILLRACE_LOST;
    return probe_ask(&device->probe, error);
}

} // namespace millrace
