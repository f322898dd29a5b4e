//go:build !invariants

package device

// Invariants reports whether the build tag `invariants` is set. With it, devices panic on misuse that a GPU would
// punish. It is a constant, so the checks cost nothing when it is false.
const Invariants = false
