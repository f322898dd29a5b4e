package operator

// mersenne61 is the prime 2^61 - 1, the modulus of MinHash's permutations.
const mersenne61 = 1<<61 - 1

// permutation maps a hash h to (a*h + b) mod mersenne61, where 0 < a < mersenne61 and b < mersenne61.
type permutation struct{ a, b uint64 }

// permutations draws n permutations from a splitmix64 generator with the given seed. It draws a before b.
func permutations(seed uint64, n int) []permutation {
	random := splitmix64(seed)
	drawn := make([]permutation, n)
	for i := range drawn {
		drawn[i].a = random.next()%(mersenne61-1) + 1
		drawn[i].b = random.next() % mersenne61
	}
	return drawn
}

// splitmix64 is the generator of Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators"
// (OOPSLA 2014), with Vigna's constants. Its value is its state.
type splitmix64 uint64

func (s *splitmix64) next() uint64 {
	*s += 0x9E3779B97F4A7C15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
