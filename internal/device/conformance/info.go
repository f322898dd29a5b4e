package conformance

import (
	"time"

	"millrace/internal/device"
)

var infoTests = []test{
	{"Described", described},
	{"Clock", clock},
	{"Names", names},
	{"HostBuffer", hostBuffer},
}

func described(r *rig) {
	info := r.dev.Info()
	if info.Kind == "" || info.ID == "" || info.Name == "" {
		r.Errorf("kind, ID and name must not be empty: %+v", info)
	}
	if info.Memory <= 0 || info.Units <= 0 {
		r.Errorf("memory and units must be above zero: %+v", info)
	}
	if again := r.dev.Info(); again != info {
		r.Errorf("info changed from %+v to %+v", info, again)
	}
	if err := r.dev.Err(); err != nil {
		r.Errorf("a fresh device has the error %v", err)
	}
}

// clock checks that Now never decreases and that Epoch never changes.
func clock(r *rig) {
	epoch := r.dev.Epoch()
	if epoch.IsZero() || epoch.After(time.Now().Add(time.Hour)) {
		r.Errorf("epoch %v is no time at which this device can have started", epoch)
	}
	last := r.dev.Now()
	if last < 0 {
		r.Errorf("now is %v, before the epoch", last)
	}
	for range 1000 {
		now := r.dev.Now()
		if now < last {
			r.Fatalf("now went back from %v to %v", last, now)
		}
		last = now
	}
	if again := r.dev.Epoch(); !again.Equal(epoch) {
		r.Errorf("the epoch moved from %v to %v", epoch, again)
	}
}

func names(r *rig) {
	if got := r.stream("lane-7").Name(); got != "lane-7" {
		r.Errorf("stream's name is %q, want lane-7", got)
	}
	if got := r.kernel("crc32c", nil).Name(); got != "crc32c" {
		r.Errorf("kernel's name is %q, want crc32c", got)
	}
}

// hostBuffer checks that slices share the buffer's memory and kind.
func hostBuffer(r *rig) {
	b := r.host(4096, 1)
	if b.Len() != 4096 || len(b.Bytes()) != 4096 {
		r.Errorf("asked for 4096 bytes, got length %d and %d bytes", b.Len(), len(b.Bytes()))
	}
	if k := b.Kind(); k != device.Pinned && k != device.Pageable {
		r.Errorf("kind is %v, want pinned or pageable", k)
	}
	part := b.Slice(100, 50)
	if part.Len() != 50 || part.Kind() != b.Kind() {
		r.Errorf("a slice has length %d and kind %v, want 50 and %v", part.Len(), part.Kind(), b.Kind())
	}
	paint(part.Bytes(), 2)
	if mem := b.Bytes(); mem[99] != 1 || mem[100] != 2 || mem[149] != 2 || mem[150] != 1 {
		r.Errorf("a slice of 100:150 wrote elsewhere: %v around its ends", []byte{mem[99], mem[100], mem[149], mem[150]})
	}
}
