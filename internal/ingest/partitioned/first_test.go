package partitioned

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
)

// storedHost is a leaseHost of a result stream.
type storedHost struct {
	leaseHost
	earlier bool   // workers of an earlier version may still publish
	highest uint64 // the highest input with a result
	asked   int
}

func (h *storedHost) upgrading() bool { return h.earlier }
func (h *storedHost) highestStored(context.Context, time.Time) (uint64, error) {
	h.asked++
	return h.highest, nil
}

// TestWhichDeliveriesAreFirst: those behind what the annotations say. If no worker has annotated that, or workers of an earlier version publish, also
// behind the highest input with a result, which is looked up once.
func TestWhichDeliveriesAreFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotation string
		host       storedHost
		before     uint64
		asked      int
	}{
		"annotated":                      {"7", storedHost{highest: 9}, 7, 0},
		"annotated, while others update": {"7", storedHost{highest: 9, earlier: true}, 9, 1},
		"annotated higher":               {"7", storedHost{highest: 5, earlier: true}, 7, 1},
		"not annotated":                  {"", storedHost{highest: 9}, 9, 1},
		"a new partition":                {"0", storedHost{}, 0, 0},
	} {
		f := &firsts{host: &c.host}
		f.begin(&jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{Metadata: map[string]string{topology.MarkDelivered: c.annotation}}})
		for _, first := range []bool{true, false} { // according to the server
			for sequence := uint64(1); sequence <= 12; sequence++ {
				cleared := time.Unix(1, 0)
				d := inflight.Delivery{Sequence: sequence, First: first, Cleared: cleared}
				if err := f.judge(t.Context(), &d); err != nil {
					t.Fatal(err)
				}
				want := first && sequence > c.before
				if d.First != want || d.Cleared.Equal(cleared) != want {
					t.Errorf("%s: delivery %d, the first one to the server: %v, is taken for the first: %v, cleared at %v", name, sequence, first, d.First, d.Cleared)
				}
			}
		}
		if c.host.asked != c.asked {
			t.Errorf("%s: results are looked up %d times, want %d", name, c.host.asked, c.asked)
		}
	}
}
