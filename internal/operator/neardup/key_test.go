package neardup

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// TestKnownKeys compares keys with those of a Python program that follows the package comment. Value i of the signature is i*2654435761 + 12345
// modulo 2^32.
func TestKnownKeys(t *testing.T) {
	for _, c := range []struct {
		bands, rows      int
		first, last, xor uint64 // first, last and XOR of all keys
	}{
		{20, 13, 0x891b46f6fc11ac21, 0xcfbde13dab0b27d4, 0x6b741155a3684614},
		{1, 1, 0xf321f585bb66785, 0xf321f585bb66785, 0xf321f585bb66785},
		{64, 4, 0x848b9d24518cd781, 0x5a62c465ec2dc1c0, 0x245a91528d036dc0},
		{3, 2, 0xe2a318d6779e4d3d, 0x64b479d8346ef6df, 0x9ca95dba73398f40},
	} {
		p := Parameters{Bands: c.bands, Rows: c.rows}
		var signature []uint32
		for i := range c.bands * c.rows {
			signature = append(signature, uint32(i)*2654435761+12345)
		}
		keys := p.AppendKeys(nil, signature)
		xor := uint64(0)
		for _, key := range keys {
			xor ^= key
		}
		if keys[0] != c.first || keys[len(keys)-1] != c.last || xor != c.xor || len(keys) != c.bands {
			t.Errorf("%d bands of %d rows: %#x to %#x, xor %#x", c.bands, c.rows, keys[0], keys[len(keys)-1], xor)
		}
	}
}

// TestKeysMix flips each bit of random signatures. Each bit of the key above the band bits must change in about half of the cases.
func TestKeysMix(t *testing.T) {
	p := Parameters{Bands: 2, Rows: 3}
	const samples, low = 4000, 2
	random := rand.New(rand.NewPCG(1, 2))
	for flipped := range p.Rows * 32 {
		var changed [64]int
		for range samples {
			signature := make([]uint32, 2*p.Rows)
			for i := range signature {
				signature[i] = random.Uint32() >> (random.IntN(4) * 8)
			}
			before := p.AppendKeys(nil, signature)
			signature[flipped/32] ^= 1 << (flipped % 32)
			after := p.AppendKeys(nil, signature)
			if before[1] != after[1] {
				t.Fatal("a value of band 0 changed the key of band 1")
			}
			for d := before[0] ^ after[0]; d != 0; d &= d - 1 {
				changed[bits.TrailingZeros64(d)]++
			}
		}
		for bit, n := range changed {
			// The limit is 6 standard deviations.
			if limit := 3 * math.Sqrt(samples); bit < low && n != 0 || bit >= low && math.Abs(float64(n)-samples/2) > limit {
				t.Errorf("flipping bit %d of the values changes bit %d of the key %d times in %d", flipped, bit, n, samples)
			}
		}
	}
}

// TestKeysContainTheirBand also checks that no key is 0, which marks an empty slot.
func TestKeysContainTheirBand(t *testing.T) {
	for bands := 1; bands <= MaxBands; bands++ {
		p := Parameters{Bands: bands, Rows: 2}
		for b, key := range p.AppendKeys(nil, make([]uint32, bands*2)) {
			if p.bandOf(key) != b {
				t.Errorf("key %#x of band %d of %d: band %d", key, b, bands, p.bandOf(key))
			}
		}
		if b := p.bandOf(0); b >= 0 {
			t.Errorf("0 is a key of band %d of %d", b, bands)
		}
	}
}
