// Hashes the shingles of a tile with characters of several bytes.
//
// A shingle of valid UTF-8 ends within the halo (k characters of at most four bytes). In input that consists mostly of
// 10xxxxxx bytes, a shingle may end after the halo. Such shingles are found and hashed in global memory, which is
// slower.
#pragma once

#include "minhash_tile.cuh"

namespace millrace {

// Returns the sum of the values of the threads before this thread. Sets *total to the sum over all threads.
template <class Team>
__device__ inline uint32_t team_scan(uint32_t value, uint32_t *warp_totals, uint32_t *total) {
    uint32_t lane = Team::rank() % 32, warp = Team::rank() / 32, sum = warp_scan(value);
    if (lane == 31) warp_totals[warp] = sum;
    Team::sync();
    uint32_t preceding = 0, all = 0;
    for (uint32_t w = 0; w < Team::kThreads / 32; w++) {
        if (w < warp) preceding += warp_totals[w];
        all += warp_totals[w];
    }
    Team::sync(); // the next call overwrites warp_totals
    *total = all;
    return preceding + sum - value;
}

// Returns the starts of characters in a staged word as bits 7, 15, 23 and 31. The start of a row also starts a
// character.
__device__ inline uint32_t word_starts(const TileInput &in, const TileBytes &tile, const TileState *state,
                                       uint32_t word) {
    uint32_t starts = character_starts(tile.words[word]);
    uint32_t position = word * 4;
    if (position < kMinhashTileBytes) {
        uint32_t rows = state->row_starts.bits[position / 32] >> (position % 32) & 15;
        starts |= (rows & 1) << 7 | (rows & 2) << 14 | (rows & 4) << 21 | (rows & 8) << 28;
    }
    uint32_t left = in.staged - position;
    return left >= 4 ? starts : starts & ((1u << 8 * left) - 1);
}

// Lists the characters that start in the word at a position, and returns the new length of the list. In most texts,
// most words contain four characters.
__device__ inline uint32_t list_starts(uint32_t starts, uint32_t position, uint16_t *positions, uint32_t next) {
    if (starts == 0x80808080u) {
        for (uint32_t byte = 0; byte < 4; byte++) positions[next + byte] = static_cast<uint16_t>(position + byte);
        return next + 4;
    }
    for (; starts != 0; starts &= starts - 1) {
        uint32_t byte = static_cast<uint32_t>(__ffs(static_cast<int>(starts)) - 1) / 8;
        positions[next++] = static_cast<uint16_t>(position + byte);
    }
    return next;
}

// Lists the starts of characters in the tile and the halo.
template <class Team>
__device__ inline void find_characters(const TileInput &in, TileBytes *tile, TileState *state) {
    uint32_t words = (in.staged + 3) / 4, each = (words + Team::kThreads - 1) / Team::kThreads;
    uint32_t from = Team::rank() * each, to = min(from + each, words);
    uint32_t characters = 0, total;
    for (uint32_t w = from; w < to; w++) characters += __popc(word_starts(in, *tile, state, w));
    uint32_t next = team_scan<Team>(characters, state->warp_totals, &total);
    for (uint32_t w = from; w < to; w++) {
        if (w == kMinhashTileBytes / 4) state->tile_characters = next;
        next = list_starts(word_starts(in, *tile, state, w), w * 4, tile->starts.positions, next);
    }
    if (Team::rank() == 0) {
        state->characters = total;
        state->far_characters = 0;
        if (words <= kMinhashTileBytes / 4) state->tile_characters = total;
    }
}

// Returns the end in the batch of the row that contains the tile's last byte. The last of the tile's rows may begin in
// the next tile.
__device__ inline uint32_t end_of_last_row(const TileInput &in) {
    uint32_t tile_end = in.start + in.length;
    return in.offsets[in.last_row] < tile_end ? in.offsets[in.last_row + 1] : tile_end;
}

// Finds the characters after the halo that the tile's last shingle needs. All threads call it.
template <class Team>
__device__ inline void find_far_characters(const TileInput &in, TileBytes *tile, TileState *state) {
    uint32_t row_end = end_of_last_row(in);
    uint32_t at = in.start + in.staged;
    uint32_t wanted = state->tile_characters + in.k;
    if (state->tile_characters == 0 || row_end <= at || state->characters >= wanted) return;
    uint32_t need = wanted - state->characters, found = 0;
    for (; at < row_end && found < need; at += Team::kThreads * 16) {
        uint32_t position = at + Team::rank() * 16;
        uint32_t words[4] = {0, 0, 0, 0}, starts[4] = {0, 0, 0, 0}, count = 0;
        if (position < row_end) load_16(in.batch, position, row_end, words);
        for (uint32_t w = 0; w < 4 && position + w * 4 < row_end; w++) {
            uint32_t left = row_end - position - w * 4;
            starts[w] = character_starts(words[w]) & (left >= 4 ? 0xffffffffu : (1u << 8 * left) - 1);
            count += __popc(starts[w]);
        }
        uint32_t total;
        uint32_t next = found + team_scan<Team>(count, state->warp_totals, &total);
        for (uint32_t i = 0; i < 16; i++) {
            if (starts[i / 4] >> (i % 4 * 8 + 7) & 1) {
                if (next < need) tile->starts.far[next] = position + i - in.start;
                next++;
            }
        }
        found += total;
    }
    if (Team::rank() == 0) state->far_characters = min(found, need);
}

// The blocks of a shingle in shared memory. They are requested in order, so each word is read once.
struct StagedBlocks {
    const uint32_t *next;
    uint32_t shift, word;

