// Tests the kernels' arithmetic against slow references and published values.
#include <string.h>

#include "../math/crc32c.cuh"
#include "../math/murmur3.cuh"
#include "../math/permutation.cuh"
#include "../math/ragged.cuh"
#include "../math/shingle.cuh"
#include "check.hpp"

using namespace millrace;

static std::string random_bytes(Random &random, uint32_t length) {
    std::string s(length, 0);
    for (char &c : s) c = static_cast<char>(random.below(256));
    return s;
}

static void check_crc32c() {
    static Crc32cTables tables;
    crc32c_make_tables(&tables);
    auto whole = [&](const std::string &s) {
        uint32_t raw = 0;
        for (char c : s) raw = crc32c_byte(tables.slice, raw, static_cast<uint8_t>(c));
        return raw ^ crc32c_frame(tables.power, static_cast<uint32_t>(s.size()));
    };
    CHECK_EQUAL(slow_crc32c("123456789"), 0xe3069283u, "the check value of RFC 3720's CRC");
    CHECK_EQUAL(whole("123456789"), 0xe3069283u, "the check value");
    CHECK_EQUAL(whole(""), 0u, "the empty row");
    CHECK_EQUAL(whole(std::string(32, 0)), 0x8a9136aau, "RFC 3720 B.4: 32 bytes of zeroes");
    CHECK_EQUAL(whole(std::string(32, '\xff')), 0x62a8ab43u, "RFC 3720 B.4: 32 bytes of ones");
    Random random(1);
    for (uint32_t length = 0; length < 600; length++) {
        std::string s = random_bytes(random, length);
        CHECK_EQUAL(whole(s), slow_crc32c(s), "%u random bytes", length);
        uint32_t words = 0, cut = random.below(length + 1), head = 0, tail = 0;
        for (uint32_t i = 0; i + 4 <= length; i += 4) {
            uint32_t word;
            memcpy(&word, &s[i], 4);
            words = crc32c_word(tables.slice, words, word);
        }
        for (uint32_t i = length & ~3u; i < length; i++) words = crc32c_byte(tables.slice, words, static_cast<uint8_t>(s[i]));
        for (uint32_t i = 0; i < cut; i++) head = crc32c_byte(tables.slice, head, static_cast<uint8_t>(s[i]));
        for (uint32_t i = cut; i < length; i++) tail = crc32c_byte(tables.slice, tail, static_cast<uint8_t>(s[i]));
        CHECK_EQUAL(crc32c_shift(tables.power, head, length - cut) ^ tail, words, "%u bytes cut at %u", length, cut);
    }
    for (uint32_t n : {256u, 65535u, 65536u, 1000003u}) { // shifts that need more than one byte and one word
        uint32_t slow = 0x12345678u;
        for (uint32_t i = 0; i < n; i++) slow = crc32c_byte(tables.slice, slow, 0);
        CHECK_EQUAL(crc32c_shift(tables.power, 0x12345678u, n), slow, "shift by %u bytes", n);
    }
    // 2^24 - 1 bytes and an additional byte, which uses the fourth table.
    uint32_t far = crc32c_byte(tables.slice, crc32c_shift(tables.power, 5, (1u << 24) - 1), 0);
    CHECK_EQUAL(crc32c_shift(tables.power, 5, 1u << 24), far, "shift by 2^24 bytes");
}

static void check_murmur3() {
    auto fast = [](const std::string &s) {
        return murmur3(static_cast<uint32_t>(s.size()), [&](uint32_t i) {
            uint32_t block = 0xaaaaaaaau; // bytes after the end must not matter
            memcpy(&block, &s[i * 4], s.size() - i * 4 < 4 ? s.size() - i * 4 : 4);
            return block;
        });
    };
    CHECK_EQUAL(fast(""), 0u, "published");
    CHECK_EQUAL(fast("test"), 0xba6bd213u, "published");
    CHECK_EQUAL(fast("Hello, world!"), 0xc0363e43u, "published");
    CHECK_EQUAL(fast("The quick brown fox jumps over the lazy dog"), 0x2e4ff723u, "published");
    Random random(2);
    for (uint32_t length = 0; length < 300; length++) {
        std::string s = random_bytes(random, length);
        CHECK_EQUAL(fast(s), slow_murmur3(s), "%u random bytes", length);
    }
}

static uint32_t slow_permute(Permutation p, uint32_t h) {
    return static_cast<uint32_t>((static_cast<unsigned __int128>(p.a) * h + p.b) % kMersenne61);
}

// Returns a permutation for which this h has the remainder r. A small r needs the carry.
static Permutation with_remainder(uint64_t a, uint32_t h, uint64_t r) {
    unsigned __int128 product = static_cast<unsigned __int128>(a) * h % kMersenne61;
    return {a, static_cast<uint64_t>((r + kMersenne61 - product) % kMersenne61)};
}

