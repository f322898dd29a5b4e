// References that share no code with the kernels' arithmetic.
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

uint32_t slow_murmur3(const std::string &bytes) {
    uint32_t h = 0, k = 0;
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

static uint64_t slow_splitmix64(uint64_t &state) {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

std::vector<uint32_t> slow_minhash(const std::string &row, uint32_t k, uint32_t hashes, uint64_t seed) {
    std::vector<size_t> starts;
    for (size_t i = 0; i < row.size(); i++) {
        if (i == 0 || (row[i] & 0xc0) != 0x80) starts.push_back(i);
    }
    std::vector<uint32_t> shingles;
    if (!row.empty() && starts.size() < k) shingles.push_back(slow_murmur3(row));
    for (size_t c = 0; c + k <= starts.size(); c++) {
        size_t end = c + k < starts.size() ? starts[c + k] : row.size();
        shingles.push_back(slow_murmur3(row.substr(starts[c], end - starts[c])));
    }
    const unsigned __int128 p = (static_cast<unsigned __int128>(1) << 61) - 1;
    std::vector<uint32_t> signature(hashes, 0xffffffffu);
    for (uint32_t &value : signature) {
        uint64_t a = slow_splitmix64(seed) % static_cast<uint64_t>(p - 1) + 1;
        uint64_t b = slow_splitmix64(seed) % static_cast<uint64_t>(p);
        for (uint32_t h : shingles) {
            uint32_t v = static_cast<uint32_t>((static_cast<unsigned __int128>(a) * h + b) % p);
            if (v < value) value = v;
        }
    }
    return signature;
}
