package host_test

import (
	"testing"

	"millrace/internal/device"
)

// TestTimeIsOfTheLatestRecord checks an event that is recorded on a gated stream and then on a free stream. The event
// keeps the time from the free stream when the gated stream reaches its earlier record.
func TestTimeIsOfTheLatestRecord(t *testing.T) {
	r := newRig(t)
	e, err := r.dev.NewEvent(device.Timed)
	r.ok(err)
	slow, fast := r.stream("slow"), r.stream("fast")
	open := r.gate(slow)
	r.ok(slow.Record(e))
	r.ok(fast.Record(e))
	r.ok(fast.Synchronize())
	first, err := e.Time()
	r.ok(err)
	open()
	r.ok(slow.Synchronize())
	if now, err := e.Time(); err != nil || now != first {
		t.Errorf("the event's time is %v, %v once the earlier record was reached, want %v as before", now, err, first)
	}
}
