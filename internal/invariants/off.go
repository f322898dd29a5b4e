//go:build !invariants

package invariants

// On reports whether the build tag invariants is set. It is a constant, so checks cost nothing if it is false.
const On = false
