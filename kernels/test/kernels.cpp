// Tests the kernels themselves on the host, with batches designed to reveal mistakes in splitting and merging.
#include <string.h>

#include <algorithm>

#include "cuda_on_host.hpp"
#include "hopper_on_host.hpp"

#include "../crc32c_kernels.cuh"
#include "../minhash_cluster.cuh"
#include "../minhash_kernels.cuh"
#include "../minhash_specialized.cuh"
#include "check.hpp"

using namespace millrace;

Batch::Batch(const Rows &all, uint32_t lead) : offsets{0}, rows(static_cast<uint32_t>(all.size())) {
    for (const std::string &row : all) offsets.push_back(offsets.back() + static_cast<uint32_t>(row.size()));
    length = offsets.back();
    memory.resize(lead + length + 1); // one additional byte, so that it is never empty
    memory.shrink_to_fit();
    for (uint32_t r = 0; r < rows; r++) memcpy(memory.data() + lead + 1 + offsets[r], all[r].data(), all[r].size());
    bytes = memory.data() + lead + 1;
}

// Scratch and results are initialized with noise, because the kernels must not depend on their contents.
static std::vector<uint32_t> noise(uint64_t count) { return std::vector<uint32_t>(count, 0xdeadbeefu); }

static void run_crc32c(const char *what, const Rows &all, uint32_t lead) {
    static Crc32cTables tables;
    crc32c_make_tables(&tables);
    Batch batch(all, lead);
    std::vector<uint32_t> result = noise(batch.rows), index = noise(tile_index_bytes(batch.length, kCrc32cTileBytes) / 4);
    emulator::launch(2, kCrc32cThreads, crc32c_prepare, &tables, batch.offsets.data(), batch.rows, batch.length,
                     static_cast<uint32_t>(index.size()), index.data(), result.data());
    if (batch.length != 0) { // fewer blocks than tiles, so that blocks process several
        emulator::launch(min(3u, tile_count(batch.length, kCrc32cTileBytes)), kCrc32cThreads, crc32c_tiles, &tables,
                         batch.bytes, batch.offsets.data(), batch.length, index.data(), result.data());
    }
    for (uint32_t r = 0; r < batch.rows; r++) {
        CHECK_EQUAL(result[r], slow_crc32c(all[r]), "crc32c of %s: row %u of %zu bytes, lead %u", what, r, all[r].size(), lead);
    }
}

// Processes the tiles of a batch with each kind of kernel.
struct MinhashKernel {
    const char *name;
    void (*run)(const MinhashWork &work);
};

static const MinhashKernel minhash_kernels[] = {
    {"plain", [](const MinhashWork &work) { emulator::launch(work.tiles, kMinhashThreads, minhash_tiles, work); }},
    {"warp-specialized",
     [](const MinhashWork &work) { // fewer blocks than tiles, so that blocks process several
         emulator::launch(min(3u, work.tiles), kSpecializedThreads, minhash_specialized, work);
     }},
    {"cluster",
     [](const MinhashWork &work) {
         uint32_t clusters = (work.tiles + kClusterBlocks - 1) / kClusterBlocks;
         emulator::launch_clusters(kClusterBlocks, clusters * kClusterBlocks, kMinhashThreads, minhash_cluster, work);
     }},
};

static void check_signatures(const char *what, const Rows &all, const std::vector<uint32_t> &got,
                             const std::vector<uint32_t> &want, uint32_t hashes) {
    for (uint64_t i = 0; i < want.size(); i++) {
        CHECK_EQUAL(got[i], want[i], "minhash of %s: row %u of %zu bytes, value %u of %u", what,
                    static_cast<uint32_t>(i / hashes), all[i / hashes].size(), static_cast<uint32_t>(i % hashes), hashes);
    }
}

