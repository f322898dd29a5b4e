//go:build invariants

package device

// Invariants says whether misuse that a GPU would punish is looked for and panics: the build tag
// `invariants`. It is a constant, so checks behind it cost nothing when it is off.
const Invariants = true
