// This file defines the kinds of kernels for minhash, and which features of a device each kind requires. It launches these kernels.
#pragma once

#include "minhash_cluster.cuh"
#include "minhash_kernels.cuh"
#include "minhash_specialized.cuh"
#include "runtime/operator.hpp"

namespace millrace {

enum class MinhashVariant { plain, specialized, cluster };

// The properties of the device that launches depend on.
struct MinhashDevice {
    int32_t ordinal;
    uint32_t multiprocessors;
    uint32_t capability; // 10 * major + minor
};

inline int32_t find_device(int32_t ordinal, MinhashDevice *device, millrace_error *error) {
    int major = 0, minor = 0;
    if (int32_t s = check(error, cudaSetDevice(ordinal), "cudaSetDevice")) return s;
    if (int32_t s = check(error, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
                          "cudaDeviceGetAttribute")) {
        return s;
    }
    if (int32_t s = check(error, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal),
                          "cudaDeviceGetAttribute")) {
        return s;
    }
    device->ordinal = ordinal;
    device->capability = static_cast<uint32_t>(10 * major + minor);
    return multiprocessors(ordinal, &device->multiprocessors, error);
}

inline const char *name_of(MinhashVariant variant) {
    switch (variant) {
    case MinhashVariant::plain: return "minhash:plain";
    case MinhashVariant::specialized: return "minhash:warp-specialized";
    case MinhashVariant::cluster: return "minhash:cluster";
    }
    return "minhash";
}

inline bool available(const MinhashDevice &device, MinhashVariant variant) {
    return variant == MinhashVariant::plain || device.capability >= 90;
}

// Returns MILLRACE_UNAVAILABLE if the device lacks a feature that the variant requires.
inline int32_t require(const MinhashDevice &device, MinhashVariant variant, millrace_error *error) {
    if (available(device, variant)) return MILLRACE_OK;
    return fail(error, MILLRACE_UNAVAILABLE, 0,
                "%s needs compute capability 9.0 and GPU %d has %u.%u: use minhash, which runs on every GPU",
                name_of(variant), device.ordinal, device.capability / 10, device.capability % 10);
}

// Loads a kernel that needs `shared` bytes of dynamic shared memory, and configures most of an SM's memory as shared memory.
template <class Kernel>
int32_t load_sharing(Kernel *kernel, size_t shared, const char *name, millrace_error *error) {
    if (int32_t s = load_kernel(kernel, name, error)) return s;
    if (int32_t s = check(error,
                          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(shared)),
                          name)) {
        return s;
    }
    return check(error,
                 cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                      cudaSharedmemCarveoutMaxShared),
                 name);
}

// Loads the kernels of every variant that the current device supports.
inline int32_t load_minhash(const MinhashDevice &device, millrace_error *error) {
    if (int32_t s = load_kernel(minhash_prepare, "loading minhash_prepare", error)) return s;
    if (int32_t s = load_sharing(minhash_tiles, 0, "loading minhash_tiles", error)) return s;
    if (!available(device, MinhashVariant::specialized)) return MILLRACE_OK;
    if (int32_t s = load_sharing(minhash_specialized, sizeof(SpecializedShared), "loading minhash_specialized", error)) {
        return s;
    }
    return load_sharing(minhash_cluster, sizeof(ClusterShared), "loading minhash_cluster", error);
}

inline int32_t launch_prepare(const MinhashDevice &device, const MinhashWork &work, uint64_t rows, cudaStream_t stream,
                              millrace_error *error) {
    constexpr uint32_t kBlocks = 8; // per multiprocessor: the maximum
    uint32_t entries = work.bytes == 0 ? 0 : work.tiles + 1;
    uint32_t blocks = blocks_for(rows * 32, kMinhashThreads, device.multiprocessors * kBlocks);
    minhash_prepare<<<blocks, kMinhashThreads, 0, stream>>>(work.offsets, static_cast<uint32_t>(rows), work.bytes,
                                                            entries, work.hashes, const_cast<uint32_t *>(work.index),
                                                            work.taken, work.result);
    return check_launch(error, "minhash_prepare");
}

inline int32_t launch_cluster(const MinhashWork &work, cudaStream_t stream, millrace_error *error) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = kClusterBlocks, cluster.val.clusterDim.y = 1, cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((work.tiles + kClusterBlocks - 1) / kClusterBlocks * kClusterBlocks);
    config.blockDim = dim3(kMinhashThreads);
    config.dynamicSmemBytes = sizeof(ClusterShared);
    config.stream = stream;
    config.attrs = &cluster, config.numAttrs = 1;
    (void)cudaLaunchKernelEx(&config, minhash_cluster, work); // check_launch reports the result
    return check_launch(error, "minhash_cluster");
}

// Launches the variant's kernel over a batch that is not empty.
inline int32_t launch_tiles(const MinhashDevice &device, MinhashVariant variant, const MinhashWork &work,
                            cudaStream_t stream, millrace_error *error) {
    switch (variant) {
    case MinhashVariant::plain:
        minhash_tiles<<<work.tiles, kMinhashThreads, 0, stream>>>(work);
        return check_launch(error, "minhash_tiles");
    case MinhashVariant::specialized: {
        uint32_t resident = device.multiprocessors * kSpecializedBlocks;
        minhash_specialized<<<work.tiles < resident ? work.tiles : resident, kSpecializedThreads,
                              sizeof(SpecializedShared), stream>>>(work);
        return check_launch(error, "minhash_specialized");
    }
    case MinhashVariant::cluster:
        return launch_cluster(work, stream, error);
    }
    return fail(error, MILLRACE_INVALID, 0, "minhash: no variant %d", static_cast<int>(variant));
}

} // namespace millrace
