#include "hashes.hpp"

#include <string.h>

#include <algorithm>

namespace {

struct Vector {
    uint32_t bytes;
    const char *hash;
};

// The hashes of records whose byte i is i % 251, from test_vectors.json of the BLAKE3 reference implementation.
const Vector kVectors[] = {
    {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
    {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
    {2, "7b7015bb92cf0b318037702a6cdd81dee41224f734684c2c122cd6359cb1ee63"},
    {3, "e1be4d7a8ab5560aa4199eea339849ba8e293d55ca0a81006726d184519e647f"},
    {63, "e9bc37a594daad83be9470df7f7b3798297c3d834ce80ba85d6e207627b7db7b"},
    {64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98"},
    {65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee"},
    {127, "d81293fda863f008c09e92fc382a81f5a0b4a1251cba1634016a0f86a6bd640d"},
    {129, "683aaae9f3c5ba37eaaf072aed0f9e30bac0865137bae68b1fde4ca2aebdcb12"},
    {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
    {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
    {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
    {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
    {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
    {3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
    {3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3"},
    {4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969"},
    {4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995"},
    {5121, "628bd2cb2004694adaab7bbd778a25df25c47b9d4155a55f8fbd79f2fe154cff"},
    {6145, "f1323a8631446cc50536a9f705ee5cb619424d46887f3c376c695b70e0f0507f"},
    {7169, "a003fc7a51754a9b3c7fae0367ab3d782dccf28855a03d435f8cfe74605e7817"},
    {8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63"},
    {8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b"},
    {16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4"},
    {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
    {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
};

std::string counting(uint32_t bytes) {
    std::string s(bytes, 0);
    for (uint32_t i = 0; i < bytes; i++) s[i] = static_cast<char>(i % 251);
    return s;
}

std::string hex(const std::string &bytes) {
    std::string s;
    for (unsigned char c : bytes) s += "0123456789abcdef"[c / 16], s += "0123456789abcdef"[c % 16];
    return s;
}

void check_hash(const char *what, size_t bytes, const Answer &got, const std::string &want) {
    CHECK_EQUAL(got.code, MILLRACE_DONE, "blake3 in %s of %zu bytes", what, bytes);
    CHECK_EQUAL(hex(got.record) == want, true, "blake3 in %s of %zu bytes: %s, want %s", what, bytes, hex(got.record).c_str(), want.c_str());
}

} // namespace

void check_blake3(const std::string &folder) {
    Rows rows;
    for (const Vector &v : kVectors) rows.push_back(counting(v.bytes));
    // These records exceed the bytes that a block hashes at once, with all kinds of ends. The test compares the results with
    // those of one lane, whose code keeps only a path of the tree.
    for (uint32_t bytes : {128u << 10, (128u << 10) + 1, 129u << 10, 256u << 10, (256u << 10) + 1, 300'000u, (1u << 20) - 1, (1u << 20) + 3000}) {
        rows.push_back(counting(bytes));
    }
    std::vector<Answer> one = Library((folder + "/blake3.so").c_str()).run(rows, "", 32, 0xa5, false);
    std::vector<Answer> lanes = Library((folder + "/blake3.lanes.so").c_str()).run(rows, "", 32, 0xa5, false);
    for (size_t r = 0; r < rows.size(); r++) {
        std::string want = r < sizeof kVectors / sizeof kVectors[0] ? kVectors[r].hash : hex(one[r].record);
        check_hash("one lane", rows[r].size(), one[r], want);
        check_hash("lanes", rows[r].size(), lanes[r], want);
    }
}

Answer simhash(uint32_t width, const std::string &row) {
    Answer a;
    if (row.empty()) {
        a.code = 1, a.record.assign(8, 0);
        return a;
    }
    int64_t balance[64] = {};
    size_t bytes = std::min<size_t>(width, row.size());
    for (size_t at = 0; at + bytes <= row.size(); at++) {
        uint64_t hash = 0;
        memcpy(&hash, row.data() + at, bytes);
        hash += bytes * 0x9e3779b97f4a7c15;
        hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9;
        hash = (hash ^ hash >> 27) * 0x94d049bb133111eb;
        hash ^= hash >> 31;
        for (int bit = 0; bit < 64; bit++) balance[bit] += hash >> bit & 1 ? 1 : -1;
    }
    uint64_t bits = 0;
    for (int bit = 0; bit < 64; bit++) bits |= static_cast<uint64_t>(balance[bit] > 0) << bit;
    a.record = Packer().add(bits).bytes();
    return a;
}
