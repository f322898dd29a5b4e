//go:build cgo

package cuda

/*
#include "bridge.h"
*/
import "C"

import (
	"sync"

	"millrace/internal/device"
)

// NearDuplicates is an index of near-duplicates in a GPU's memory (see package neardup). Its calls enqueue work on its
// stream. If one fails, the index is unusable.
type NearDuplicates struct {
	object
	parameters NearDuplicateParameters
	handle     *C.millrace_neardup
	bytes      int64
	calls      sync.Mutex
}

// NewNearDuplicates creates an index without records, which does its work on a stream of the same GPU. It allocates all
// its memory. Close it before the stream.
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
	if C.mr_has_neardup(g.lib.api) == 0 {
		return g.errorf(op, device.ErrUnavailable, "%s has version %d of the ABI: use the kernel library of this version", g.lib.path, g.lib.abi)
	}
	if p.Bands < 0 || p.Bands > 1<<16 || p.Records < 0 || p.Batch < 0 {
		return g.errorf(op, device.ErrInvalid, "%+v", p)
	}
	e := newError()
	parameters := C.millrace_neardup_parameters{
		size: C.sizeof_millrace_neardup_parameters, bands: C.uint32_t(p.Bands), records: C.uint64_t(p.Records), batch: C.uint64_t(p.Batch),
	}
	memory := C.millrace_neardup_memory{size: C.sizeof_millrace_neardup_memory}
	if err := failed(op, C.mr_neardup_needs(g.lib.api, &parameters, &memory, &e), &e); err != nil {
		return err
	}
	if int(memory.result) != p.ResultBytes(p.Batch) || int(memory.list) != p.listBytes() || int(memory.carried) != p.alsoBytes() {
		return g.errorf(op, device.ErrUnavailable, "%s has another layout of results: use the kernel library of this version", g.lib.path)
	}
	n.bytes = int64(memory.device)
	if err := failed(op, C.mr_neardup_create(g.lib.api, s.handle, &parameters, &n.handle, &e), &e); err != nil {
		return err
	}
	n.await = func() error { return g.lib.streamSynchronize(s.handle) }
	g.add(&n.object, "index of near-duplicates", 1, n.destroy) // freed before its stream
	return nil
}

func (n *NearDuplicates) destroy() error {
	e := newError()
	return failed("close index", C.mr_neardup_destroy(n.d.lib.api, n.handle, &e), &e)
}

// Bytes returns the size of the index's device memory.
func (n *NearDuplicates) Bytes() int64 { return n.bytes }

// make makes a call. Calls don't overlap.
func (n *NearDuplicates) make(op string, call func(e *C.millrace_error) C.int32_t) error {
	return n.call(op, func() error {
		n.calls.Lock()
		defer n.calls.Unlock()
		e := newError()
		return failed(op, call(&e), &e)
	})
}

// Apply decides on the records of a batch and inserts their keys. The batch before can't be undone any more.
func (n *NearDuplicates) Apply(b NearDuplicateBatch) error {
	const op = "apply"
	p := n.parameters
	if b.Records < 1 || b.Records > p.Batch || b.Keys.Bytes < b.Records*p.Bands*8 || b.Positions.Bytes < b.Records*positionBytes ||
		b.Result.Bytes < p.ResultBytes(b.Records) {
		return n.d.errorf(op, device.ErrInvalid, "a batch of %d records with %d, %d and %d bytes: give 1 to %d records, and memory for all of them",
			b.Records, b.Keys.Bytes, b.Positions.Bytes, b.Result.Bytes, p.Batch)
	}
	batch := C.millrace_neardup_batch{
		size: C.sizeof_millrace_neardup_batch, records: C.uint64_t(b.Records),
		keys: C.uint64_t(b.Keys.Addr), positions: C.uint64_t(b.Positions.Addr), result: C.uint64_t(b.Result.Addr),
	}
	return n.make(op, func(e *C.millrace_error) C.int32_t { return C.mr_neardup_apply(n.d.lib.api, n.handle, &batch, e) })
}

// Undo removes the records of the last batch, as if Apply had not been called. It fails with device.ErrInvalid unless the
// last successful call was Apply.
func (n *NearDuplicates) Undo() error {
	return n.make("undo", func(e *C.millrace_error) C.int32_t { return C.mr_neardup_undo(n.d.lib.api, n.handle, e) })
}

// Replay applies records of a log. The batch before can't be undone any more.
func (n *NearDuplicates) Replay(r NearDuplicateRows) error {
	const op = "replay"
	if r.Records < 1 || r.First < 0 || r.Carries < 0 || r.Carried < 0 || r.FirstCarried < 0 || r.Keys < 0 ||
		r.Labels.Bytes < r.Records*positionBytes || r.CarriedLabels.Bytes < r.Carried*positionBytes ||
		r.Inserted.Bytes < r.Keys*8 || r.KeyLabels.Bytes < r.Keys*4 || r.Conflicts.Bytes < 8 {
		return n.d.errorf(op, device.ErrInvalid, "%+v: give memory for all rows", r)
	}
	rows := C.millrace_neardup_rows{
		size: C.sizeof_millrace_neardup_rows, first: C.uint64_t(r.First), records: C.uint64_t(r.Records), labels: C.uint64_t(r.Labels.Addr),
		carries: C.uint64_t(r.Carries), carried: C.uint64_t(r.Carried), first_carried: C.uint64_t(r.FirstCarried),
		carried_labels: C.uint64_t(r.CarriedLabels.Addr), keys: C.uint64_t(r.Keys), inserted: C.uint64_t(r.Inserted.Addr),
		key_labels: C.uint64_t(r.KeyLabels.Addr), conflicts: C.uint64_t(r.Conflicts.Addr),
	}
	return n.make(op, func(e *C.millrace_error) C.int32_t { return C.mr_neardup_replay(n.d.lib.api, n.handle, &rows, e) })
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
