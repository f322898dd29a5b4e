// The kernels of crc32c.
//
// A thread processes 64 consecutive bytes, wherever rows begin and end. For every piece of a row in these bytes, the thread
// computes the raw CRC and shifts it by the piece's distance to the end of the row. The thread then adds the CRC to the row's
// record with XOR. Only a row that continues after the 64 bytes has a distance other than 0, so a thread shifts at most once. The
// threads of a warp that hold pieces of the same row first add up their CRCs. A row of many megabytes is therefore spread over
// the whole GPU.
//
// Cost of each 2 KiB that a warp processes, in instructions: about 16 words * 15 for the tables, 2 to 3 multiplications of 200
// for the shift, and 100 for everything else, so about 800. An H100 (132 SMs, 4 schedulers, 1.755 GHz) issues 9.3e11 warp
// instructions per second, which limits the kernel to 2.3 TB/s. In a table lookup, the 32 lanes use 32 banks with collisions: the
// busiest bank serves 3.4 lanes on average. The lookups for 2 KiB need 64 * 3.4 cycles of an SM, which limits the kernel to 2.2
// TB/s. Memory delivers 3.3 TB/s, and the bus delivers 55 GB/s.
#pragma once

#include "load.cuh"
#include "math/crc32c.cuh"
#include "math/ragged.cuh"
#include "reduce.cuh"

namespace millrace {

constexpr uint32_t kCrc32cThreads = 128;
constexpr uint32_t kCrc32cSliceBytes = 64;                    // bytes per thread
constexpr uint32_t kCrc32cTileBytes = kCrc32cThreads * kCrc32cSliceBytes; // bytes per block

// A tile in shared memory. Neighboring threads read 16 bytes at a distance of 64 bytes, so eight threads would use
// only two groups of banks. Permuting the vectors of a slice by the slice's number spreads the reads over all eight
// groups.
struct Crc32cTile {
    uint4 vectors[kCrc32cTileBytes / 16];

