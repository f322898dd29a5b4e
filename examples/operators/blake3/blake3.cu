// blake3.cu: the BLAKE3 hash of a record, 32 bytes. One block computes a record. Each lane hashes a chunk of 1 KiB.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(blake3, 1)
MILLRACE_RESULT_ARRAY(uint8_t, hash, 32, millrace::hex | millrace::bare) // JSON "af1349b9...", Arrow fixed_size_list<uint8>

constexpr uint32_t kThreads = 128, kWords = 8, kBlock = 64, kChunk = 1024;
constexpr uint32_t kChunkStart = 1, kChunkEnd = 2, kParent = 4, kRoot = 8;
constexpr uint32_t kDepth = 32; // a record has fewer than 2^32 chunks

MILLRACE_DEVICE uint32_t initial(uint32_t i) {
    const uint32_t words[kWords] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    return words[i];
}

MILLRACE_DEVICE uint32_t rotate(uint32_t x, uint32_t by) { return x >> by | x << (32 - by); }

MILLRACE_DEVICE void mix(uint32_t *v, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t x, uint32_t y) {
    v[a] += v[b] + x, v[d] = rotate(v[d] ^ v[a], 16), v[c] += v[d], v[b] = rotate(v[b] ^ v[c], 12);
    v[a] += v[b] + y, v[d] = rotate(v[d] ^ v[a], 8), v[c] += v[d], v[b] = rotate(v[b] ^ v[c], 7);
}

// Replaces the chaining value by the value after one more block.
MILLRACE_DEVICE void compress(uint32_t *chain, const uint32_t *block, uint32_t counter, uint32_t bytes, uint32_t flags) {
    const uint8_t order[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
    uint32_t v[16], m[16], permuted[16];
    for (uint32_t i = 0; i < kWords; i++) v[i] = chain[i];
    for (uint32_t i = 0; i < 4; i++) v[8 + i] = initial(i);
    v[12] = counter, v[13] = 0, v[14] = bytes, v[15] = flags;
    for (uint32_t i = 0; i < 16; i++) m[i] = block[i];
    for (uint32_t round = 0; round < 7; round++) {
        mix(v, 0, 4, 8, 12, m[0], m[1]), mix(v, 1, 5, 9, 13, m[2], m[3]);
        mix(v, 2, 6, 10, 14, m[4], m[5]), mix(v, 3, 7, 11, 15, m[6], m[7]);
        mix(v, 0, 5, 10, 15, m[8], m[9]), mix(v, 1, 6, 11, 12, m[10], m[11]);
        mix(v, 2, 7, 8, 13, m[12], m[13]), mix(v, 3, 4, 9, 14, m[14], m[15]);
        for (uint32_t i = 0; i < 16; i++) permuted[i] = m[order[i]];
        for (uint32_t i = 0; i < 16; i++) m[i] = permuted[i];
    }
    for (uint32_t i = 0; i < kWords; i++) chain[i] = v[i] ^ v[8 + i];
}

// Sets chain to the chaining value of a parent of two nodes.
MILLRACE_DEVICE void join(uint32_t *chain, const uint32_t *left, const uint32_t *right, uint32_t flags) {
    uint32_t block[16];
    for (uint32_t i = 0; i < kWords; i++) block[i] = left[i], block[kWords + i] = right[i];
    for (uint32_t i = 0; i < kWords; i++) chain[i] = initial(i);
    compress(chain, block, 0, kBlock, kParent | flags);
}

// Sets chain to the chaining value of a chunk of the record.
MILLRACE_DEVICE void hash_chunk(uint32_t *chain, const millrace::Record &record, uint32_t chunk, uint32_t flags) {
    uint32_t from = chunk * kChunk, end = min(record.size(), from + kChunk);
    for (uint32_t i = 0; i < kWords; i++) chain[i] = initial(i);
    uint32_t start = kChunkStart;
    do {
        uint32_t bytes = min(end - from, kBlock), block[16] = {};
        for (uint32_t i = 0; i < bytes / 4; i++) block[i] = record.load<uint32_t>(from + 4 * i);
        for (uint32_t i = bytes / 4 * 4; i < bytes; i++) block[i / 4] |= static_cast<uint32_t>(record[from + i]) << i % 4 * 8;
        from += bytes;
        compress(chain, block, chunk, bytes, start | (from == end ? kChunkEnd | flags : 0));
        start = 0;
    } while (from < end);
}

MILLRACE_RECORD_BLOCK(kThreads, record, params, result, team) {
    MILLRACE_SHARED(uint32_t, nodes, kThreads * kWords);
    MILLRACE_SHARED(uint32_t, stack, kDepth * kWords); // used by lane 0: complete subtrees to the left, largest first
    uint32_t chunks = max((record.size() + kChunk - 1) / kChunk, 1u), depth = 0;
    for (uint32_t first = 0; first < chunks; first += team.lanes()) {
        uint32_t count = min(chunks - first, team.lanes());
        bool last = first + count == chunks;
        if (team.lane() < count) hash_chunk(nodes + team.lane() * kWords, record, first + team.lane(), chunks == 1 ? kRoot : 0);
        team.sync();
        while (count > 1) { // joins neighbors; an odd node at the end stays unchanged
            uint32_t pairs = count / 2, joined[kWords];
            uint32_t root = count == 2 && last && first == 0 ? kRoot : 0;
            uint32_t *left = nodes + 2 * team.lane() * kWords, *odd = nodes + (count - 1) * kWords;
            if (team.lane() < pairs) join(joined, left, left + kWords, root);
            if (team.lane() == pairs && count % 2 == 1) {
                for (uint32_t i = 0; i < kWords; i++) joined[i] = odd[i];
            }
            count -= pairs;
            team.sync();
            for (uint32_t i = 0; team.lane() < count && i < kWords; i++) nodes[team.lane() * kWords + i] = joined[i];
            team.sync();
        }
        if (team.lane() == 0) { // joins a subtree with left neighbors as long as they have its size, and the last one with all
            for (uint32_t subtrees = first / team.lanes() + 1; depth > 0 && (last || subtrees % 2 == 0); subtrees /= 2) {
                depth--;
                uint32_t joined[kWords];
                join(joined, stack + depth * kWords, nodes, last && depth == 0 ? kRoot : 0);
                for (uint32_t i = 0; i < kWords; i++) nodes[i] = joined[i];
            }
            for (uint32_t i = 0; i < kWords; i++) stack[depth * kWords + i] = nodes[i];
            depth++;
        }
        team.sync();
    }
    for (uint32_t i = team.lane(); i < 32; i += team.lanes()) result.hash[i] = static_cast<uint8_t>(nodes[i / 4] >> i % 4 * 8);
}
