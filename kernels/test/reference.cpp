// References that share no code with the kernels' arithmetic.
#include <algorithm>

#include "check.hpp"

uint32_t slow_crc32c(const std::string &row) {
    uint32_t crc = 0xffffffffu;
    for (unsigned char byte : row) {
        crc ^= byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static uint32_t rotate(uint32_t v, int n) { return v << n | v >> (32 - n); }

uint32_t slow_murmur3(uint32_t seed, const std::string &bytes) {
    uint32_t h = seed, k = 0;
    size_t i = 0;
    auto at = [&](size_t j) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[j])); };
    for (; i + 4 <= bytes.size(); i += 4) {
        k = at(i) + (at(i + 1) << 8) + (at(i + 2) << 16) + (at(i + 3) << 24);
        k *= 0xcc9e2d51, k = rotate(k, 15), k *= 0x1b873593;
        h ^= k, h = rotate(h, 13), h = h * 5 + 0xe6546b64;
    }
    k = 0;
    for (size_t j = bytes.size(); j > i; j--) k = (k << 8) + at(j - 1);
    if (bytes.size() > i) k *= 0xcc9e2d51, k = rotate(k, 15), k *= 0x1b873593, h ^= k;
    h ^= static_cast<uint32_t>(bytes.size());
    h ^= h >> 16, h *= 0x85ebca6b, h ^= h >> 13, h *= 0xc2b2ae35, h ^= h >> 16;
    return h;
}

// MT19937 (Matsumoto, Nishimura 1998) with the seeding of its authors, as in numpy's RandomState.
struct SlowTwister {
    std::vector<uint32_t> state;
    explicit SlowTwister(uint32_t seed) : state{seed} {
        for (uint32_t i = 1; i < 624; i++) state.push_back(1812433253u * (state[i - 1] ^ state[i - 1] >> 30) + i);
    }

    uint32_t next() {
        uint32_t mixed = (state[0] & 0x80000000u) | (state[1] & 0x7fffffffu);
        uint32_t y = state[397] ^ mixed >> 1 ^ (mixed % 2 ? 0x9908b0dfu : 0);
        state.erase(state.begin());
        state.push_back(y);
        y ^= y >> 11, y ^= y << 7 & 0x9d2c5680u, y ^= y << 15 & 0xefc60000u;
        return y ^ y >> 18;
    }

    // numpy's randint(low, high), by masked rejection.
    uint32_t randint(uint32_t low, uint32_t high) {
        uint32_t most = high - 1 - low, mask = 1;
        while (mask < most) mask = mask * 2 + 1;
        uint32_t value = next() & mask;
        while (value > most) value = next() & mask;
        return low + value;
    }
};

std::vector<uint32_t> slow_minhash(const std::string &row, uint32_t k, uint32_t hashes, uint32_t seed) {
    SlowTwister random(seed);
    std::vector<uint32_t> a, b, shingles, signature;
    for (uint32_t i = 0; i < hashes; i++) a.push_back(random.randint(1, 0x7fffffff)), b.push_back(random.randint(0, 0x7fffffff));
    std::vector<size_t> starts;
    for (size_t i = 0; i < row.size(); i++) {
        if (i == 0 || (row[i] & 0xc0) != 0x80) starts.push_back(i);
    }
    auto add = [&](const std::string &shingle) { shingles.push_back(std::max(slow_murmur3(a[0], shingle), 1u)); };
    if (!row.empty() && starts.size() < k) add(row);
    for (size_t c = 0; c + k <= starts.size(); c++) {
        size_t end = c + k < starts.size() ? starts[c + k] : row.size();
        add(row.substr(starts[c], end - starts[c]));
    }
    for (uint32_t i = 0; i < hashes; i++) {
        uint32_t least = shingles.empty() ? 0 : 0xffffffffu;
        for (uint32_t h : shingles) least = std::min(least, static_cast<uint32_t>(uint64_t{h} * a[i] + b[i]));
        signature.push_back(least);
    }
    return signature;
}