static void run_minhash(const char *what, const Rows &all, uint32_t lead, uint32_t k, uint32_t hashes, uint32_t seed) {
    Batch batch(all, lead);
    std::vector<uint32_t> want;
    for (const std::string &row : all) {
        for (uint32_t value : slow_minhash(row, k, hashes, seed)) want.push_back(value);
    }
    Permutations generator(seed);
    std::vector<Permutation> permutations;
    for (uint32_t i = 0; i < hashes; i++) permutations.push_back(generator.next());
    for (const MinhashKernel &kernel : minhash_kernels) {
        uint32_t tiles = tile_count(batch.length, kMinhashTileBytes), entries = batch.length == 0 ? 0 : tiles + 1;
        std::vector<uint32_t> result = noise(want.size()), index = noise(entries), taken = noise(1);
        emulator::launch(2, kMinhashThreads, minhash_prepare, batch.offsets.data(), batch.rows, batch.length, entries,
                         hashes, index.data(), taken.data(), result.data());
        if (batch.length != 0) {
            kernel.run({batch.bytes, batch.offsets.data(), batch.length, tiles, k, halo_bytes(k), permutations[0].a,
                        permutations.data(), hashes, index.data(), taken.data(), result.data()});
        }
        std::string where = std::string(what) + " by " + kernel.name + ", k=" + std::to_string(k) + ", lead " + std::to_string(lead);
        check_signatures(where.c_str(), all, result, want, hashes);
    }
}

// Appends a character of one to four bytes.
static void append_character(Random &random, std::string &text) {
    switch (random.below(6)) {
    case 0: text += "\xc3\xa9"; break;
    case 1: text += "\xe2\x82\xac"; break;
    case 2: text += "\xf0\x9f\x98\x80"; break;
    default: text += static_cast<char>('a' + random.below(26));
    }
}

static std::string text(Random &random, uint32_t bytes) {
    std::string s;
    while (s.size() < bytes) append_character(random, s);
    s.resize(bytes); // the cut may be within a character, which is also valid input
    return s;
}

static std::string ascii(Random &random, uint32_t bytes) {
    std::string s(bytes, 0);
    for (char &c : s) c = static_cast<char>(random.below(128));
    return s;
}

// Returns random bytes, of which about one in `rarity` starts a character.
static std::string broken(Random &random, uint32_t bytes, uint32_t rarity) {
    std::string s(bytes, 0);
    for (char &c : s) c = static_cast<char>(random.below(rarity) ? 0x80 | random.below(64) : random.below(128));
    return s;
}

static void run_all(const char *what, const Rows &all, uint32_t lead = 15) {
    run_crc32c(what, all, lead);
    run_minhash(what, all, lead, 24, 128, 42);
    run_minhash(what, all, lead, 1, 1, 0);
    run_minhash(what, all, lead, 5, 98, 7);
    run_minhash(what, all, lead, 256, 3, ~0u);
}

// Returns a row of `bytes` bytes.
using MakeRow = std::string (*)(Random &random, uint32_t bytes);

static Rows every_length(Random &random, MakeRow row) {
    Rows all;
    for (uint32_t n = 0; n <= 130; n++) all.push_back(row(random, n));
    return all;
}

static Rows ragged(Random &random, MakeRow row) {
    Rows all;
    for (int r = 0; r < 60; r++) {
        uint32_t bytes = random.below(3) == 0 ? 0 : 1 + random.below(random.below(10) == 0 ? 12000 : 300);
        all.push_back(row(random, bytes));
    }
    return all;
}

static std::string text_or_broken(Random &random, uint32_t bytes) {
    return random.below(4) ? text(random, bytes) : broken(random, bytes, 1 + random.below(400));
}

// Returns rows that begin and end exactly at the edges of tiles and of halos.
static Rows edges(Random &random, MakeRow row) {
    Rows all;
    for (uint32_t tile : {kMinhashTileBytes, kCrc32cTileBytes}) {
        for (uint32_t bytes : {tile, tile - 1, 1u, tile + 1, tile - 1, 0u, tile * 2, tile - 96, 96u, tile + 96}) {
            all.push_back(row(random, bytes));
        }
    }
    return all;
}

// The bytes up to k after a tile's end also determine whether the tile takes the path for single-byte characters. In each batch,
// one byte near that position doesn't start a character, or starts a row without being the first byte of a character.
static void check_around_single_bytes(Random &random) {
    for (uint32_t k : {1u, 24u, 256u}) {
        for (uint32_t after : {0u, k - 1, k, k + 1}) {
            std::string row = ascii(random, kMinhashTileBytes + 600);
            row[kMinhashTileBytes + after - 1] = '\xc3', row[kMinhashTileBytes + after] = '\xa9';
            Rows cut = {row.substr(0, kMinhashTileBytes + after), row.substr(kMinhashTileBytes + after)};
            run_minhash("one character of two bytes", {row}, 15, k, 33, 42);
            run_minhash("a row in the middle of a character", cut, 15, k, 33, 42);
        }
    }
}

