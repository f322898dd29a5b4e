#include "window.hpp"

#include <sanitizer/asan_interface.h>
#include <stdint.h>
#include <string.h>

#include <memory>

#include "../check.hpp"

#define MILLRACE_GPU
#define __device__
#define __host__
#define __forceinline__ inline
#include "millrace/window.cuh"

namespace {

using millrace::Window;

// A record in a batch, in memory that can't be read outside the batch.
struct Case {
    // Bytes of the memory before the batch, and bytes of the batch before, in and after the record.
    uint32_t skip, before, size, after;

    uint32_t bytes() const { return skip + before + size + after; }
};

void check_window(const Case &c, const uint8_t *memory) {
    uint64_t begin = reinterpret_cast<uint64_t>(memory) + c.skip, end = reinterpret_cast<uint64_t>(memory) + c.bytes();
    const uint8_t *data = memory + c.skip + c.before;
    Window window(data, c.size, begin, end);
    bool inside = c.before >= Window::kBytes && c.after >= Window::kBytes;
    for (uint32_t pass = 0; pass < 3; pass++) { // forward, backward, and in jumps over words
        for (uint32_t n = 0; n < c.size; n++) {
            uint32_t i = pass == 0 ? n : pass == 1 ? c.size - 1 - n : n * 37 % c.size;
            bool loaded = window.at(i);
            CHECK_EQUAL(loaded || !inside, true, "position %u of %u in the middle of a batch isn't loaded", i, c.size);
            bool near_edge = i < Window::kBytes || c.size - i <= 2 * Window::kBytes;
            CHECK_EQUAL(loaded || near_edge, true, "position %u of %u isn't loaded", i, c.size);
            if (!loaded) continue;
            CHECK_EQUAL(window.byte(i), data[i], "position %u of %u, %u bytes before", i, c.size, c.before);
            uint64_t want = 0;
            uint32_t count = Window::kBytes - i % Window::kBytes;
            if (count > c.size - i) count = c.size - i;
            if (count > 8) count = 8;
            memcpy(&want, data + i, count);
            uint64_t mask = count == 8 ? ~0ull : (1ull << 8 * count) - 1;
            CHECK_EQUAL(window.bytes(i) & mask, want, "%u bytes at position %u of %u", count, i, c.size);
        }
    }
}

void check_case(const Case &c) {
    std::unique_ptr<uint8_t[]> memory(new uint8_t[c.bytes()]); // aligned to 16; the sanitizer detects its end
    for (uint32_t i = 0; i < c.bytes(); i++) memory[i] = static_cast<uint8_t>(17 * i + 3);
    ASAN_POISON_MEMORY_REGION(memory.get(), c.skip / 8 * 8);
    check_window(c, memory.get());
    ASAN_UNPOISON_MEMORY_REGION(memory.get(), c.skip);
}

} // namespace

void check_windows() {
    for (uint32_t size = 0; size <= 50; size++) {
        for (uint32_t skip : {0u, 1u, 7u, 8u, 9u, 12u, 15u, 16u}) {
            for (uint32_t before : {0u, 1u, 7u, 8u, 15u, 16u, 17u, 32u}) {
                for (uint32_t after : {0u, 1u, 7u, 8u, 15u, 16u, 31u, 40u}) check_case({skip, before, size, after});
            }
        }
    }
}
