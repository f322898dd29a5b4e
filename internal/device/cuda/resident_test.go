//go:build cgo

package cuda_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"millrace/internal/device"
)

// The Go side of resident kernels, over the library of testdata/library.c.

// residentRig is a device with a kernel that stays, and room for batches.
type residentRig struct {
	*testing.T
	d              device.Device
	k              device.Kernel
	resident       device.Resident
	region, result device.HostBuffer
}

const residentTable = 256 // where the offsets table is in the region

func newResidentRig(t *testing.T) *residentRig {
	t.Helper()
	r := &residentRig{T: t, d: simple(t)}
	r.k = must[device.Kernel](t)(r.d.Kernel("length", nil))
	r.region = must[device.HostBuffer](t)(r.d.AllocHost(512))
	r.result = must[device.HostBuffer](t)(r.d.AllocHost(256))
	r.resident = must[device.Resident](t)(r.d.(device.Residenter).Resident(r.k, device.Shape{Rows: 16, Bytes: 200, Longest: 200}))
	return r
}

// post posts rows of these lengths.
func (r *residentRig) post(lengths ...int) error {
	shape, table := device.Shape{Rows: len(lengths)}, r.region.Bytes()[residentTable:]
	for i, n := range lengths {
		shape.Bytes, shape.Longest = shape.Bytes+n, max(shape.Longest, n)
		binary.LittleEndian.PutUint32(table[4*(i+1):], uint32(shape.Bytes))
	}
	return r.resident.Post(shape, r.region, residentTable, r.result)
}

// await calls Done until it says true or fails.
func (r *residentRig) await() error {
	for ; ; runtime.Gosched() {
		if done, err := r.resident.Done(); done || err != nil {
			return err
		}
	}
}

// end closes everything.
func (r *residentRig) end() {
	r.Helper()
	for _, err := range []error{r.resident.Close(), r.k.Close(), r.d.FreeHost(r.region), r.d.FreeHost(r.result), r.d.Close()} {
		if err != nil {
			r.Error(err)
		}
	}
}

func TestResident(t *testing.T) {
	r := newResidentRig(t)
	for round := range 3 {
		if err := r.post(3, 0, 7+round); err != nil {
			t.Fatal(err)
		}
		if err := r.post(1); !errors.Is(err, device.ErrInvalid) {
			t.Errorf("post before done: got %v, want an error that wraps %q", err, device.ErrInvalid)
		}
		if err := r.await(); err != nil {
			t.Fatal(err)
		}
		want := []byte{3, 0, 0, 0, 0, 0, 0, 0, byte(7 + round), 0, 0, 0}
		if got := r.result.Bytes()[:12]; !slices.Equal(got, want) {
			t.Errorf("round %d: result %v, want %v", round, got, want)
		}
	}
	if err := r.k.Close(); !errors.Is(err, device.ErrInvalid) {
		t.Errorf("close of a kernel that is resident: got %v, want an error that wraps %q", err, device.ErrInvalid)
	}
	r.end()
	if err := r.resident.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// A batch that takes long is asked about, which is what starts a kernel again that had just ended.
func TestResidentAsksAfterABatch(t *testing.T) {
	r := newResidentRig(t)
	if err := r.post(make([]int, 13)...); err != nil {
		t.Fatal(err)
	}
	if err := r.await(); err != nil { // the library finishes it when it is asked, and not before
		t.Error(err)
	}
	r.end()
}

// A batch that a fault has swallowed is never done: Done must say that the device is lost.
func TestResidentLoss(t *testing.T) {
	r := newResidentRig(t)
	s := must[device.Stream](t)(r.d.NewStream("s"))
	m := must[device.Memory](t)(r.d.Alloc(64))
	if err := errors.Join(s.Fill(m, 0xdd), r.post(1)); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"done": r.await(), "err": r.d.Err(), "post": r.post(1), "close": r.resident.Close(), "close device": r.d.Close(),
	} {
		if !errors.Is(err, device.ErrLost) {
			t.Errorf("%s on a lost device: got %v, want an error that wraps %q", what, err, device.ErrLost)
		}
	}
}

func TestResidentRefusals(t *testing.T) {
	r := newResidentRig(t)
	fleeting := must[device.Kernel](t)(r.d.Kernel("fleeting", nil))
	if _, err := r.d.(device.Residenter).Resident(fleeting, device.Shape{}); !errors.Is(err, device.ErrUnavailable) {
		t.Errorf("an operator without a resident kernel: got %v, want an error that wraps %q", err, device.ErrUnavailable)
	}
	one := device.Shape{Rows: 1, Bytes: 8, Longest: 8}
	heap := device.NewHostBuffer(make([]byte, 512), device.Pageable, nil)
	for what, err := range map[string]error{
		"an unaligned region": r.resident.Post(one, r.region.Slice(8, 400), residentTable, r.result),
		"an unaligned result": r.resident.Post(one, r.region, residentTable, r.result.Slice(2, 100)),
		"a region of Go's":    r.resident.Post(one, heap, residentTable, r.result),
		"a result of Go's":    r.resident.Post(one, r.region, residentTable, heap),
		"a negative shape":    r.resident.Post(device.Shape{Rows: -1}, r.region, residentTable, r.result),
	} {
		if !errors.Is(err, device.ErrInvalid) {
			t.Errorf("%s: got %v, want an error that wraps %q", what, err, device.ErrInvalid)
		}
	}
	if err := errors.Join(fleeting.Close(), r.post(4), r.await()); err != nil {
		t.Errorf("a batch after the refused ones: %v", err)
	}
	r.end()
}

func TestResidentLeak(t *testing.T) {
	r := newResidentRig(t)
	var leak *device.LeakError
	if err := r.d.Close(); !errors.As(err, &leak) || strings.Contains(err.Error(), "objects were not freed") {
		t.Fatalf("got %v, want a LeakError alone", err)
	}
	want := []string{"host buffer 256 bytes", "host buffer 512 bytes", "kernel length", "resident length"}
	if !slices.Equal(leak.Open, want) {
		t.Errorf("open: %q, want %q", leak.Open, want)
	}
	if err := errors.Join(r.resident.Close(), r.k.Close()); err != nil {
		t.Error(err)
	}
}

// A batch through a mailbox allocates nothing.
func TestResidentNoAllocations(t *testing.T) {
	r := newResidentRig(t)
	shape := device.Shape{Rows: 1, Bytes: 8, Longest: 8}
	n := testing.AllocsPerRun(100, func() {
		if err := r.resident.Post(shape, r.region, residentTable, r.result); err != nil {
			t.Fatal(err)
		}
		if err := r.await(); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a batch, want none", n)
	}
	r.end()
}