// Tests every way of spreading permutations over lanes, with rows within a tile and over several tiles.
static void check_hashes(Random &random) {
    Rows all = {"", ascii(random, 70), "", text(random, 900), ascii(random, 3000), ""};
    for (uint32_t hashes : {1u, 3u, 4u, 31u, 32u, 64u, 96u, 127u, 128u, 160u, 260u, 1024u}) {
        run_minhash("rows with many hashes", all, 15, 24, hashes, hashes);
    }
}

static void reduce_min_both_ways(const uint32_t *values, uint32_t *one, uint32_t *other) {
    one[threadIdx.x] = reduce_min(values[threadIdx.x]);
    other[threadIdx.x] = reduce_min_by_shuffles(values[threadIdx.x]);
}

static void check_minima(Random &random) {
    std::vector<uint32_t> values, one = noise(64), other = noise(64);
    for (int t = 0; t < 64; t++) values.push_back(static_cast<uint32_t>(random.next()));
    emulator::launch(1, 64, reduce_min_both_ways, values.data(), one.data(), other.data());
    for (uint32_t t = 0; t < 64; t++) {
        uint32_t want = *std::min_element(&values[t / 32 * 32], &values[t / 32 * 32] + 32);
        CHECK_EQUAL(one[t], want, "minimum, lane %u", t);
        CHECK_EQUAL(other[t], want, "minimum by shuffles, lane %u", t);
    }
}

static void reduce_both_ways(const uint32_t *keys, const uint32_t *values, uint32_t *one, uint32_t *other) {
    uint32_t t = threadIdx.x, same = __match_any_sync(0xffffffffu, keys[t]);
    one[t] = reduce_xor(same, values[t]);
    other[t] = reduce_xor_by_shuffles(same, values[t]);
}

// GPUs before compute capability 8.0 combine a warp's values with shuffles.
static void check_reductions(Random &random) {
    for (uint32_t groups : {1u, 2u, 7u, 32u}) {
        std::vector<uint32_t> keys, values, one = noise(64), other = noise(64), want = noise(64);
        for (uint32_t t = 0; t < 64; t++) keys.push_back(random.below(groups)), values.push_back(random.below(~0u));
        for (uint32_t t = 0; t < 64; t++) {
            want[t] = 0;
            for (uint32_t u = t / 32 * 32; u < t / 32 * 32 + 32; u++) want[t] ^= keys[u] == keys[t] ? values[u] : 0;
        }
        emulator::launch(1, 64, reduce_both_ways, keys.data(), values.data(), one.data(), other.data());
        for (uint32_t t = 0; t < 64; t++) {
            CHECK_EQUAL(one[t], want[t], "XOR of %u groups, lane %u", groups, t);
            CHECK_EQUAL(other[t], want[t], "XOR of %u groups by shuffles, lane %u", groups, t);
        }
    }
}

void check_kernels() {
    Random random(5);
    check_reductions(random);
    check_minima(random);
    check_hashes(random);
    check_around_single_bytes(random);
    run_all("nothing", {""});
    run_all("one byte", {"x"});
    for (MakeRow row : {text, ascii}) {
        run_all("every length", every_length(random, row));
        run_all("edges", edges(random, row));
    }
    for (uint32_t lead : {15u, 3u, 0u}) { // the batch starts 16, 4 or 1 byte after an aligned address
        for (MakeRow row : {text_or_broken, ascii}) run_all("ragged rows", ragged(random, row), lead);
    }
    Rows empties(3000);
    run_all("empty rows", empties);
    empties[1234] = text(random, 5000), empties[1500] = "y", empties[2999] = text(random, 40);
    run_all("rows among empty ones", empties);
    run_all("rows of a byte", Rows(2100, "z"));
    run_all("one long row", {text(random, 40000)});
    run_all("one long row of single bytes", {ascii(random, 40000)});
    run_all("one character", {"a" + std::string(30000, '\x80')});
    run_all("continuation bytes alone", {std::string(9000, '\xbf'), std::string(100, '\x80')});
    run_all("long characters", {broken(random, 30000, 700), broken(random, 20000, 100)});
    run_all("a long character late", {text(random, 2000) + std::string(7000, '\x9f') + text(random, 3000), "next"});
}

int main() {
    check_arithmetic();
    check_kernels();
    check_persistent();
    check_mix();
    check_neardup();
    check_neardup_keys();
    check_quality();
    check_yardstick();
    printf("kernels: arithmetic, tiling and mailboxes are right\n");
}
