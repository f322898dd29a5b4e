package pull

import (
	"testing"
	"time"
)

// TestARequestWhoseEndGotLostIsForgotten shows that a request is dropped some time after its expiry. Otherwise its
// messages would count forever and prevent further requests.
func TestARequestWhoseEndGotLostIsForgotten(t *testing.T) {
	now := time.Now()
	p := &requests{left: 30, room: 3000}
	p.live[1] = ask{number: 7, until: now}
	p.expire(now)
	if p.live[1].number != 7 || p.left != 30 || p.room != 3000 {
		t.Errorf("a request was forgotten in time: %+v, %d messages and %d bytes left", p.live, p.left, p.room)
	}
	p.expire(now.Add(time.Nanosecond))
	if p.live != [outstanding]ask{} || p.left != 0 || p.room != 0 {
		t.Errorf("a request that should have ended counts: %+v, %d messages and %d bytes left", p.live, p.left, p.room)
	}
}
