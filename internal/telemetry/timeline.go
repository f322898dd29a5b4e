package telemetry

import (
	"slices"
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// TimelineBatches is the number of batches that a worker remembers. These batches take less than 1 MiB and, at 1 ms per batch,
// cover a few seconds.
const TimelineBatches = 4096

// Timeline remembers the latest batches of all devices. It implements Observer. BatchDone copies the record and
// allocates no memory. All methods are safe for concurrent use.
type Timeline struct {
	mu      sync.Mutex
	ring    []inflight.Record // batch n is at n modulo its length
	done    uint64            // total number of batches
	devices []trackedDevice
	made    time.Time
}

// trackedDevice is a timeline's data about a device.
type trackedDevice struct {
	id    string
	name  string
	epoch time.Time
	sums  sums
}

// sums counts all batches of a device since the start, including batches that are no longer in the ring.
type sums struct {
	Batches  uint64 `json:"batches"`
	Failed   uint64 `json:"failed"`
	Payloads uint64 `json:"payloads"`
	Bytes    uint64 `json:"bytes"`
	closed   [streams.NumCloseReasons]uint64
}

var _ Observer = (*Timeline)(nil)

// NewTimeline returns a timeline that remembers the given number of batches, at least 1.
func NewTimeline(batches int) *Timeline {
	return &Timeline{ring: make([]inflight.Record, max(batches, 1)), made: time.Now()}
}

// AddDevice registers a device before its first batch. The arguments are its device.Info.ID and Name, and its Epoch,
// which aligns the clocks of several devices. A second call for a device has no effect.
func (t *Timeline) AddDevice(id, name string, epoch time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.device(id) == nil {
		t.devices = append(t.devices, trackedDevice{id: id, name: name, epoch: epoch})
	}
}

// device returns the device with the given ID, or nil if it is unknown.
func (t *Timeline) device(id string) *trackedDevice {
	for i := range t.devices {
		if t.devices[i].id == id {
			return &t.devices[i]
		}
	}
	return nil
}

// BatchDone implements inflight.RecordObserver. It registers an unknown device with the epoch of the first device. A batch of several
// leases is shown once, with the publishing and settling of its first part.
func (t *Timeline) BatchDone(r *inflight.Record) {
	if r.Part > 0 {
		return
	}
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
	t.ring[t.done%uint64(len(t.ring))] = *r
	t.done++
}

// AddBatch adds a batch that has no published results.
func (t *Timeline) AddBatch(r *streams.Record) { t.BatchDone(&inflight.Record{Record: *r}) }

func (s *sums) add(r *inflight.Record) {
	s.Batches++
	s.Payloads += uint64(r.Payloads)
	s.Bytes += uint64(r.Bytes)
	s.closed[r.Closed]++
	if r.Err != nil {
		s.Failed++
	}
}

// DeviceError implements streams.Observer. It does nothing, because the timeline shows only batches, and a failed batch
// contains its error.
func (t *Timeline) DeviceError(string, string) {}

// deviceTimeline is one device's part of a timeline.
type deviceTimeline struct {
	trackedDevice
	records []inflight.Record // in the order of their release
}

// snapshot copies the timeline, grouped by device in the order of their registration. The result base is the earliest
// epoch of the devices.
func (t *Timeline) snapshot() (list []deviceTimeline, base time.Time) {
	devices, batches, _ := t.since(0, len(t.ring))
	list = make([]deviceTimeline, len(devices))
	at := map[string]*deviceTimeline{}
	for i, d := range devices {
		list[i].trackedDevice = d
		at[d.id] = &list[i]
	}
	for _, r := range batches {
		at[r.Device].records = append(at[r.Device].records, r)
	}
	return list, earliestEpoch(devices)
}

// since returns copies of the devices and of the newest batches, at most limit, in the order of their release. It omits batches 1
// to after. The result done is the total number of batches.
func (t *Timeline) since(after uint64, limit int) (devices []trackedDevice, batches []inflight.Record, done uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := min(t.done-min(after, t.done), uint64(len(t.ring)), uint64(limit))
	batches = make([]inflight.Record, 0, fresh)
	for n := t.done - fresh; n < t.done; n++ {
		batches = append(batches, t.ring[n%uint64(len(t.ring))])
	}
	return slices.Clone(t.devices), batches, t.done
}

// earliestEpoch returns the earliest epoch of the devices, or the zero time if there are none.
func earliestEpoch(devices []trackedDevice) (base time.Time) {
	for i, d := range devices {
		if i == 0 || d.epoch.Before(base) {
			base = d.epoch
		}
	}
	return base
}

// Observer receives the errors of devices and the records of batches.
type Observer interface {
	streams.Observer
	inflight.RecordObserver
}

// Observers forwards every call to several observers, in order.
type Observers []Observer

var _ Observer = Observers(nil)

// BatchDone implements inflight.RecordObserver.
func (o Observers) BatchDone(r *inflight.Record) {
	for _, observer := range o {
		observer.BatchDone(r)
	}
}

// DeviceError implements streams.Observer.
func (o Observers) DeviceError(deviceID, kind string) {
	for _, observer := range o {
		observer.DeviceError(deviceID, kind)
	}
}
