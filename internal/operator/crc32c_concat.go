package operator

// A checksum is a remainder modulo the CRC's polynomial P over GF(2). So the checksum of two concatenated byte strings
// follows from their checksums: appending n bytes multiplies the first by x^(8n), and the second is added to that. The
// complements at both ends cancel out. zlib's crc32_combine uses the same property.

// crc32cConcat returns the CRC-32C of a byte string with checksum first followed by a byte string of n bytes (below
// 2^32) with checksum second.
func crc32cConcat(first, second uint32, n int) uint32 {
	for bit := 0; n != 0; bit++ {
		if n&1 != 0 {
			first = timesModP(first, powersOfX[bit])
		}
		n >>= 1
	}
	return first ^ second
}

// powersOfX[i] is x^(8 * 2^i) mod P, the factor for appending 2^i bytes.
var powersOfX = func() (powers [32]uint32) {
	powers[0] = 1 << (31 - 8) // x^8: bit 31 is the coefficient of x^0
	for i := 1; i < len(powers); i++ {
		powers[i] = timesModP(powers[i-1], powers[i-1])
	}
	return powers
}()

// timesModP returns the product of a and b modulo P, in the bit order of castagnoli.
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
