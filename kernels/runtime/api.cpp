// The function table, and the only functions that the library exports.
#include "runtime.hpp"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using namespace millrace;

const millrace_api *table() {
    static const millrace_operator *const operators[] = {
        &kCrc32c.op, &kMinhash.op, &kMinhashPlain.op, &kMinhashSpecialized.op, &kMinhashCluster.op, &kQuality.op,
        &kNeardupKeys.op, &kMix.op, &kCrc32cPersistent.op, &kMinhashPersistent.op,
    };
    static const millrace_api api = {
        sizeof api, MILLRACE_ABI_VERSION, MILLRACE_ABI_LEAST, sizeof operators / sizeof operators[0], operators,
        versions, device_count, device_info, device_open, device_close, device_check,
        stream_create, stream_default, stream_destroy, stream_synchronize, stream_wait,
        event_create, event_destroy, event_record, event_query, event_synchronize, event_elapsed,
        host_alloc, host_free, device_alloc, device_free,
        pool_create, pool_destroy, pool_alloc, pool_free, pool_trim, pool_set_threshold, pool_stats,
        copy_in, copy_out, fill, launch,
        notify, completion_fd, completion_drain,
        gate_enqueue, gate_open, range_start, range_end,
        operator_load, operator_unload,
        compiler_open, compile, compiled_free,
        library_open,
        neardup_needs, neardup_create, neardup_destroy, neardup_apply, neardup_undo, neardup_replay,
    };
    return &api;
}

} // namespace

EXPORTED uint32_t millrace_abi_version(void) { return MILLRACE_ABI_VERSION; }

EXPORTED const millrace_api *millrace_api_get(uint32_t least) {
    return least <= MILLRACE_ABI_VERSION ? table() : nullptr;
}
