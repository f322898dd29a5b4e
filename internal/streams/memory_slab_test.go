package streams

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

// Every buffer of a slab has the requested length, and writing to one buffer doesn't change another.
func TestBuffersOfASlabDoNotOverlap(t *testing.T) {
	d := openSim(t, sim.Options{})
	random := rand.New(rand.NewPCG(1, 1))
	layouts := []layout{{1, 1, 1}, {3, 4096, 4096}, {2, 4097, 1}, {2, 4095, 8192}}
	for range 20 {
		layouts = append(layouts, layout{Buffers: 1 + random.IntN(8), InBytes: 1 + random.IntN(20000), OutBytes: 1 + random.IntN(20000)})
	}
	for _, l := range layouts {
		s, err := newSlab(d, l)
		if err != nil {
			t.Fatal(err)
		}
		var all []device.HostBuffer
		for i := range l.Buffers {
			in, out := s.in(i), s.out(i)
			if in.Len() != l.InBytes || out.Len() != l.OutBytes {
				t.Fatalf("%+v: buffers of %d and %d bytes", l, in.Len(), out.Len())
			}
			all = append(all, in, out)
		}
		for i, b := range all {
			copy(b.Bytes(), bytes.Repeat([]byte{byte(i + 1)}, b.Len()))
		}
		for i, b := range all {
			if n := bytes.Count(b.Bytes(), []byte{byte(i + 1)}); n != b.Len() {
				t.Fatalf("%+v: %d bytes of buffer %d were overwritten through another", l, b.Len()-n, i)
			}
		}
		ok(t, s.close())
	}
}

func TestSlabSaysWhatMemoryItIs(t *testing.T) {
	l := layout{Buffers: 2, InBytes: 100, OutBytes: 5000}
	onEachDevice(t, func(t *testing.T, d device.Device) {
		s, err := newSlab(d, l)
		if err != nil {
			t.Fatal(err)
		}
		want := [2]int64{2 * (4096 + 8192), 0} // whole pages
		if d.Info().Kind == "host" {
			want[0], want[1] = want[1], want[0]
		}
		if got := [2]int64{s.pinned(), s.pageable()}; got != want {
			t.Errorf("pinned and pageable: %d, want %d", got, want)
		}
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for s.pinned()+s.pageable() > 0 { // metrics may be read while the slab closes
				}
			})
		}
		ok(t, s.close())
		readers.Wait()
		ok(t, s.close())
	})
}

func TestSlabThatCannotBePinned(t *testing.T) {
	d := openSim(t, sim.Options{Faults: []sim.Fault{{Kind: sim.PinnedOutOfMemory, Nth: 1}}})
	l := layout{Buffers: 4, InBytes: 1 << 20, OutBytes: 1 << 20}
	_, err := newSlab(d, l)
	if !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "8 MiB") || !strings.Contains(err.Error(), "MILLRACE_LANES") {
		t.Errorf("newSlab = %v, want out of memory, the size and the setting to lower", err)
	}
	s, err := newSlab(d, l)
	if err != nil {
		t.Fatalf("the next time: %v", err)
	}
	ok(t, s.close())
}

// stingy is a device that fails to free host memory.
type stingy struct {
	device.Device
	keeps error
}

func (s *stingy) FreeHost(b device.HostBuffer) error {
	if s.keeps != nil {
		return s.keeps
	}
	return s.Device.FreeHost(b)
}

func TestSlabThatCannotBeFreedIsKept(t *testing.T) {
	d := &stingy{Device: openSim(t, sim.Options{})}
	s, err := newSlab(d, layout{Buffers: 1, InBytes: 10, OutBytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	d.keeps = errors.New("not now")
	if err := s.close(); !errors.Is(err, d.keeps) || s.pinned() == 0 {
		t.Errorf("Close = %v with %d bytes held, want the device's error and the memory kept", err, s.pinned())
	}
	d.keeps = nil
	ok(t, s.close())
}

func TestBufferThatTheLayoutDoesNotHave(t *testing.T) {
	s, err := newSlab(openSim(t, sim.Options{}), layout{Buffers: 2, InBytes: 10, OutBytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { ok(t, s.close()) }()
	for name, take := range map[string]func(){
		"In(2)": func() { s.in(2) }, "In(-1)": func() { s.in(-1) }, "Out(2)": func() { s.out(2) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s returned memory outside the layout", name)
				}
			}()
			take()
		}()
	}
}
