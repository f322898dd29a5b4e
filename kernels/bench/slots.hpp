// Slots: the memory that batches go through, kept between requests because pinning it is slow.
#pragma once

#include <stdint.h>

#include <deque>
#include <memory>
#include <vector>

#include "cuda.hpp"

namespace yardstick {

// The memory of one batch in flight: four buffers of `bytes` bytes on one GPU and pinned for it.
struct Slot {
    int device;
    uint64_t bytes;
    Pinned in, out;
    DeviceMemory device_in, device_out;
};

// Slots that nobody uses, the longest unused first.
class Shelf {
public:
    // A slot of that GPU, which must be current, and of that size; made if none is kept. Contents are undefined.
    std::unique_ptr<Slot> take(int device, uint64_t bytes);

    // Keeps a slot, and drops the longest unused ones above kMostSlotBytes (forms.hpp). No work may use it.
    void give_back(std::unique_ptr<Slot> slot);

private:
    std::deque<std::unique_ptr<Slot>> kept_;
    uint64_t kept_bytes_ = 0;
};

// The slots of one request: they go back to the shelf at its end.
class Slots {
public:
    // Throws BadRequest if they would pass kMostSlotBytes together.
    Slots(Shelf &shelf, int device, uint64_t bytes, uint64_t count);
    ~Slots();
    Slots(const Slots &) = delete;
    Slots &operator=(const Slots &) = delete;

    Slot &operator[](uint64_t i) const { return *slots_[i]; }
    uint64_t size() const { return slots_.size(); }

private:
    Shelf &shelf_;
    std::vector<std::unique_ptr<Slot>> slots_;
};

} // namespace yardstick
