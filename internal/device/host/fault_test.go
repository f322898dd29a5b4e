package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"millrace/internal/device"
)

// wantLost checks that the fault on r.s lost the device permanently, with detail in the message.
func (r *rig) wantLost(detail string) {
	r.Helper()
	r.fails(r.s.Synchronize(), device.ErrLost)
	if err := r.dev.Err(); err == nil || !strings.Contains(err.Error(), detail) {
		r.Errorf("the device's error is %v, want one that says %q", err, detail)
	}
	_, alloc := r.dev.Alloc(1)
	_, stream := r.dev.NewStream("late")
	_, event := r.dev.NewEvent(0)
	_, kernel := r.dev.Kernel("func", nil)
	_, wait := r.dev.WaitCompletion(context.Background())
	for _, err := range []error{alloc, stream, event, kernel, wait, r.s.Notify(1), r.s.Close(), r.dev.Close()} {
		r.fails(err, device.ErrLost)
	}
	r.ok(r.s.Close())
	r.ok(r.dev.Close())
}

// illegal returns one example of each kind of illegal device memory.
func illegal(r *rig) map[string]device.Memory {
	freed, short := r.memory(64), r.memory(64)
	r.ok(r.dev.Free(freed))
	return map[string]device.Memory{
		"freed":    freed,
		"nowhere":  {Addr: 1 << 60, Bytes: 64},
		"too long": {Addr: short.Addr, Bytes: 65},
		"before":   {Addr: short.Addr - 1, Bytes: 2},
		"wrapped":  {Addr: ^uint64(0) - 1, Bytes: 64},
		"null":     {Addr: 0, Bytes: 1},
	}
}

// TestIllegalAddressLosesDevice checks that a copy or a fill outside live memory loses the device, as on a GPU. The
// invariants build panics earlier, at the call.
func TestIllegalAddressLosesDevice(t *testing.T) {
	if device.Invariants {
		t.Skip("UNDER THE INVARIANTS TAG AN ILLEGAL ADDRESS PANICS: SEE TestMisusePanics")
	}
	for name := range illegal(newRig(t)) {
		t.Run(name, func(t *testing.T) {
			for call, enqueue := range map[string]func(r *rig, m device.Memory, b device.HostBuffer) error{
				"fill":     func(r *rig, m device.Memory, _ device.HostBuffer) error { return r.s.Fill(m, 1) },
				"copy in":  func(r *rig, m device.Memory, b device.HostBuffer) error { return r.s.CopyIn(m, b.Slice(0, m.Bytes)) },
				"copy out": func(r *rig, m device.Memory, b device.HostBuffer) error { return r.s.CopyOut(b, m) },
			} {
				r := newRig(t)
				r.ok(enqueue(r, illegal(r)[name], r.host(128)))
				r.wantLost(call + ": device lost: illegal address")
				if errors.Is(r.dev.Err(), device.ErrKernelFault) {
					t.Errorf("%v: no kernel caused this loss", r.dev.Err())
				}
			}
		})
	}
}

// TestLossWakesEveryone checks that waits for work that will never complete return the loss. Queued work is discarded.
func TestLossWakesEveryone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, kernelFunc(func([]byte, []uint32, []byte, device.Parallel) error { panic("lost") }))
		other, waiter := r.stream("other"), r.stream("waiter")
		e, err := r.dev.NewEvent(0)
		r.ok(err)
		r.gate(other)
		r.ok(other.Record(e))
		r.ok(waiter.Wait(e))
		open := r.gate(r.s)
		r.launch(r.s, r.kernel("func"))
		r.ok(r.s.Notify(1))

		var errs [3]error
		go func() { errs[0] = other.Synchronize() }()
		go func() { errs[1] = waiter.Synchronize() }()
		go func() { _, errs[2] = r.dev.WaitCompletion(t.Context()) }()
		synctest.Wait()
		before := r.dev.Now()
		open()
		synctest.Wait()
		for _, err := range append(errs[:], r.dev.Check(t.Context())) {
			r.fails(err, device.ErrLost)
			r.fails(err, device.ErrKernelFault)
		}
		if r.dev.Now() != before {
			t.Errorf("the waits ended after %v, at the gate's limit and not at the loss", r.dev.Now()-before)
		}
		_, err = e.Done()
		r.fails(err, device.ErrLost)
	})
}
