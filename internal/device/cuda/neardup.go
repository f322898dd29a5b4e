//go:build cgo

package cuda

import (
	"math"
	"sync"

	"millrace/internal/device"
)

// NearDuplicates is an index of near-duplicates in a GPU's memory (see package neardup). Its calls enqueue work on its
// stream. If a call fails on the device, the index is unusable.
type NearDuplicates struct {
	object
	parameters NearDuplicateParameters
	handle     indexHandle
	bytes      int64
	calls      sync.Mutex
}

// NewNearDuplicates creates an empty index that runs on s, a stream of the same GPU. It allocates all of the index's
// memory. The caller must close the index before the stream.
func NewNearDuplicates(d device.Device, s device.Stream, p NearDuplicateParameters) (*NearDuplicates, error) {
	const op = "new index"
	g, ok := d.(*gpu)
	if !ok {
		return nil, device.Errorf(op, "", device.ErrInvalid, "an index of near-duplicates needs a GPU")
	}
	own, err := g.streamOf(op, s)
	if err != nil {
		return nil, err
	}
	n := &NearDuplicates{parameters: p}
	err = own.call(op, func() error { return n.open(own) })
	if err != nil {
		return nil, err
	}
	return n, nil
}

func (n *NearDuplicates) open(s *stream) error {
	const op = "new index"
	g, p := s.d, n.parameters
	if !g.lib.hasIndex() {
		return g.errorf(op, device.ErrUnavailable, "%s has version %d of the ABI: use the kernel library of this version", g.lib.path, g.lib.abi)
	}
	if p.Bands < 0 || p.Bands > math.MaxUint16 || p.Records < 0 || p.Batch < 0 {
		return g.errorf(op, device.ErrInvalid, "%+v", p)
	}
	needs, err := g.lib.indexNeeds(p)
	if err != nil {
		return err
	}
	if needs.result != p.ResultBytes(p.Batch) || needs.list != p.listBytes() || needs.carried != p.alsoBytes() {
		return g.errorf(op, device.ErrUnavailable, "%s has a different layout of results: use the kernel library of this version", g.lib.path)
	}
	n.bytes = needs.device
	if n.handle, err = g.lib.indexCreate(s.handle, p); err != nil {
		return err
	}
	n.await = func() error { return g.lib.streamSynchronize(s.handle) }
	g.add(&n.object, "index of near-duplicates", 1, func() error { return g.lib.indexDestroy(n.handle) }) // freed before its stream
	return nil
}

// Bytes returns the size of the index's device memory in bytes.
func (n *NearDuplicates) Bytes() int64 { return n.bytes }

// alone makes a call while no other call on the index runs.
func (n *NearDuplicates) alone(op string, call func() error) error {
	return n.call(op, func() error {
		n.calls.Lock()
		defer n.calls.Unlock()
		return call()
	})
}

// Apply finds the near-duplicates in a batch and inserts its keys. Afterwards, Undo can't remove earlier batches.
func (n *NearDuplicates) Apply(b NearDuplicateBatch) error {
	const op = "apply"
	p := n.parameters
	if b.Records < 1 || b.Records > p.Batch || b.Keys.Bytes < b.Records*p.Bands*8 || b.Positions.Bytes < b.Records*positionBytes ||
		b.Result.Bytes < p.ResultBytes(b.Records) {
		return n.d.errorf(op, device.ErrInvalid, "a batch of %d records with %d, %d and %d bytes: give 1 to %d records, and memory for all of them",
			b.Records, b.Keys.Bytes, b.Positions.Bytes, b.Result.Bytes, p.Batch)
	}
	return n.alone(op, func() error { return n.d.lib.indexApply(n.handle, b) })
}

// Undo removes the records of the last batch, as if Apply had not been called. It fails with device.ErrInvalid unless the
// last successful call was Apply.
func (n *NearDuplicates) Undo() error {
	return n.alone("undo", func() error { return n.d.lib.indexUndo(n.handle) })
}

// Replay applies records of a log. Afterwards, Undo can't remove earlier batches.
func (n *NearDuplicates) Replay(r NearDuplicateRows) error {
	const op = "replay"
	if r.Records < 1 || r.First < 0 || r.Carries < 0 || r.Carried < 0 || r.FirstCarried < 0 || r.Keys < 0 ||
		r.Labels.Bytes < r.Records*positionBytes || r.CarriedLabels.Bytes < r.Carried*positionBytes ||
		r.Inserted.Bytes < r.Keys*8 || r.KeyLabels.Bytes < r.Keys*4 || r.Conflicts.Bytes < 8 {
		return n.d.errorf(op, device.ErrInvalid, "%+v: give memory for all rows", r)
	}
	return n.alone(op, func() error { return n.d.lib.indexReplay(n.handle, r) })
}

// Close waits for the index's work and frees its memory.
func (n *NearDuplicates) Close() error {
	return n.close("close index", func() error {
		if err := n.d.checked(n.await()); err != nil {
			return err
		}
		return n.free()
	})
}
