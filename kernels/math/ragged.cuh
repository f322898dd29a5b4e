// Ragged batches: rows of any length back to back, and the tiles of bytes that the work is cut into.
//
// Kernels cut the batch into tiles of a fixed number of bytes, never into rows: every block has the same
// work whether a tile holds a thousandth of one row or a thousand rows. A tile finds its rows in the offsets table:
// row r is the bytes offsets[r] up to offsets[r+1].
#pragma once

#include "both.cuh"

namespace millrace {

// The most rows, and the most bytes, that a batch may have. With bit 31 free a position can be added to and compared
// without care.
constexpr uint64_t kMostInBatch = (1u << 31) - 1;

MILLRACE_BOTH uint32_t tile_count(uint32_t bytes, uint32_t tile_bytes) {
    return bytes / tile_bytes + (bytes % tile_bytes != 0);
}

// The row in [low, high] that holds the byte at `position`: the last one that starts at or before it, and so never
// an empty one. It must be in that range.
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

// Entry t of a tile index: the row that holds the first byte of tile t. The entry after the last tile is the row
// of the batch's last byte, so that the rows of tile t are among index[t] to index[t+1]. bytes > 0.
MILLRACE_BOTH uint32_t tile_index_entry(const uint32_t *offsets, uint32_t rows, uint32_t bytes, uint32_t tile_bytes,
                                        uint32_t tile) {
    uint64_t first = static_cast<uint64_t>(tile) * tile_bytes;
    uint32_t position = first < bytes ? static_cast<uint32_t>(first) : bytes - 1;
    return row_at(offsets, 0, rows - 1, position);
}

// Bytes of scratch for the tile index of a batch.
MILLRACE_BOTH uint64_t tile_index_bytes(uint32_t bytes, uint32_t tile_bytes) {
    return bytes == 0 ? 0 : (static_cast<uint64_t>(tile_count(bytes, tile_bytes)) + 1) * sizeof(uint32_t);
}

// A set of positions within a tile, and how many of them lie at or before a position. Bits are set first (on
// the GPU with atomicOr), then `before` is filled in, then rank may be asked.
template <uint32_t kPositions>
struct PositionSet {
    static constexpr uint32_t kWords = kPositions / 32;
    uint32_t bits[kWords];
    uint32_t before[kWords]; // members in the words before this one

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