    static __device__ uint32_t place(uint32_t vector) { return vector ^ (vector >> 3 & 3); }
};

// Loads the tile, 16 bytes per thread.
__device__ inline void load_tile(Crc32cTile *tile, const uint8_t *batch, uint32_t bytes, uint32_t start) {
    for (uint32_t v = threadIdx.x; v < kCrc32cTileBytes / 16; v += kCrc32cThreads) {
        uint32_t words[4];
        load_16(batch, start + v * 16, bytes, words);
        tile->vectors[Crc32cTile::place(v)] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

// A piece of a row that reaches the end of a thread's slice, shifted to the end of the row.
struct Piece {
    uint32_t row;
    uint32_t crc;
};

// The row number of a missing piece.
constexpr uint32_t kNoRow = 0xffffffffu;

// The rows of a tile, and their position in the batch.
struct Crc32cRows {
    const uint32_t *offsets;
    uint32_t first, last; // the range that contains the tile's rows
    uint32_t start;       // start of the tile
};

// The current row of a thread, and the raw CRC of the row's bytes that the thread has processed so far. Positions count from the
// start of the batch.
struct RowCursor {
    const Crc32cRows *rows;
    const uint32_t (*slice)[256];
    uint32_t *result;
    uint32_t row, end;
    uint32_t crc;

    // Moves to the row that contains the byte at `position`, which must be in the tile. It skips empty rows.
    __device__ void enter(uint32_t from_row, uint32_t position) {
        row = row_at(rows->offsets, from_row, rows->last, position);
        end = rows->offsets[row + 1];
        crc = 0;
    }

    // Finishes the row if it ends at `position` and another byte follows.
    __device__ void turn(uint32_t position) {
        if (position != end) return;
        atomicXor(&result[row], crc);
        enter(row, position);
    }

    // Processes the first `count` bytes of a word. `count` is 1 to 4.
    __device__ void take_word(uint32_t position, uint32_t word, uint32_t count) {
        turn(position);
        if (count == 4 && end - position >= 4) {
            crc = crc32c_word(slice, crc, word);
            return;
        }
        for (uint32_t i = 0; i < count; i++) {
            turn(position + i);
            crc = crc32c_byte(slice, crc, static_cast<uint8_t>(word >> (i * 8)));
        }
    }
};

// Adds the pieces that end before the end of the slice [from, to) of the batch. Returns the piece that reaches the end
// of the slice.
//
// All threads of a warp process their slices in step, 16 bytes at a time. If a row ends within these 16 bytes, its thread
// continues by words, and by bytes in the last word. The other threads wait only for these 16 bytes. Without this rule, nearly
// every warp of a ragged batch would wait while one thread processes its whole slice byte by byte.
__device__ inline Piece crc_of_pieces(const Crc32cTile &tile, const Crc32cTables *tables,
                                      const uint32_t (*slice)[256], const Crc32cRows &rows, uint32_t from, uint32_t to,
                                      uint32_t *result) {
    RowCursor cursor = {&rows, slice, result, 0, 0, 0};
    cursor.enter(rows.first, from);
    for (uint32_t position = from; position < to; position += 16) {
        uint4 vector = tile.vectors[Crc32cTile::place((position - rows.start) / 16)];
        uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
        if (cursor.end - position >= 16 && to - position >= 16) {
            for (uint32_t w = 0; w < 4; w++) cursor.crc = crc32c_word(slice, cursor.crc, words[w]);
        } else {
            for (uint32_t w = 0; w < 4 && position + w * 4 < to; w++) {
                cursor.take_word(position + w * 4, words[w], min(to - position - w * 4, 4u));
            }
        }
    }
    return Piece{cursor.row, crc32c_shift(tables->power, cursor.crc, cursor.end - to)};
}

// Adds every thread's piece to its row, with one addition for each row in the warp.
__device__ inline void add_pieces(Piece piece, uint32_t *result) {
    uint32_t same = __match_any_sync(0xffffffffu, piece.row);
    uint32_t sum = reduce_xor(same, piece.crc);
    bool leads = static_cast<uint32_t>(__ffs(static_cast<int>(same))) - 1 == threadIdx.x % 32;
    if (leads && piece.row != kNoRow) atomicXor(&result[piece.row], sum);
}

// Loads the tables that every byte needs into shared memory. A barrier must follow.
__device__ inline void crc32c_load_slices(const Crc32cTables *tables, uint32_t (*slice)[256]) {
    for (uint32_t i = threadIdx.x; i < 4 * 256; i += kCrc32cThreads) {
        slice[i / 256][i % 256] = tables->slice[i / 256][i % 256];
    }
}

// Processes tile number t with one block. It ends with a barrier, so that the next tile may overwrite `tile`.
__device__ inline void crc32c_tile(const Crc32cTables *tables, const uint32_t (*slice)[256], Crc32cTile *tile,
                                   const uint8_t *batch, const uint32_t *offsets, uint32_t bytes,
                                   const uint32_t *index, uint32_t t, uint32_t *result) {
    uint32_t start = t * kCrc32cTileBytes;
    load_tile(tile, batch, bytes, start);
    __syncthreads();
    uint32_t from = start + threadIdx.x * kCrc32cSliceBytes;
    uint32_t to = from + kCrc32cSliceBytes < bytes ? from + kCrc32cSliceBytes : bytes;
    Piece piece = {kNoRow, 0};
    if (from < to) {
        Crc32cRows rows = {offsets, index[t], index[t + 1], start};
        piece = crc_of_pieces(*tile, tables, slice, rows, from, to, result);
    }
    __syncwarp();
    add_pieces(piece, result);
    __syncthreads();
}

static __global__ void __launch_bounds__(kCrc32cThreads)
    crc32c_tiles(const Crc32cTables *tables, const uint8_t *batch, const uint32_t *offsets, uint32_t bytes,
                 const uint32_t *index, uint32_t *result) {
    __shared__ uint32_t slice[4][256];
    __shared__ Crc32cTile tile;
    crc32c_load_slices(tables, slice);
    uint32_t tiles = tile_count(bytes, kCrc32cTileBytes);
    for (uint32_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        crc32c_tile(tables, slice, &tile, batch, offsets, bytes, index, t, result);
    }
}

// Fills in the tile index, and initializes every record with the part that depends only on the row's length.
// Thread number `first` of `stride` threads calls it.
__device__ inline void crc32c_begin(const Crc32cTables *tables, const uint32_t *offsets, uint32_t rows, uint32_t bytes,
                                    uint32_t entries, uint32_t *index, uint32_t *result, uint32_t first,
                                    uint32_t stride) {
    uint32_t items = rows > entries ? rows : entries;
    for (uint32_t i = first; i < items; i += stride) {
        if (i < rows) result[i] = crc32c_frame(tables->power, offsets[i + 1] - offsets[i]);
        if (i < entries) index[i] = tile_index_entry(offsets, rows, bytes, kCrc32cTileBytes, i);
    }
}

static __global__ void crc32c_prepare(const Crc32cTables *tables, const uint32_t *offsets, uint32_t rows,
                                      uint32_t bytes, uint32_t entries, uint32_t *index, uint32_t *result) {
    crc32c_begin(tables, offsets, rows, bytes, entries, index, result, blockIdx.x * blockDim.x + threadIdx.x,
                 gridDim.x * blockDim.x);
}

} // namespace millrace
