// The table of requests.
#pragma once

#include <string>
#include <vector>

#include "request.hpp"

namespace yardstick {

// The maximum size of all batches in the slots of one request. The slots need twice that amount of pinned memory.
constexpr uint64_t kMostSlotBytes = 1ull << 30;

// The ways in which the host waits for an event, in the order of the words of the key `wait`.
enum class Wait : uint64_t { spin, yield, sync, blocking };

// The sources of alloc's scratch, in the order of the words of the key `mode`.
enum class ScratchMode : uint64_t { preallocated, synchronous, async_released, async_kept };

// The ways in which the host detects a completion, in the order of the words of the key `way`.
enum class Way : uint64_t { poll, sync, blocking, hostfunc };

const std::vector<Form> &forms();

// The text of --help, generated from the table.
std::string help();

} // namespace yardstick
