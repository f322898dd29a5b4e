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
    for (uint32_t n : {256u, 65535u, 65536u, 1000003u}) { // shifts whose lengths need two or three bytes
        uint32_t slow = 0x12345678u;
        for (uint32_t i = 0; i < n; i++) slow = crc32c_byte(tables.slice, slow, 0);
        CHECK_EQUAL(crc32c_shift(tables.power, 0x12345678u, n), slow, "shift by %u bytes", n);
    }
    // Appends 2^24 - 1 bytes and then one byte. The sum of 2^24 bytes uses the fourth table.
    uint32_t far = crc32c_byte(tables.slice, crc32c_shift(tables.power, 5, (1u << 24) - 1), 0);
    CHECK_EQUAL(crc32c_shift(tables.power, 5, 1u << 24), far, "shift by 2^24 bytes");
}

static void check_murmur3() {
    auto fast = [](uint32_t seed, const std::string &s) {
        return murmur3(seed, static_cast<uint32_t>(s.size()), [&](uint32_t i) {
            uint32_t block = 0xaaaaaaaau; // bytes after the end must not matter
            memcpy(&block, &s[i * 4], s.size() - i * 4 < 4 ? s.size() - i * 4 : 4);
            return block;
        });
    };
    CHECK_EQUAL(fast(0, ""), 0u, "published");
    CHECK_EQUAL(fast(0, "test"), 0xba6bd213u, "published");
    CHECK_EQUAL(fast(0, "Hello, world!"), 0xc0363e43u, "published");
    CHECK_EQUAL(fast(1, ""), 0x514e28b7u, "published");
    CHECK_EQUAL(fast(0x9747b28cu, "Hello, world!"), 0x24884cbau, "published");
    CHECK_EQUAL(fast(0, "The quick brown fox jumps over the lazy dog"), 0x2e4ff723u, "published");
    Random random(2);
    for (uint32_t length = 0; length < 300; length++) {
        std::string s = random_bytes(random, length);
        uint32_t seed = static_cast<uint32_t>(random.next());
        CHECK_EQUAL(fast(seed, s), slow_murmur3(seed, s), "%u random bytes", length);
    }
}

static void check_permutations() {
    // Confirmed with numpy.random.RandomState(42).
    const Permutation known[] = {{1608637543, 1273642419}, {1935803229, 787846414}, {996406379, 1201263687}, {423734973, 415968276}};
    Permutations permutations(42);
    for (int i = 0; i < 260; i++) {
        Permutation p = permutations.next();
        if (i < 4) CHECK_EQUAL(p.a, known[i].a, "a of permutation %d", i);
        if (i < 4) CHECK_EQUAL(p.b, known[i].b, "b of permutation %d", i);
        if (i < 259) continue;
        CHECK_EQUAL(p.a, 417369880u, "a of permutation %d", i);
        CHECK_EQUAL(p.b, 897299057u, "b of permutation %d", i);
    }
    CHECK_EQUAL(permute({0xfffffffeu, 0x80000001u}, 0xffffffffu), 0x80000003u, "a product that wraps around");
    const uint32_t values[] = {0, 1, 0x7fffffffu, 0x80000000u, 0xffffffffu};
    for (uint32_t a : values) {
        for (uint32_t b : values) {
            for (uint32_t c : values) CHECK_EQUAL(min3(a, b, c), min2(min2(a, b), c), "of %u, %u, %u", a, b, c);
        }
    }
}

// Checks the first four values and the last value of signatures with k=24, hashes=260, seed=42. An independent program, which
// agrees with cuDF's published values, computed them.
static void check_signatures() {
    const struct {
        const char *text;
        uint32_t first[4], last;
    } known[] = {
        {"", {0, 0, 0, 0}, 0},
        {"A test string", {1790905119, 3497716082, 1003032707, 2602246136}, 4232484689},
        {"The quick brown fox jumps over the lazy dog", {288489571, 231969616, 175714076, 264915830}, 379167841},
    };
    for (const auto &row : known) {
        std::vector<uint32_t> signature = slow_minhash(row.text, 24, 260, 42);
        for (int i = 0; i < 4; i++) CHECK_EQUAL(signature[i], row.first[i], "value %d of '%s'", i, row.text);
        CHECK_EQUAL(signature[259], row.last, "value 259 of '%s'", row.text);
    }
    CHECK_EQUAL(shingle_hash(0), 1u, "the least hash");
    CHECK_EQUAL(shingle_hash(0xffffffffu), 0xffffffffu, "the greatest hash");
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
    check_signatures();
    check_characters();
    check_row_search();
}
