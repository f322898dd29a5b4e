package textframes

import "math/bits"

// Random is splitmix64 (Steele, Lea, Flood, 2014), a generator that can start at any state. The text of frames and the documents of the
// demo come from it.
type Random struct{ State uint64 }

// Next returns a number of 64 random bits.
func (r *Random) Next() uint64 {
	r.State += 0x9e3779b97f4a7c15
	z := r.State
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Below returns a number from 0 to n-1.
func (r *Random) Below(n int) int {
	hi, _ := bits.Mul64(r.Next(), uint64(n))
	return int(hi)
}
