// CRC-32C (Castagnoli, RFC 3720) as arithmetic on polynomials over GF(2), modulo
// P = x^32 + x^28 + x^27 + x^26 + x^25 + x^23 + x^22 + x^20 + x^19 + x^18 + x^14 + x^13 + x^11 + x^10 + x^9 + x^8 + x^6 + 1.
//
// Bits are reflected, in the order in which the CRC transmits them: bit 31 of a word is the coefficient of x^0.
//
// The raw CRC of a message M (without the initial value and the final complement) is M * x^32 mod P, so it is linear. The raw CRC
// of A followed by n bytes B is raw(A) * x^(8n) + raw(B). A row can therefore be cut anywhere. The CRCs of its pieces can be
// computed in any order, shifted by the pieces' distance to the end of the row, and added with XOR. Then
//
//     crc(M) = raw(M) + 0xffffffff * x^(8 * bytes) + 0xffffffff.
#pragma once

#include "both.cuh"

namespace millrace {

constexpr uint32_t kCrc32cPolynomial = 0x82f63b78u; // P without x^32, reflected
constexpr uint32_t kCrc32cOne = 0x80000000u;        // the polynomial 1

// Returns a * b mod P.
MILLRACE_BOTH uint32_t crc32c_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
#ifdef __CUDA_ARCH__
#pragma unroll 8
#endif
    for (int i = 0; i < 32; i++) { // adds b * x^i if a has the coefficient of x^i
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = (b >> 1) ^ (kCrc32cPolynomial & (0u - (b & 1)));
    }
    return product;
}

// The kernel's lookup tables. The host computes them once per instance.
struct Crc32cTables {
    // slice[j][v]: the raw CRC of the byte v followed by j zero bytes. Four lookups process four bytes.
    uint32_t slice[4][256];
    // power[j][v]: x^(8 * v * 256^j) mod P. A product of four entries is a shift by any number of bytes up to 2^32 - 1.
    uint32_t power[4][256];
};

inline void crc32c_make_tables(Crc32cTables *tables) {
    for (uint32_t v = 0; v < 256; v++) {
        uint32_t crc = v;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (kCrc32cPolynomial & (0u - (crc & 1)));
        tables->slice[0][v] = crc;
    }
    for (int j = 1; j < 4; j++) {
        for (uint32_t v = 0; v < 256; v++) {
            uint32_t before = tables->slice[j - 1][v];
            tables->slice[j][v] = (before >> 8) ^ tables->slice[0][before & 255];
        }
    }
    uint32_t step = kCrc32cOne >> 8; // x^8: one byte
    for (int j = 0; j < 4; j++) {
        tables->power[j][0] = kCrc32cOne;
        for (uint32_t v = 1; v < 256; v++) tables->power[j][v] = crc32c_multiply(tables->power[j][v - 1], step);
        step = crc32c_multiply(tables->power[j][255], step); // x^(8 * 256^(j+1))
    }
}

// Returns the raw CRC after `byte` is appended.
MILLRACE_BOTH uint32_t crc32c_byte(const uint32_t (*slice)[256], uint32_t crc, uint8_t byte) {
    return (crc >> 8) ^ slice[0][(crc ^ byte) & 255];
}

// Returns the raw CRC after the four bytes of a little-endian word are appended.
MILLRACE_BOTH uint32_t crc32c_word(const uint32_t (*slice)[256], uint32_t crc, uint32_t word) {
    crc ^= word;
    return slice[3][crc & 255] ^ slice[2][(crc >> 8) & 255] ^ slice[1][(crc >> 16) & 255] ^ slice[0][crc >> 24];
}

// Returns crc * x^(8 * bytes), the raw CRC after `bytes` zero bytes are appended.
MILLRACE_BOTH uint32_t crc32c_shift(const uint32_t (*power)[256], uint32_t crc, uint32_t bytes) {
    for (int j = 0; bytes != 0; j++, bytes >>= 8) {
        uint32_t digit = bytes & 255;
        if (digit != 0) crc = crc32c_multiply(crc, power[j][digit]);
    }
    return crc;
}

// Returns the term that the initial value and the final complement add to the raw CRC of a row of `bytes` bytes.
MILLRACE_BOTH uint32_t crc32c_frame(const uint32_t (*power)[256], uint32_t bytes) {
    return ~crc32c_shift(power, 0xffffffffu, bytes);
}

} // namespace millrace