    __device__ StagedBlocks(const uint32_t *words, uint32_t position)
        : next(words + position / 4 + 1), shift(position % 4 * 8), word(words[position / 4]) {}

    __device__ uint32_t operator()(uint32_t) {
        uint32_t low = word;
        word = *next++;
        return __funnelshift_r(low, word, shift);
    }
};

// The blocks of a shingle that continues after the halo. They are read from global memory, and nothing after the shingle is read.
struct FarBlocks {
    const uint8_t *batch;
    uint32_t position, end;

    __device__ uint32_t operator()(uint32_t i) const {
        uint32_t block = 0, from = position + i * 4;
        for (uint32_t j = 0; j < 4; j++) {
            if (from + j < end) block |= static_cast<uint32_t>(batch[from + j]) << (j * 8);
        }
        return block;
    }
};

__device__ inline uint32_t hash_shingle(const TileInput &in, const TileBytes &tile, uint32_t from, uint32_t to) {
    if (to <= in.staged) return murmur3(in.seed, to - from, StagedBlocks(tile.words, from));
    return murmur3(in.seed, to - from, FarBlocks{in.batch, in.start + from, in.start + to});
}

// Hashes the shingles that start in the tile, and records the range of each segment's shingles.
template <class Team>
__device__ inline void hash_shingles(const TileInput &in, const TileBytes &tile, TileState *state) {
    auto start_of = [&](uint32_t character) -> uint32_t {
        if (character < state->characters) return tile.starts.positions[character];
        uint32_t far = character - state->characters;
        return far < state->far_characters ? tile.starts.far[far] : kNoCharacter;
    };
    for (uint32_t c = Team::rank(); c < state->tile_characters; c += Team::kThreads) {
        uint32_t position = tile.starts.positions[c], segment = segment_at(state, position);
        uint32_t row_end = in.offsets[state->segment_row[segment] + 1] - in.start;
        bool first = state->row_starts.has(position);
        if (first || c == 0) state->segment_first[segment] = static_cast<uint16_t>(c);
        uint32_t end = shingle_end(start_of, c, in.k, row_end, first);
        if (end == kNoCharacter) continue;
        state->hashes[c] = shingle_hash(hash_shingle(in, tile, position, end));
        // A shingle that ends at the end of its row is the row's last shingle.
        if (end == row_end || c + 1 == state->tile_characters) {
            state->segment_limit[segment] = static_cast<uint16_t>(c + 1);
        }
    }
}

} // namespace millrace
