// Tests the keys of near-duplicates on the host.
#include "cuda_on_host.hpp"

#include "../neardup_keys.cuh"
#include "check.hpp"

using namespace millrace;

// Known keys, which a Python program computed from the definition (internal/operator/neardup). Value i of the signature is
// i*2654435761 + 12345.
struct KnownKeys {
    uint32_t bands, rows;
    uint64_t first, last, all; // XOR of all keys
};

static const KnownKeys known[] = {
    {20, 13, 0x891b46f6fc11ac21, 0xcfbde13dab0b27d4, 0x6b741155a3684614},
    {1, 1, 0xf321f585bb66785, 0xf321f585bb66785, 0xf321f585bb66785},
    {64, 4, 0x848b9d24518cd781, 0x5a62c465ec2dc1c0, 0x245a91528d036dc0},
    {3, 2, 0xe2a318d6779e4d3d, 0x64b479d8346ef6df, 0x9ca95dba73398f40},
};

// Computes the keys of `records` equal signatures.
static void check_known(const KnownKeys &want, uint32_t records) {
    std::vector<uint32_t> signatures;
    for (uint32_t r = 0; r < records; r++) {
        for (uint32_t i = 0; i < want.bands * want.rows; i++) signatures.push_back(i * 2654435761u + 12345);
    }
    uint64_t keys = uint64_t(records) * want.bands;
    std::vector<uint64_t> result(keys, 0xdeadbeef);
    uint32_t blocks = static_cast<uint32_t>((keys + kNeardupKeyThreads - 1) / kNeardupKeyThreads);
    emulator::launch(blocks, kNeardupKeyThreads, neardup_write_keys, signatures.data(), want.bands, want.rows, keys, result.data());
    for (uint32_t r = 0; r < records; r++) {
        const uint64_t *own = &result[uint64_t(r) * want.bands];
        uint64_t all = 0;
        for (uint32_t b = 0; b < want.bands; b++) all ^= own[b];
        CHECK_EQUAL(own[0], want.first, "first key of record %u of %u, %u bands of %u", r, records, want.bands, want.rows);
        CHECK_EQUAL(own[want.bands - 1], want.last, "last key of record %u of %u, %u bands of %u", r, records, want.bands, want.rows);
        CHECK_EQUAL(all, want.all, "keys of record %u of %u, %u bands of %u", r, records, want.bands, want.rows);
    }
}

void check_neardup_keys() {
    for (const KnownKeys &want : known) {
        for (uint32_t records : {1u, 2u, 127u, 128u, 129u, 300u}) check_known(want, records);
    }
}
