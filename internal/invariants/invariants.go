// Package invariants tells whether the build tag `invariants` is set. With it, tests find misuse that is silent otherwise: devices panic on
// what a GPU would punish (see device.Invariants), and buffers are overwritten between messages.
package invariants

// Poison overwrites memory that is kept for another message, with its spare capacity. So bytes of an earlier message can't pass for those of a
// later one. Without the build tag it does nothing.
func Poison(memory []byte) {
	if !On {
		return
	}
	memory = memory[:cap(memory)]
	for i := range memory {
		memory[i] = poison
	}
}

const poison = 0xDB
