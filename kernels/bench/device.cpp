// device: describes the GPU, its driver and its runtime.
#include <stdio.h>

#include "answers.hpp"

namespace yardstick {

namespace {

// The text form that nvidia-smi uses.
std::string uuid_text(const cudaUUID_t &uuid) {
    std::string text = "GPU";
    for (int i = 0; i < 16; i++) {
        char byte[4];
        snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
        if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += byte;
    }
    return text;
}

} // namespace

Json answer_device(const Request &, Session &session) {
    cudaDeviceProp properties;
    int driver = 0, runtime = 0;
    check(cudaGetDeviceProperties(&properties, session.device), "cudaGetDeviceProperties");
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    Json answer;
    answer.text("name", properties.name).text("uuid", uuid_text(properties.uuid));
    answer.count("driver_version", static_cast<uint64_t>(driver)).count("runtime_version", static_cast<uint64_t>(runtime));
    answer.count("multiprocessors", session.multiprocessors);
    answer.count("copy_engines", static_cast<uint64_t>(properties.asyncEngineCount));
    return answer;
}

} // namespace yardstick
