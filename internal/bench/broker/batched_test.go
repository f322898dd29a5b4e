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

// TestGroupsKeepOrderAndBounds checks that, with any bounds, every input is in one group, in order, and that no group
// exceeds the bounds by more than its last input.
func TestGroupsKeepOrderAndBounds(t *testing.T) {
	const n, size = 1000, 10
	for _, b := range []bounds{{payloads: 1, bytes: 1 << 20}, {payloads: 7, bytes: 1 << 20}, {payloads: 1 << 20, bytes: 35}} {
		inputs := make(chan received, inputBuffer)
		groups := make(chan []jetstream.Msg)
		g := newErrGroup(t.Context())
		g.start(func(context.Context) error {
			defer close(inputs)
			for i := range n {
				data := make([]byte, size)
				data[0], data[1] = byte(i), byte(i>>8)
				inputs <- received{Msg: fakeInput{data: data}}
			}
			return nil
		})
		w := &batched{bounds: b}
		g.start(func(ctx context.Context) error { return w.gather(ctx, inputs, groups) })
		next := 0
		for group := range groups {
			if len(group) > b.payloads || (len(group)-1)*size >= b.bytes {
				t.Errorf("%+v: a group of %d", b, len(group))
			}
			for _, m := range group {
				if i := int(m.Data()[0]) | int(m.Data()[1])<<8; i != next {
					t.Fatalf("%+v: input %d comes where %d should", b, i, next)
				}
				next++
			}
		}
		if err := g.wait(); err != nil || next != n {
			t.Errorf("%+v: %d inputs of %d came, error %v", b, next, n, err)
		}
	}
}

// TestErrGroupReturnsItsFirstError checks that the other goroutines are cancelled and their errors ignored.
func TestErrGroupReturnsItsFirstError(t *testing.T) {
	broken := errors.New("broken")
	g := newErrGroup(t.Context())
	g.start(func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	g.start(func(context.Context) error { return broken })
	if err := g.wait(); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}
