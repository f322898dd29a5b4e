package streams_test

import (
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/streams"
)

// hoard is a device whose pools are full of unused pieces of unsuitable sizes until they are trimmed.
type hoard struct{ device.Device }

func (h hoard) NewPool(c device.PoolOptions) (device.Pool, error) {
	pool, err := h.Device.NewPool(c)
	return &hoardingPool{Pool: pool}, err
}

type hoardingPool struct {
	device.Pool
	trimmed bool
}

func (h *hoardingPool) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	if !h.trimmed {
		return device.Memory{}, device.Errorf("pool alloc", "", device.ErrOutOfMemory, "nothing of %d bytes", bytes)
	}
	return h.Pool.Alloc(s, bytes)
}

func (h *hoardingPool) Trim(keep int64) error {
	h.trimmed = keep == 0
	return h.Pool.Trim(keep)
}

// TestLoneBatchGetsTheScratchOfUnusedPieces checks a batch that is alone in flight. No other batch can free scratch, so
// the pipeline must trim the pool's unused pieces.
func TestLoneBatchGetsTheScratchOfUnusedPieces(t *testing.T) {
	ops := operators(t, "minhash?hashes=4")
	p := newPipeline(t, hoard{openSim(t, sim.Options{})}, streams.Options{Operators: ops})
	rows := someRows(1, 10, 500)
	b := submit(t, p, rows)
	wantResults(t, <-p.Completed(), ops, rows)
	b.Release()
}
