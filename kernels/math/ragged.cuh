// Ragged batches: rows of any length back to back, and the tiles of bytes into which the work is divided.
//
// Kernels divide the batch into tiles of a fixed number of bytes, not into rows. Every block therefore has the same amount of
// work, whether a tile contains a thousandth of one row or a thousand rows. A tile finds its rows in the offsets table: row r has
// the bytes from offsets[r] to offsets[r+1] - 1.
#pragma once

#include "both.cuh"

namespace millrace {

// The maximum number of rows and of bytes in a batch. Bit 31 is free, so positions can be added and compared
// without overflow.
constexpr uint64_t kMostInBatch = (1u << 31) - 1;

MILLRACE_BOTH uint32_t tile_count(uint32_t bytes, uint32_t tile_bytes) {
    return bytes / tile_bytes + (bytes % tile_bytes != 0);
}

// Returns the row in [low, high] that contains the byte at `position`: the last row that starts at or before it. The result is
// never an empty row. The caller must ensure that the result is in [low, high].
MILLRACE_BOTH uint32_t row_at(const uint32_t *offsets, uint32_t low, uint32_t high, uint32_t position) {
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (offsets[middle] <= position) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// Returns entry t of a tile index: the row that contains the first byte of tile t. The entry after the last tile is the
// row of the batch's last byte, so the rows of tile t are in the range index[t] to index[t+1]. bytes must be above 0.
MILLRACE_BOTH uint32_t tile_index_entry(const uint32_t *offsets, uint32_t rows, uint32_t bytes, uint32_t tile_bytes,
                                        uint32_t tile) {
    uint64_t first = static_cast<uint64_t>(tile) * tile_bytes;
    uint32_t position = first < bytes ? static_cast<uint32_t>(first) : bytes - 1;
    return row_at(offsets, 0, rows - 1, position);
}

// Returns the size of the scratch for the tile index of a batch, in bytes.
MILLRACE_BOTH uint64_t tile_index_bytes(uint32_t bytes, uint32_t tile_bytes) {
    return bytes == 0 ? 0 : (static_cast<uint64_t>(tile_count(bytes, tile_bytes)) + 1) * sizeof(uint32_t);
}

// A set of positions within a tile. rank returns the number of members at or before a position. First, set the bits (on the GPU
// with atomicOr). Next, compute `before`. Then rank may be called.
template <uint32_t kPositions>
struct PositionSet {
    static constexpr uint32_t kWords = kPositions / 32;
    uint32_t bits[kWords];
    uint32_t before[kWords]; // number of members in the words before this word

    MILLRACE_BOTH bool has(uint32_t position) const { return bits[position / 32] >> (position % 32) & 1; }

    MILLRACE_BOTH uint32_t rank(uint32_t position) const {
        uint32_t upto = bits[position / 32] & (0xffffffffu >> (31 - position % 32));
#ifdef __CUDA_ARCH__
        return before[position / 32] + __popc(upto);
#else
        return before[position / 32] + static_cast<uint32_t>(__builtin_popcount(upto));
#endif
    }
};

} // namespace millrace
