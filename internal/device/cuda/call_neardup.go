//go:build cgo

package cuda

// This file has one Go method per C call for the index of near-duplicates. See call.go for all other calls.

/*
#include "bridge.h"

#cgo noescape mr_neardup_apply
#cgo nocallback mr_neardup_apply
#cgo noescape mr_neardup_undo
#cgo nocallback mr_neardup_undo
#cgo noescape mr_neardup_replay
#cgo nocallback mr_neardup_replay
*/
import "C"

type indexHandle = *C.millrace_neardup

// indexMemory describes an index's device memory and the parts of its results, in bytes.
type indexMemory struct {
	device                int64
	result, list, carried int
}

// hasIndex reports whether the library supports the index. Libraries of ABI version 5 don't.
func (l *library) hasIndex() bool { return C.mr_has_neardup(l.api) != 0 }

func indexParameters(p NearDuplicateParameters) C.millrace_neardup_parameters {
	return C.millrace_neardup_parameters{
		size: C.sizeof_millrace_neardup_parameters, bands: C.uint32_t(p.Bands), records: C.uint64_t(p.Records), batch: C.uint64_t(p.Batch),
	}
}

func (l *library) indexNeeds(p NearDuplicateParameters) (indexMemory, error) {
	e, parameters := newError(), indexParameters(p)
	m := C.millrace_neardup_memory{size: C.sizeof_millrace_neardup_memory}
	err := failed("new index", C.mr_neardup_needs(l.api, &parameters, &m, &e), &e)
	return indexMemory{device: int64(m.device), result: int(m.result), list: int(m.list), carried: int(m.carried)}, err
}

func (l *library) indexCreate(s streamHandle, p NearDuplicateParameters) (indexHandle, error) {
	parameters := indexParameters(p)
	return made("new index", func(n *indexHandle, e *C.millrace_error) C.int32_t {
		return C.mr_neardup_create(l.api, s, &parameters, n, e)
	})
}

func (l *library) indexDestroy(n indexHandle) error {
	e := newError()
	return failed("close index", C.mr_neardup_destroy(l.api, n, &e), &e)
}

func (l *library) indexApply(n indexHandle, b NearDuplicateBatch) error {
	e := newError()
	batch := C.millrace_neardup_batch{
		size: C.sizeof_millrace_neardup_batch, records: C.uint64_t(b.Records),
		keys: C.uint64_t(b.Keys.Addr), positions: C.uint64_t(b.Positions.Addr), result: C.uint64_t(b.Result.Addr),
	}
	return failed("apply", C.mr_neardup_apply(l.api, n, &batch, &e), &e)
}

func (l *library) indexUndo(n indexHandle) error {
	e := newError()
	return failed("undo", C.mr_neardup_undo(l.api, n, &e), &e)
}

func (l *library) indexReplay(n indexHandle, r NearDuplicateRows) error {
	e := newError()
	rows := C.millrace_neardup_rows{
		size: C.sizeof_millrace_neardup_rows, first: C.uint64_t(r.First), records: C.uint64_t(r.Records), labels: C.uint64_t(r.Labels.Addr),
		carries: C.uint64_t(r.Carries), carried: C.uint64_t(r.Carried), first_carried: C.uint64_t(r.FirstCarried),
		carried_labels: C.uint64_t(r.CarriedLabels.Addr), keys: C.uint64_t(r.Keys), inserted: C.uint64_t(r.Inserted.Addr),
		key_labels: C.uint64_t(r.KeyLabels.Addr), conflicts: C.uint64_t(r.Conflicts.Addr),
	}
	return failed("replay", C.mr_neardup_replay(l.api, n, &rows, &e), &e)
}
