package operator

import (
	"math/bits"

	"millrace/internal/operator/compiled"
	"millrace/internal/operator/simd"
)

// minhashParameters are the parameters of minhash and the coefficients that follow from them. The reference and the host kernel read
// only these values. Signature entry i uses the permutation h*a[i] + b[i] modulo 2^32.
type minhashParameters struct {
	k    int      // characters per shingle
	a, b []uint32 // one per signature entry; the capacity is a multiple of simd.Padding
	seed uint32   // seed of the shingles' hash
}

// minhashParametersOf returns the parameters in a block, or an error if the block isn't valid.
func minhashParametersOf(d *compiled.Description, block []byte) (*minhashParameters, error) {
	o, err := d.BindBlock(block)
	if err != nil {
		return nil, err
	}
	return newMinhashParameters(int(o.Value(0)), int(o.Value(1)), uint32(o.Value(2))), nil
}

func newMinhashParameters(k, hashes int, seed uint32) *minhashParameters {
	p := &minhashParameters{k: k}
	p.a, p.b = coefficients(seed, hashes)
	p.seed = p.a[0] // as in NeMo Curator
	return p
}

// coefficients returns n pairs of coefficients as NeMo Curator draws them from numpy's RandomState(seed): randint(1, 2^31-1) for a, and
// then randint(0, 2^31-1) for b. numpy excludes the upper bound.
func coefficients(seed uint32, n int) (a, b []uint32) {
	const end = 1<<31 - 1
	random := newMersenneTwister(seed)
	padded := (n + simd.Padding - 1) / simd.Padding * simd.Padding
	a, b = make([]uint32, n, padded), make([]uint32, n, padded)
	for i := range n {
		a[i] = random.between(1, end)
		b[i] = random.between(0, end)
	}
	return a, b
}

// mersenneTwister is the generator MT19937 of Matsumoto and Nishimura, "Mersenne Twister: A 623-dimensionally equidistributed uniform
// pseudorandom number generator" (ACM TOMACS, 1998). numpy's RandomState uses it.
type mersenneTwister struct {
	state [624]uint32
	used  int // number of the state's words that next has returned
}

// newMersenneTwister returns a generator with the state that the authors' init_genrand sets.
func newMersenneTwister(seed uint32) *mersenneTwister {
	m := &mersenneTwister{used: len(mersenneTwister{}.state)}
	for i := range m.state {
		m.state[i] = seed
		seed = 1812433253*(seed^seed>>30) + uint32(i+1)
	}
	return m
}

func (m *mersenneTwister) next() uint32 {
	if m.used == len(m.state) {
		m.advance()
		m.used = 0
	}
	y := m.state[m.used]
	m.used++
	y ^= y >> 11
	y ^= y << 7 & 0x9D2C5680
	y ^= y << 15 & 0xEFC60000
	return y ^ y>>18
}

// advance replaces the state by the next 624 words.
func (m *mersenneTwister) advance() {
	const upper, n = 1 << 31, len(m.state)
	for i := range m.state {
		y := m.state[i]&upper | m.state[(i+1)%n]&^upper
		m.state[i] = m.state[(i+397)%n] ^ y>>1 ^ 0x9908B0DF*(y&1)
	}
}

// between returns a number from low to end-1. Like numpy, it draws numbers with as many bits as the range needs, until a number is in the
// range.
func (m *mersenneTwister) between(low, end uint32) uint32 {
	span := end - 1 - low
	for {
		if drawn := m.next() & (1<<bits.Len32(span) - 1); drawn <= span {
			return low + drawn
		}
	}
}
