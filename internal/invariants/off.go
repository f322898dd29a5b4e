//go:build !invariants

package invariants

// On is a constant, so checks cost nothing when it is false.
const On = false
