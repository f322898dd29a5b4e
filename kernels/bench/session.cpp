// The environment in which a request runs.
#include "session.hpp"

#include <random>
#include <string>

namespace yardstick {

Session open_session(const Request &request, FreeList &free_list) {
    int devices = 0, device = static_cast<int>(request["device"]), multiprocessors = 0;
    cudaError_t counted = cudaGetDeviceCount(&devices);
    if (counted != cudaSuccess || devices == 0) {
        throw Failure(std::string("no usable GPU: ") + cudaGetErrorString(counted) +
                      ": install an NVIDIA driver for this CUDA version or a newer one, and make a GPU visible");
    }
    if (device >= devices) {
        throw BadRequest("device=" + std::to_string(device) + ": give 0 to " + std::to_string(devices - 1) +
                         ", the GPUs visible to this process");
    }
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    std::random_device entropy;
    uint64_t seed = static_cast<uint64_t>(entropy()) << 32 | entropy();
    return Session{device, static_cast<uint32_t>(multiprocessors), seed, free_list};
}

} // namespace yardstick