static void check_permutation(Permutation p, uint32_t h) {
    PermutationWords words = permutation_words(p);
    uint32_t want = slow_permute(p, h), word1, fast = permute_fast(words, h, &word1);
    CHECK_EQUAL(permute_exact(words, h), want, "a=%llu b=%llu h=%u", (unsigned long long)p.a, (unsigned long long)p.b, h);
    if (word1 < kCarryPossible) CHECK_EQUAL(fast, want, "fast a=%llu b=%llu h=%u", (unsigned long long)p.a, (unsigned long long)p.b, h);
}

// Returns the number of cases that needed the carry.
static int check_carries(Random &random) {
    int carries = 0;
    for (int i = 0; i < 20000; i++) {
        uint64_t a = random.next() % (kMersenne61 - 1) + 1;
        uint32_t h = static_cast<uint32_t>(random.next());
        Permutation p = with_remainder(a, h, i % 4 == 0 ? 0 : random.below(i % 2 ? 16 : 0xffffffffu));
        check_permutation(p, h);
        uint32_t word1;
        carries += permute_fast(permutation_words(p), h, &word1) != slow_permute(p, h);

        // The hash is among other hashes, so that the stretch is computed again.
        alignas(16) uint32_t hashes[64];
        uint32_t first = random.below(8), limit = first + 1 + random.below(56), least = 0xffffffffu;
        for (uint32_t &other : hashes) other = static_cast<uint32_t>(random.next());
        hashes[first + random.below(limit - first)] = h;
        for (uint32_t j = first; j < limit; j++) least = min2(least, slow_permute(p, hashes[j]));
        CHECK_EQUAL(permute_least(permutation_words(p), hashes, first, limit), least, "[%u, %u)", first, limit);
    }
    return carries;
}

static void check_permutations() {
    uint64_t state = 1234567; // the published first values for this seed
    CHECK_EQUAL(splitmix64(&state), 6457827717110365317ull, "splitmix64");
    CHECK_EQUAL(splitmix64(&state), 3203168211198807973ull, "splitmix64");
    const uint64_t edges[] = {1, 2, 7, 8, (1ull << 29) - 1, 1ull << 29, 1ull << 32, kMersenne61 / 2, kMersenne61 - 2, kMersenne61 - 1};
    const uint32_t inputs[] = {0, 1, 2, 7, 8, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu};
    for (uint64_t a : edges) {
        for (uint64_t b : edges) {
            for (uint32_t h : inputs) {
                check_permutation({a, b}, h);
                check_permutation({a, 0}, h);
                check_permutation(with_remainder(a, h, 0), h);
            }
        }
    }
    Random random(3);
    for (int i = 0; i < 200000; i++) {
        check_permutation(next_permutation(&state), static_cast<uint32_t>(random.next()));
    }
    if (int carries = check_carries(random); carries < 5000) {
        fprintf(stderr, "only %d of the cases made to carry did\n", carries);
        exit(1);
    }
}

static void check_characters() {
    for (uint32_t byte = 0; byte < 256; byte++) {
        for (int place = 0; place < 4; place++) {
            for (uint32_t others : {0u, 0x80808080u, 0xffffffffu}) {
                uint32_t word = (others & ~(255u << 8 * place)) | byte << 8 * place;
                bool marked = character_starts(word) >> (8 * place + 7) & 1;
                CHECK_EQUAL(marked, byte < 0x80 || byte > 0xbf, "byte %02x in word %08x", byte, word);
                CHECK_EQUAL(starts_character(static_cast<uint8_t>(byte)), byte < 0x80 || byte > 0xbf, "byte %02x", byte);
            }
        }
    }
}

static void check_row_search() {
    Random random(4);
    for (int round = 0; round < 300; round++) {
        uint32_t rows = 1 + random.below(40);
        std::vector<uint32_t> offsets = {0};
        for (uint32_t r = 0; r < rows; r++) offsets.push_back(offsets.back() + (random.below(2) ? random.below(30) : 0));
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t at = offsets[r]; at < offsets[r + 1]; at++) {
                CHECK_EQUAL(row_at(offsets.data(), 0, rows - 1, at), r, "position %u of %u rows", at, rows);
                CHECK_EQUAL(row_at(offsets.data(), r, r, at), r, "position %u in one row", at);
            }
        }
    }
    CHECK_EQUAL(tile_index_bytes(0, 2048), 0u, "no bytes need no index");
    CHECK_EQUAL(tile_index_bytes(2048, 2048), 8u, "one tile");
    CHECK_EQUAL(tile_index_bytes(2049, 2048), 12u, "two tiles");
}

void check_arithmetic() {
    check_crc32c();
    check_murmur3();
    check_permutations();
    check_characters();
    check_row_search();
}
