package host_test

import (
	"encoding/binary"
	"runtime"
	"testing"

	"millrace/internal/device"
)

func (r *rig) mapped(b device.HostBuffer) device.Memory {
	r.Helper()
	m, err := r.dev.Map(b)
	r.ok(err)
	return m
}

// launchTo runs the kernel named func on a batch of one empty row and puts its result at the given address.
func (r *rig) launchTo(s device.Stream, result device.Memory) error {
	r.Helper()
	offsets := r.host(8)
	clear(offsets.Bytes())
	return s.Launch(r.kernel("func"), device.LaunchArgs{Shape: device.Shape{Rows: 1}, Offsets: r.mapped(offsets), Result: result})
}

// launchInPlace calls launchTo with a host buffer.
func (r *rig) launchInPlace(s device.Stream, result device.HostBuffer) error {
	r.Helper()
	return r.launchTo(s, r.mapped(result))
}

// TestBuffersAreAligned checks that buffers of any size have the alignment that device.LaunchArgs requires for results.
func TestBuffersAreAligned(t *testing.T) {
	r := newRig(t, spread)
	for _, bytes := range []int{64, 65, 300, 1000, 4097, 40000} {
		b := r.host(bytes)
		if b.Len() != bytes {
			t.Errorf("asked for %d bytes and got %d", bytes, b.Len())
		}
		r.ok(r.launchInPlace(r.s, b))
		r.ok(r.s.Synchronize())
		if got := b.Bytes()[:64]; got[0] != 1 || got[63] != 64 {
			t.Errorf("%d bytes: the result begins with %d and ends with %d, want 1 and 64", bytes, got[0], got[63])
		}
	}
}

// TestMapsWhatIsLive checks that Map accepts only this device's buffers, and only until they are freed.
func TestMapsWhatIsLive(t *testing.T) {
	r, other := newRig(t), newRig(t)
	freed := r.host(64)
	r.ok(r.dev.FreeHost(freed))
	for name, b := range map[string]device.HostBuffer{"freed": freed, "another device's": other.host(64)} {
		_, err := r.dev.Map(b)
		if err == nil {
			t.Errorf("%s buffer was mapped", name)
			continue
		}
		r.fails(err, device.ErrInvalid)
	}
	whole := r.host(1000)
	if part, at := r.mapped(whole.Slice(100, 50)), r.mapped(whole); part != at.Slice(100, 50) {
		t.Errorf("a slice is at %v, and the whole at %v", part, at)
	}
}

// TestMappedAddressesAreNotUsedAgain checks that mapped addresses are never reused, so using an address after FreeHost
// always causes a fault.
func TestMappedAddressesAreNotUsedAgain(t *testing.T) {
	r := newRig(t)
	seen := map[uint64]bool{}
	for range 20 {
		b := r.host(1 << 20)
		at := r.mapped(b).Addr
		if seen[at] {
			t.Fatalf("address %#x was returned twice", at)
		}
		seen[at] = true
		r.ok(r.dev.FreeHost(b))
		runtime.GC() // the memory itself may be reused, but not its address
	}
}

// TestOperatorsGetNoMoreThanTheirs checks that the slices that operators receive have no spare capacity. An operator
// that appends to its argument in place then doesn't overwrite later memory.
func TestOperatorsGetNoMoreThanTheirs(t *testing.T) {
	capacities := make(chan int, 2)
	r := newRig(t, kernelFunc(func(rows []byte, _ []uint32, result []byte, _ device.Parallel) error {
		capacities <- cap(rows)
		capacities <- cap(result)
		return nil
	}))
	in, out := r.host(1000), r.host(1000)
	table := r.host(8)
	binary.LittleEndian.PutUint64(table.Bytes(), 10<<32) // one row of 10 bytes
	r.ok(r.s.Launch(r.kernel("func"), device.LaunchArgs{
		Shape: device.Shape{Rows: 1, Bytes: 10, Longest: 10}, Rows: r.mapped(in).Slice(0, 10), Offsets: r.mapped(table), Result: r.mapped(out),
	}))
	r.ok(r.s.Synchronize())
	if rows, result := <-capacities, <-capacities; rows != 10 || result != 64 {
		t.Errorf("an operator got rows and result of capacity %d and %d, want 10 and 64", rows, result)
	}
}

// TestIllegalMappedAddressLosesDevice checks mapped memory that was freed or never existed. It also checks mapped
// memory that a command other than a launch uses. The invariants build panics earlier.
func TestIllegalMappedAddressLosesDevice(t *testing.T) {
	if device.Invariants {
		t.Skip("UNDER THE INVARIANTS TAG AN ILLEGAL ADDRESS PANICS: SEE TestMisusePanics")
	}
	for name, use := range map[string]func(r *rig, b device.HostBuffer) error{
		"freed": func(r *rig, b device.HostBuffer) error {
			at := r.mapped(b)
			r.ok(r.dev.FreeHost(b))
			return r.launchTo(r.s, at)
		},
		"beyond the end": func(r *rig, b device.HostBuffer) error {
			at := r.mapped(b)
			at.Addr += 256
			return r.launchTo(r.s, at)
		},
		"filled": func(r *rig, b device.HostBuffer) error { return r.s.Fill(r.mapped(b), 1) },
		"copied": func(r *rig, b device.HostBuffer) error { return r.s.CopyIn(r.mapped(b), r.host(64)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, spread)
			r.ok(use(r, r.host(64)))
			r.wantLost("illegal address")
		})
	}
}
