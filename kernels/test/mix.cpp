// Tests mix on the host: every length around the edges of words, vectors and blocks, from addresses of every alignment.
#include <string.h>

#include "cuda_on_host.hpp"

#include "../mix_kernels.cuh"
#include "check.hpp"

using namespace millrace;

// Computes the words according to the operator's description.
static std::vector<uint32_t> slow_mix(const std::vector<uint8_t> &bytes, uint32_t rounds) {
    std::vector<uint32_t> words((bytes.size() + 3) / 4, 0);
    for (size_t i = 0; i < bytes.size(); i++) words[i / 4] |= static_cast<uint32_t>(bytes[i]) << (8 * (i % 4));
    for (uint32_t &word : words) {
        for (uint32_t r = 0; r < rounds; r++) {
            uint64_t product = word * 1664525ull + 1013904223ull;
            word = static_cast<uint32_t>(product);
            word = static_cast<uint32_t>((static_cast<uint64_t>(word) << 32 | word) >> (32 - 13));
        }
    }
    return words;
}

// Memory at an address with the given remainder modulo 16. The memory ends with its allocation, so that the sanitizer detects a
// read past it.
struct Placed {
    std::vector<uint8_t> memory;
    uint8_t *bytes;
    Placed(const std::vector<uint8_t> &content, uint32_t remainder) : memory(remainder + content.size()) {
        memory.shrink_to_fit();
        bytes = memory.data() + remainder; // new returns multiples of 16
        if (!content.empty()) memcpy(bytes, content.data(), content.size());
    }
};

static std::vector<uint8_t> random_bytes(Random &random, uint32_t length) {
    std::vector<uint8_t> bytes(length);
    for (uint8_t &b : bytes) b = static_cast<uint8_t>(random.below(256));
    return bytes;
}

static void check_direct(Random &random, uint32_t length, uint32_t remainder, uint32_t rounds) {
    std::vector<uint8_t> input = random_bytes(random, length);
    Placed batch(input, remainder);
    std::vector<uint32_t> want = slow_mix(input, rounds), result(want.size(), 0xdeadbeefu);
    result.shrink_to_fit();
    emulator::launch(min(mix_blocks(length, 1), 2u), kMixThreads, mix_bytes, static_cast<const uint8_t *>(batch.bytes),
                     length, rounds, reinterpret_cast<uint8_t *>(result.data()), static_cast<uint8_t *>(nullptr));
    for (size_t i = 0; i < want.size(); i++) {
        CHECK_EQUAL(result[i], want[i], "mix of %u bytes at 16n+%u, %u rounds: word %zu", length, remainder, rounds, i);
    }
}

static void check_through_scratch(Random &random, uint32_t length, uint32_t factor) {
    std::vector<uint8_t> input = random_bytes(random, length);
    Placed batch(input, 1);
    uint64_t room = mix_scratch_bytes(length, factor), words = mix_result_bytes(length);
    std::vector<uint8_t> scratch(room, 0xee);
    std::vector<uint32_t> want = slow_mix(input, 3), result(want.size(), 0xdeadbeefu);
    uint32_t blocks = min(mix_blocks(length, 1), 2u);
    emulator::launch(blocks, kMixThreads, mix_bytes, static_cast<const uint8_t *>(batch.bytes), length, 3u,
                     scratch.data(), room > words ? &scratch.back() : static_cast<uint8_t *>(nullptr));
    if (room > words) CHECK_EQUAL(scratch.back(), 1u, "%u bytes, factor %u: the scratch's last byte", length, factor);
    for (uint64_t i = words; i + 1 < room; i++) {
        CHECK_EQUAL(scratch[i], 0xeeu, "%u bytes, factor %u: byte %llu of the scratch", length, factor,
                    static_cast<unsigned long long>(i));
    }
    emulator::launch(blocks, kMixThreads, mix_bytes, static_cast<const uint8_t *>(scratch.data()),
                     static_cast<uint32_t>(words), 0u, reinterpret_cast<uint8_t *>(result.data()),
                     static_cast<uint8_t *>(nullptr));
    for (size_t i = 0; i < want.size(); i++) {
        CHECK_EQUAL(result[i], want[i], "mix of %u bytes through scratch: word %zu", length, i);
    }
}

void check_mix() {
    CHECK_EQUAL(mix_round(0), 1013904223u << 13 | 1013904223u >> 19, "a round of 0");
    CHECK_EQUAL(mix_round(1), 1015568748u << 13 | 1015568748u >> 19, "a round of 1");
    CHECK_EQUAL(mix_result_bytes(0), 0u, "no bytes");
    CHECK_EQUAL(mix_result_bytes(5), 8u, "five bytes");
    CHECK_EQUAL(mix_scratch_bytes(5, 0), 0u, "no scratch");
    CHECK_EQUAL(mix_scratch_bytes(100, 3), 512u, "scratch");
    CHECK_EQUAL(mix_blocks(1, 132), 1u, "a byte");
    CHECK_EQUAL(mix_blocks(1u << 30, 132), 132u * 8, "all multiprocessors");
    Random random(11);
    for (uint32_t remainder : {0u, 1u, 4u, 10u, 15u}) {
        for (uint32_t length = 1; length <= 40; length++) check_direct(random, length, remainder, length % 5);
    }
    uint32_t block = kMixThreads * 16;
    for (uint32_t length : {block - 1, block, block + 1, 2 * block + 4, 5 * block + 7}) {
        for (uint32_t remainder : {0u, 3u, 8u}) check_direct(random, length, remainder, 2);
    }
    for (uint32_t length : {1u, 255u, 256u, 1000u, 3 * block + 9}) {
        for (uint32_t factor : {1u, 2u, 16u}) check_through_scratch(random, length, factor);
    }
}
