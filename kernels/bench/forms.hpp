// Every request there is.
#pragma once

#include <string>
#include <vector>

#include "request.hpp"

namespace yardstick {

// The most bytes of batches that one request may have in slots: they take twice that in pinned memory.
constexpr uint64_t kMostSlotBytes = 1ull << 30;

// How the host learns that an event has come: the order is that of the words of the key `wait`.
enum class Wait : uint64_t { spin, yield, sync, blocking };

// Where alloc's scratch comes from, likewise of `mode`.
enum class ScratchMode : uint64_t { preallocated, synchronous, async_released, async_kept };

// How completion is learnt, likewise of `way`.
enum class Way : uint64_t { poll, sync, blocking, hostfunc };

const std::vector<Form> &forms();

// What --help prints, from the table.
std::string help();

} // namespace yardstick
