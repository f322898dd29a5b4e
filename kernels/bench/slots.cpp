// Slots: the memory for batches.
#include "slots.hpp"

#include <algorithm>

#include "forms.hpp"

namespace yardstick {

std::unique_ptr<Slot> FreeList::take(int device, uint64_t bytes) {
    auto fits = [&](const std::unique_ptr<Slot> &slot) { return slot->device == device && slot->bytes == bytes; };
    auto found = std::find_if(kept_.begin(), kept_.end(), fits);
    if (found != kept_.end()) {
        std::unique_ptr<Slot> slot = std::move(*found);
        kept_.erase(found);
        kept_bytes_ -= bytes;
        return slot;
    }
    Pinned in = make_pinned(bytes), out = make_pinned(bytes);
    DeviceMemory device_in = make_device_memory(bytes), device_out = make_device_memory(bytes);
    return std::unique_ptr<Slot>(
        new Slot{device, bytes, std::move(in), std::move(out), std::move(device_in), std::move(device_out)});
}

void FreeList::give_back(std::unique_ptr<Slot> slot) {
    kept_bytes_ += slot->bytes;
    kept_.push_back(std::move(slot));
    while (kept_bytes_ > kMostSlotBytes) {
        kept_bytes_ -= kept_.front()->bytes;
        kept_.pop_front();
    }
}

Slots::Slots(FreeList &free_list, int device, uint64_t bytes, uint64_t count) : free_list_(free_list) {
    if (bytes * count > kMostSlotBytes) {
        throw BadRequest(std::to_string(count) + " slots of " + std::to_string(bytes) + " bytes: give at most " +
                         std::to_string(kMostSlotBytes) + " bytes in total");
    }
    for (uint64_t i = 0; i < count; i++) slots_.push_back(free_list_.take(device, bytes));
}

Slots::~Slots() {
    for (std::unique_ptr<Slot> &slot : slots_) free_list_.give_back(std::move(slot));
}

} // namespace yardstick
