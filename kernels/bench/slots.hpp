// Slots: the memory for batches. The memory is kept between requests, because pinning memory is slow.
#pragma once

#include <stdint.h>

#include <deque>
#include <memory>
#include <vector>

#include "cuda.hpp"

namespace yardstick {

// The memory of one batch in flight. It has four buffers of `bytes` bytes: two on one GPU, and two pinned on the host.
struct Slot {
    int device;
    uint64_t bytes;
    Pinned in, out;
    DeviceMemory device_in, device_out;
};

// Unused slots, ordered by the time of their last use.
class FreeList {
public:
    // Returns a slot of the given size for the given GPU, which must be current. If the list has no such slot, take allocates one.
    // The contents of the slot are undefined.
    std::unique_ptr<Slot> take(int device, uint64_t bytes);

    // Adds a slot to the list, and frees the least recently used slots beyond kMostSlotBytes (forms.hpp). No work
    // may use the slot.
    void give_back(std::unique_ptr<Slot> slot);

private:
    std::deque<std::unique_ptr<Slot>> kept_;
    uint64_t kept_bytes_ = 0;
};

// The slots of one request. They return to the free list when this object is destroyed.
class Slots {
public:
    // Throws BadRequest if the slots would exceed kMostSlotBytes in total.
    Slots(FreeList &free_list, int device, uint64_t bytes, uint64_t count);
    ~Slots();
    Slots(const Slots &) = delete;
    Slots &operator=(const Slots &) = delete;

    Slot &operator[](uint64_t i) const { return *slots_[i]; }
    uint64_t size() const { return slots_.size(); }

private:
    FreeList &free_list_;
    std::vector<std::unique_ptr<Slot>> slots_;
};

} // namespace yardstick
