// Reads a batch, sixteen bytes per thread.
#pragma once

#include <stdint.h>

namespace millrace {

// Returns bytes [position, position + 16) of the batch as little-endian words. Bytes from `limit` on are 0 and are not read. It
// uses one load if the address is a multiple of 16, and four loads if it is a multiple of 4. Otherwise, or near the limit, it
// loads single bytes. The function must not use the read-only path, because a persistent kernel reads its own writes with it.
__device__ inline void load_16(const uint8_t *batch, uint32_t position, uint32_t limit, uint32_t (&words)[4]) {
    const uint8_t *from = batch + position;
    uint64_t address = reinterpret_cast<uint64_t>(from);
    bool whole = position < limit && limit - position >= 16;
    if (whole && address % 16 == 0) {
        uint4 vector = *reinterpret_cast<const uint4 *>(from);
        words[0] = vector.x, words[1] = vector.y, words[2] = vector.z, words[3] = vector.w;
    } else if (whole && address % 4 == 0) {
        for (uint32_t w = 0; w < 4; w++) words[w] = reinterpret_cast<const uint32_t *>(from)[w];
    } else {
        for (uint32_t w = 0; w < 4; w++) words[w] = 0;
        for (uint32_t i = 0; i < 16; i++) {
            if (position + i < limit) words[i / 4] |= static_cast<uint32_t>(from[i]) << (i % 4 * 8);
        }
    }
}

} // namespace millrace
