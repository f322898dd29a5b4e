package inflight

import (
	"errors"
	"testing"

	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestThePoolDividesItsMemory: used memory and memory that is kept for reuse never exceed the pool's share together.
func TestThePoolDividesItsMemory(t *testing.T) {
	t.Parallel()
	pipes := []*streams.Pipeline{testPipeline(t, hostDevice(t), streams.Config{})}
	settings := Settings{Costs: NewCosts(operator.JSON, crc32c(t)), Fixed: 10 << 20, Largest: 1 << 20}
	for _, mib := range []int64{24, 32, 64, 2048} {
		settings.Memory = mib << 20
		p, err := NewPool(pipes, settings)
		if err != nil {
			t.Fatalf("%d MiB: %v", mib, err)
		}
		if all := p.memory.limit + p.retained.most + settings.Fixed; all > settings.Memory {
			t.Errorf("all of it together may take %d MiB of %d", all>>20, mib)
		}
	}
	settings.Memory = 12 << 20
	if _, err := NewPool(pipes, settings); !errors.Is(err, ErrMemory) {
		t.Errorf("with too little memory: %v, want ErrMemory", err)
	}
}
