// The kernels of crc32c.
//
// A thread takes 64 consecutive bytes wherever rows begin and end. For every piece of a row in them it computes
// the raw CRC, shifts it by the piece's distance to the row's end, and adds it to the row's record with XOR; only a
// row that runs on past the 64 bytes has a distance other than 0, so a thread shifts once at the most. The threads of
// a warp that hold pieces of one row add theirs up first. A row of many megabytes is thus spread over the whole GPU.
//
// Work for each 2 KiB that a warp takes, counted in instructions: about 16 words * 15 for the tables, 2 to 3
// multiplications of 200 for the shift, 100 for the rest: 800 or so. An H100 (132 SMs, 4 schedulers, 1.755 GHz) issues
// 9.3e11 instructions for a warp a second, which bounds this at 2.3 TB/s. The tables' lookups, 32 lanes on
// 32 banks with collisions (3.4 of them in one bank on average), bound it at 64 * 3.4 cycles of an SM for 2 KiB:
// 2.2 TB/s. Memory gives 3.3 TB/s, the bus 55 GB/s.
#pragma once

#include "load.cuh"
#include "math/crc32c.cuh"
#include "math/ragged.cuh"

namespace millrace {

constexpr uint32_t kCrc32cThreads = 128;
constexpr uint32_t kCrc32cSliceBytes = 64;                    // a thread's share
constexpr uint32_t kCrc32cSliceVectors = kCrc32cSliceBytes / 16;
constexpr uint32_t kCrc32cTileBytes = kCrc32cThreads * kCrc32cSliceBytes; // a block's share

// A tile in shared memory. A thread reads 16 bytes 64 bytes after its neighbour, which would put eight threads on two
// groups of banks; exchanging the vectors of a slice by the slice's number spreads them over all eight.
struct Crc32cTile {
    uint4 vectors[kCrc32cTileBytes / 16];

    static __device__ uint32_t place(uint32_t vector) { return vector ^ (vector >> 3 & 3); }

    __device__ uint8_t byte(uint32_t position) const {
        const uint8_t *vector = reinterpret_cast<const uint8_t *>(&vectors[place(position / 16)]);
        return vector[position % 16];
    }
};

// Brings the tile in, 16 bytes a thread.
__device__ inline void load_tile(Crc32cTile *tile, const uint8_t *batch, uint32_t bytes, uint32_t start) {
    for (uint32_t v = threadIdx.x; v < kCrc32cTileBytes / 16; v += kCrc32cThreads) {
        uint32_t words[4];
        load_16(batch, start + v * 16, bytes, words);
        tile->vectors[Crc32cTile::place(v)] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

// The raw CRC of a whole slice.
__device__ inline uint32_t crc_of_slice(const Crc32cTile &tile, const uint32_t (*slice)[256], uint32_t number) {
    uint32_t crc = 0;
    for (uint32_t v = 0; v < kCrc32cSliceVectors; v++) {
        uint4 vector = tile.vectors[Crc32cTile::place(number * kCrc32cSliceVectors + v)];
        crc = crc32c_word(slice, crc, vector.x);
        crc = crc32c_word(slice, crc, vector.y);
        crc = crc32c_word(slice, crc, vector.z);
        crc = crc32c_word(slice, crc, vector.w);
    }
    return crc;
}

// The raw CRC of part of a slice; positions count from the tile's start.
__device__ inline uint32_t crc_of_bytes(const Crc32cTile &tile, const uint32_t (*slice)[256], uint32_t from,
                                        uint32_t to) {
    uint32_t crc = 0;
    for (uint32_t i = from; i < to; i++) crc = crc32c_byte(slice, crc, tile.byte(i));
    return crc;
}

// A piece of a row that reaches the end of a thread's slice, shifted to the row's end.
struct Piece {
    uint32_t row;
    uint32_t crc;
};

// A row that no piece belongs to.
constexpr uint32_t kNoRow = 0xffffffffu;

// The rows of a tile, and where they are in the batch.
struct Crc32cRows {
    const uint32_t *offsets;
    uint32_t first, last; // the tile's rows are among these
    uint32_t start;       // of the tile
};

// Adds the pieces that end within the slice [from, to) of the batch, and returns the one that reaches its end.
__device__ inline Piece crc_of_pieces(const Crc32cTile &tile, const Crc32cTables *tables,
                                      const uint32_t (*slice)[256], const Crc32cRows &rows, uint32_t from, uint32_t to,
                                      uint32_t *result) {
    for (uint32_t row = rows.first, position = from;;) {
        row = row_at(rows.offsets, row, rows.last, position); // passes empty rows by
        uint32_t end = rows.offsets[row + 1], until = end < to ? end : to;
        uint32_t crc = until - position == kCrc32cSliceBytes
                           ? crc_of_slice(tile, slice, (position - rows.start) / kCrc32cSliceBytes)
                           : crc_of_bytes(tile, slice, position - rows.start, until - rows.start);
        if (until == to) return Piece{row, crc32c_shift(tables->power, crc, end - until)};
        atomicXor(&result[row], crc);
        position = end;
    }
}

// Adds every thread's piece to its row, one addition for each row in the warp.
__device__ inline void add_pieces(Piece piece, uint32_t *result) {
    uint32_t same = __match_any_sync(0xffffffffu, piece.row);
    uint32_t sum = __reduce_xor_sync(same, piece.crc);
    bool leads = static_cast<uint32_t>(__ffs(static_cast<int>(same))) - 1 == threadIdx.x % 32;
    if (leads && piece.row != kNoRow) atomicXor(&result[piece.row], sum);
}

static __global__ void __launch_bounds__(kCrc32cThreads)
    crc32c_tiles(const Crc32cTables *tables, const uint8_t *batch, const uint32_t *offsets, uint32_t bytes,
                 const uint32_t *index, uint32_t *result) {
    __shared__ uint32_t slice[4][256];
    __shared__ Crc32cTile tile;
    for (uint32_t i = threadIdx.x; i < 4 * 256; i += kCrc32cThreads) {
        slice[i / 256][i % 256] = tables->slice[i / 256][i % 256];
    }
    uint32_t tiles = tile_count(bytes, kCrc32cTileBytes);
    for (uint32_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        uint32_t start = t * kCrc32cTileBytes;
        load_tile(&tile, batch, bytes, start);
        __syncthreads();
        uint32_t from = start + threadIdx.x * kCrc32cSliceBytes;
        uint32_t to = from + kCrc32cSliceBytes < bytes ? from + kCrc32cSliceBytes : bytes;
        Piece piece = {kNoRow, 0};
        if (from < to) {
            Crc32cRows rows = {offsets, index[t], index[t + 1], start};
            piece = crc_of_pieces(tile, tables, slice, rows, from, to, result);
        }
        __syncwarp();
        add_pieces(piece, result);
        __syncthreads(); // before the next tile overwrites this one
    }
}

// Fills in the tile index, and begins every record with what depends on the row's length alone.
static __global__ void crc32c_prepare(const Crc32cTables *tables, const uint32_t *offsets, uint32_t rows,
                                      uint32_t bytes, uint32_t entries, uint32_t *index, uint32_t *result) {
    uint32_t items = rows > entries ? rows : entries;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < items; i += gridDim.x * blockDim.x) {
        if (i < rows) result[i] = crc32c_frame(tables->power, offsets[i + 1] - offsets[i]);
        if (i < entries) index[i] = tile_index_entry(offsets, rows, bytes, kCrc32cTileBytes, i);
    }
}

} // namespace millrace
