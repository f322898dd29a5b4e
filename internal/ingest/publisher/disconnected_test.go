package publisher

import (
	"errors"
	"testing"
)

// TestWhatIsDownIsPassedOver shows that results are sent over working connections if there are any. No batch starts
// on a disconnected connection.
func TestWhatIsDownIsPassedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	loss := r.Proxy()
	down, up := r.Connect(loss.URL()), r.Connect(r.URL)
	two, one := r.windowed(patience, down, up), r.windowed(patience, down)
	loss.Refuse(true)
	r.Until("one connection is down", func() bool { return !down.IsConnected() })
	for range 4 {
		if l := two.next(); l.nc != up {
			t.Error("chosen is the connection that is down")
		}
	}
	if l := one.next(); l.nc != down {
		t.Error("chosen is not the only connection there is")
	}
	if err := NewBatched(one, nil).commit(r.Ctx(), messages(0, 5, 20)); !errors.Is(err, errDisconnected) {
		t.Errorf("a batch without a connection ended with %v, want that it was not begun", err)
	}
	loss.Refuse(false)
}
