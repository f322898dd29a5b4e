package telemetry

import (
	"slices"
	"sync"
	"time"

	"millrace/internal/streams"
)

// TimelineBatches is how many batches a worker remembers: under 1 MiB, and at 1 ms a batch some seconds.
const TimelineBatches = 4096

// Timeline remembers the latest batches of all devices. It implements streams.Observer; BatchDone copies
// the record and allocates nothing. All methods are safe for concurrent use.
type Timeline struct {
	mu      sync.Mutex
	ring    []streams.Record // full once next has gone round
	next    int
	full    bool
	done    uint64 // batches ever seen
	devices []trackedDevice
	made    time.Time
}

// trackedDevice is what a timeline knows of a device.
type trackedDevice struct {
	id    string
	name  string
	epoch time.Time
	sums  sums
}

// sums counts all batches of a device since the start, those that are forgotten too.
type sums struct {
	batches, failed, payloads, bytes uint64
	closed                           [streams.NumCloseReasons]uint64
}

var _ streams.Observer = (*Timeline)(nil)

// NewTimeline makes a timeline that remembers the latest batches; at least 1.
func NewTimeline(batches int) *Timeline {
	return &Timeline{ring: make([]streams.Record, max(batches, 1)), made: time.Now()}
}

// AddDevice tells of a device before its first batch: its device.Info.ID and Name, and its Epoch, by which
// the clocks of several devices are brought onto one axis. A second call for a device has no effect.
func (t *Timeline) AddDevice(id, name string, epoch time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.device(id) == nil {
		t.devices = append(t.devices, trackedDevice{id: id, name: name, epoch: epoch})
	}
}

// device is the one of that id; nil if it is unknown.
func (t *Timeline) device(id string) *trackedDevice {
	for i := range t.devices {
		if t.devices[i].id == id {
			return &t.devices[i]
		}
	}
	return nil
}

// BatchDone implements streams.Observer. A device that AddDevice did not tell of shares the clock of the
// first one.
func (t *Timeline) BatchDone(r *streams.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.device(r.Device)
	if d == nil {
		unknown := trackedDevice{id: r.Device, name: r.Device}
		if len(t.devices) > 0 {
			unknown.epoch = t.devices[0].epoch
		}
		t.devices = append(t.devices, unknown)
		d = &t.devices[len(t.devices)-1]
	}
	d.sums.add(r)
	t.done++
	t.ring[t.next] = *r
	if t.next++; t.next == len(t.ring) {
		t.next, t.full = 0, true
	}
}

func (s *sums) add(r *streams.Record) {
	s.batches++
	s.payloads += uint64(r.Payloads)
	s.bytes += uint64(r.Bytes)
	s.closed[r.Closed]++
	if r.Err != nil {
		s.failed++
	}
}

// DeviceError implements streams.Observer. A timeline shows batches only; a failed one bears its error.
func (t *Timeline) DeviceError(string, string) {}

// deviceTimeline is one device's share of a timeline.
type deviceTimeline struct {
	trackedDevice
	records []streams.Record // in the order in which they were released
}

// snapshot copies what is remembered, by device in the order in which they became known.
func (t *Timeline) snapshot() []deviceTimeline {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]deviceTimeline, len(t.devices))
	for i, d := range t.devices {
		list[i].trackedDevice = d
	}
	older := t.ring[t.next:]
	if !t.full {
		older = nil
	}
	for _, part := range [][]streams.Record{older, t.ring[:t.next]} {
		for i := range part {
			for d := range list {
				if list[d].id == part[i].Device {
					list[d].records = append(list[d].records, part[i])
				}
			}
		}
	}
	return list
}

// since copies the devices and the newest batches that came after the first after ones, limit at most and in the
// order in which they were released. done is how many there have been.
func (t *Timeline) since(after uint64, limit int) (devices []trackedDevice, batches []streams.Record, done uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := min(t.done-min(after, t.done), uint64(len(t.ring)), uint64(limit))
	batches = make([]streams.Record, 0, fresh)
	for n := t.done - fresh; n < t.done; n++ {
		batches = append(batches, t.ring[n%uint64(len(t.ring))])
	}
	return slices.Clone(t.devices), batches, t.done
}

// extent is the time from a record's first stage to the end of its last, on its device's clock. It is
// empty if no stage happened.
func extent(r *streams.Record) (whole streams.Span) {
	for _, s := range r.Stages {
		switch {
		case s == streams.Span{}:
		case whole == streams.Span{}:
			whole = s
		default:
			whole.Start, whole.End = min(whole.Start, s.Start), max(whole.End, s.End)
		}
	}
	return whole
}
