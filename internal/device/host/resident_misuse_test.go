//go:build invariants

package host_test

import (
	"runtime"
	"strings"
	"testing"

	"millrace/internal/device"
)

// TestPostedBatchIsTheDevices: a posted batch's buffers may not be used until Done has said true, and then they may.
func TestPostedBatchIsTheDevices(t *testing.T) {
	work := make(chan struct{})
	r := newRig(t, kernelFunc(func([]byte, []uint32, []byte, device.Parallel) error {
		<-work
		return nil
	}))
	region, result, m := r.host(8), r.host(64), r.memory(64)
	resident := r.resident("func")
	r.ok(resident.Post(oneRow, region, 0, result))
	for says, misuse := range map[string]func(){
		"host buffer looked at": func() { region.Bytes() },
		"host buffer freed":     func() { r.ok(r.dev.FreeHost(result)) },
		"streams of resident func and s use the same memory in no order": func() { r.ok(r.s.CopyOut(result, m)) },
	} {
		if said := panicOf(misuse); !strings.Contains(said, says) {
			t.Errorf("it says %q, want %q in it", said, says)
		}
	}
	r.ok(r.s.CopyIn(m, region.Slice(0, 8))) // both read
	close(work)
	for done := false; !done; runtime.Gosched() {
		var err error
		done, err = resident.Done()
		r.ok(err)
	}
	result.Bytes()
	r.ok(r.s.CopyOut(result, m))
	r.ok(r.s.Synchronize())
	r.ok(resident.Close())
}
