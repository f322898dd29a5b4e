package streams_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"millrace/internal/device"
	"millrace/internal/streams"
)

// mute is a device that refuses notifications.
type mute struct {
	*spy
	refused chan struct{} // receives one value for each refused notification
}

var errMute = errors.New("no notifications")

func (m *mute) NewStream(name string) (device.Stream, error) {
	s, err := m.spy.NewStream(name)
	return muteStream{s, m}, err
}

type muteStream struct {
	device.Stream
	dev *mute
}

func (m muteStream) Notify(uint64) error {
	m.dev.refused <- struct{}{}
	return errMute
}

// TestBatchWhoseEndIsNeverToldComesBackWhenItsStreamIsDone checks a batch without a notification. It must come back
// only after its stream is done, because the device accesses its buffers until then.
func TestBatchWhoseEndIsNeverToldComesBackWhenItsStreamIsDone(t *testing.T) {
	d := &mute{spyOn(openHost(t)), make(chan struct{}, 1)}
	p := newPipeline(t, d, streams.Options{Lanes: 1, Spin: 1, Operators: operators(t, "crc32c")})
	open := d.gate(t, "lane-0")
	defer open()
	b := acquire(t, p, someRows(1, 5, 100))
	said := make(chan error, 1)
	go func() { said <- b.Submit(streams.ClosedByLinger) }()
	<-d.refused
	var opened atomic.Bool
	early := make(chan bool, 1)
	go func() {
		<-p.Completed()
		early <- !opened.Load()
	}()
	for range 1000 {
		runtime.Gosched() // gives an early completion a chance to arrive
	}
	opened.Store(true)
	open()
	if <-early {
		t.Error("the batch came back while its stream was still busy")
	}
	if err := <-said; err != nil {
		t.Errorf("Submit: %v", err)
	}
	if err := b.Err(); !errors.Is(err, errMute) {
		t.Errorf("the batch came back with %v, want %v", err, errMute)
	}
	b.Release()
}
