package publisher

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
)

// TestWhoGivesUpWaitingForPlacesGivesThemBack shows that a large message that waits for more places returns its
// places when its context ends.
func TestWhoGivesUpWaitingForPlacesGivesThemBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, taken = 4, 2
		l := &connection{window: make(chan struct{}, room), gate: make(chan struct{}, 1), waiting: map[*nats.Msg]int{}}
		for range taken {
			if !l.enter(t.Context(), &nats.Msg{}) {
				t.Fatal("there was room")
			}
		}
		large := &nats.Msg{Data: make([]byte, 2*bytesPerPlace)}
		if n := places(large); n <= room-taken || n > room {
			t.Fatalf("it takes %d places, want more than %d and at most %d", n, room-taken, room)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		entered := make(chan bool, 1)
		go func() { entered <- l.enter(ctx, large) }()
		synctest.Wait()
		giveUp()
		if <-entered {
			t.Error("it entered a window without room")
		}
		if n := len(l.window); n != taken || len(l.waiting) != taken || len(l.gate) != 0 {
			t.Errorf("%d places taken by %d messages, %d at the gate; want %d, %d and none", n, len(l.waiting), len(l.gate), taken, taken)
		}
	})
}
