package broker

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// fakeInput is an input of some bytes.
type fakeInput struct {
	jetstream.Msg
	data []byte
}

func (f fakeInput) Data() []byte { return f.data }

// TestGroupsKeepOrderAndBounds: whatever the bounds are, every input is in one group, in order, and no group is over
// them by more than its last input.
func TestGroupsKeepOrderAndBounds(t *testing.T) {
	const n, size = 1000, 10
	for _, b := range []bounds{{payloads: 1, bytes: 1 << 20}, {payloads: 7, bytes: 1 << 20}, {payloads: 1 << 20, bytes: 35}} {
		inputs := make(chan received, handOver)
		groups := make(chan []jetstream.Msg)
		c := newCrew(t.Context())
		c.do(func(context.Context) error {
			defer close(inputs)
			for i := range n {
				data := make([]byte, size)
				data[0], data[1] = byte(i), byte(i>>8)
				inputs <- received{Msg: fakeInput{data: data}}
			}
			return nil
		})
		w := &batched{bounds: b}
		c.do(func(ctx context.Context) error { return w.gather(ctx, inputs, groups) })
		next := 0
		for g := range groups {
			if len(g) > b.payloads || (len(g)-1)*size >= b.bytes {
				t.Errorf("%+v: a group of %d", b, len(g))
			}
			for _, m := range g {
				if i := int(m.Data()[0]) | int(m.Data()[1])<<8; i != next {
					t.Fatalf("%+v: input %d comes where %d should", b, i, next)
				}
				next++
			}
		}
		if err := c.wait(); err != nil || next != n {
			t.Errorf("%+v: %d inputs of %d came, error %v", b, next, n, err)
		}
	}
}

// TestCrewEndsWithItsFirstError: the others are told, and their errors are not the ones that count.
func TestCrewEndsWithItsFirstError(t *testing.T) {
	broken := errors.New("broken")
	c := newCrew(t.Context())
	c.do(func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	c.do(func(context.Context) error { return broken })
	if err := c.wait(); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}
