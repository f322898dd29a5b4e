package operator

// A checksum is a remainder modulo the CRC's polynomial P over GF(2), so the checksum of two byte strings one
// behind the other follows from theirs: appending n bytes multiplies by x^(8n), and the second is then added.
// The complements at both ends cancel. zlib's crc32_combine rests on the same fact.

// crc32cConcat is the CRC-32C of a byte string with checksum first followed by one of n bytes (below 2^32)
// with checksum second.
func crc32cConcat(first, second uint32, n int) uint32 {
	for bit := 0; n != 0; bit++ {
		if n&1 != 0 {
			first = timesModP(first, powersOfX[bit])
		}
		n >>= 1
	}
	return first ^ second
}

// powersOfX[i] is x^(8 * 2^i) mod P: what appending 2^i bytes multiplies by.
var powersOfX = func() (powers [32]uint32) {
	powers[0] = 1 << (31 - 8) // x^8: bit 31 is the coefficient of x^0
	for i := 1; i < len(powers); i++ {
		powers[i] = timesModP(powers[i-1], powers[i-1])
	}
	return powers
}()

// timesModP is the product of a and b modulo P, in the order of bits that castagnoli has.
func timesModP(a, b uint32) uint32 {
	var product uint32
	for bit := uint32(1) << 31; bit != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		b = b>>1 ^ castagnoli&-(b&1) // b times x
	}
	return product
}
