// The table of requests.
#pragma once

#include <string>
#include <vector>

#include "request.hpp"

namespace yardstick {

// The maximum size of all batches in the slots of one request. They need twice that amount of pinned memory.
constexpr uint64_t kMostSlotBytes = 1ull << 30;

// How the host waits for an event, in the order of the words of the key `wait`.
enum class Wait : uint64_t { spin, yield, sync, blocking };

// Where alloc's scratch comes from, in the order of the words of the key `mode`.
enum class ScratchMode : uint64_t { preallocated, synchronous, async_released, async_kept };

// How the host learns of a completion, in the order of the words of the key `way`.
enum class Way : uint64_t { poll, sync, blocking, hostfunc };

const std::vector<Form> &forms();

// The text of --help, generated from the table.
std::string help();

} // namespace yardstick
