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
constexpr uint32_t kCrc32cTileBytes = kCrc32cThreads * kCrc32cSliceBytes; // a block's share

// A tile in shared memory. A thread reads 16 bytes 64 bytes after its neighbour, which would put eight threads on two
// groups of banks; exchanging the vectors of a slice by the slice's number spreads them over all eight.
struct Crc32cTile {
    uint4 vectors[kCrc32cTileBytes / 16];

    static __device__ uint32_t place(uint32_t vector) { return vector ^ (vector >> 3 & 3); }
};

// Brings the tile in, 16 bytes a thread.
__device__ inline void load_tile(Crc32cTile *tile, const uint8_t *batch, uint32_t bytes, uint32_t start) {
    for (uint32_t v = threadIdx.x; v < kCrc32cTileBytes / 16; v += kCrc32cThreads) {
        uint32_t words[4];
        load_16(batch, start + v * 16, bytes, words);
        tile->vectors[Crc32cTile::place(v)] = make_uint4(words[0], words[1], words[2], words[3]);
    }
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

// The row that a thread is in, and the raw CRC of what it has seen of it. Positions are the batch's.
struct RowCursor {
    const Crc32cRows *rows;
    const uint32_t (*slice)[256];
    uint32_t *result;
    uint32_t row, end;
    uint32_t crc;

    // Moves to the row that holds the byte at `position`, which is in the tile. Passes empty rows by.
    __device__ void enter(uint32_t from_row, uint32_t position) {
        row = row_at(rows->offsets, from_row, rows->last, position);
        end = rows->offsets[row + 1];
        crc = 0;
    }

    // Ends the row if it ends here, where another byte follows.
    __device__ void turn(uint32_t position) {
        if (position != end) return;
        atomicXor(&result[row], crc);
        enter(row, position);
    }

    // Takes the first `count` bytes of a word, 1 to 4.
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

// Adds the pieces that end before the slice [from, to) of the batch does, and returns the one that reaches its end.
//
// All threads of a warp walk their slices in step, 16 bytes at a time. Where a row ends within the 16, that thread goes
// on by words, and by bytes in the word with the end, and the others wait for just that long. Were the pieces taken
// one after another, they would wait for as long as a slice by bytes takes, in nearly every warp of a ragged batch.
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

// Adds every thread's piece to its row, one addition for each row in the warp.
__device__ inline void add_pieces(Piece piece, uint32_t *result) {
    uint32_t same = __match_any_sync(0xffffffffu, piece.row);
    uint32_t sum = __reduce_xor_sync(same, piece.crc);
    bool leads = static_cast<uint32_t>(__ffs(static_cast<int>(same))) - 1 == threadIdx.x % 32;
    if (leads && piece.row != kNoRow) atomicXor(&result[piece.row], sum);
}

// Brings the tables that every byte needs into shared memory. A barrier must follow.
__device__ inline void crc32c_load_slices(const Crc32cTables *tables, uint32_t (*slice)[256]) {
    for (uint32_t i = threadIdx.x; i < 4 * 256; i += kCrc32cThreads) {
        slice[i / 256][i % 256] = tables->slice[i / 256][i % 256];
    }
}

// A block's work on tile number t. It ends with a barrier, so that the next tile may overwrite this one.
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

// Fills in the tile index, and begins every record with what depends on the row's length alone. Thread number
// `first` of `stride` calls it.
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
