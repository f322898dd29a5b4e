//go:build !cgo || !amd64

package simd

// Minhashes returns no variant.
func Minhashes() []Minhash { return nil }
