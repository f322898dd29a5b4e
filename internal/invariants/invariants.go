// Package invariants defines On, which is true with the build tag `invariants`. The tag lets tests find misuse that is
// otherwise silent. Devices panic on misuse that would break a GPU (see device.Invariants). Buffers are overwritten
// between messages.
package invariants

// Poison overwrites memory that is kept for another message, including its spare capacity. Code that reads bytes of an
// earlier message then fails in tests. Without the build tag, Poison does nothing.
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
