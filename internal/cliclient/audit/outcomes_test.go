package audit

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
)

// TestOutcomesAreKeptFromATimeOn shows that an outcome identifies the first input that was stored at or after the time
// from which outcomes are kept. Outcomes of earlier inputs have no effect.
func TestOutcomesAreKeptFromATimeOn(t *testing.T) {
	t.Parallel()
	in := &inputs{info: &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "IN"}}}
	o := newOutcomes(in, &span{from: 1, to: 10}, &Report{})
	o.kept, o.order = 103, &order{}
	for _, c := range []struct{ input, first, keptFrom uint64 }{{2, 2, 0}, {4, 2, 4}, {3, 2, 3}, {1, 1, 3}} {
		err := o.enter(&source{}, c.input, "out", nats.Header{
			client.HeaderStream: {"IN"}, client.HeaderSequence: {fmt.Sprint(c.input)}, client.HeaderID: {fmt.Sprintf("IN:%d:%d", c.input, 100+c.input)},
		})
		if err != nil || o.first != c.first || o.keptFrom != c.keptFrom {
			t.Errorf("after the outcome of input %d: the first is %d, and outcomes are kept from %d on: %v; want %d and %d", c.input, o.first, o.keptFrom, err, c.first, c.keptFrom)
		}
	}
}
