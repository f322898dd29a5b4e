package partitioned

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
)

type endedServer struct {
	leaseServer
	state    jetstream.ConsumerInfo
	unpinned bool
}

func (s *endedServer) flush(context.Context) error                           { return nil }
func (s *endedServer) unpin(context.Context) error                           { s.unpinned = true; return nil }
func (s *endedServer) info(context.Context) (*jetstream.ConsumerInfo, error) { return &s.state, nil }
func (s *endedServer) annotate(_ context.Context, _ jetstream.ConsumerConfig, metadata map[string]string) error {
	s.state.Config.Metadata = metadata
	return nil
}

type ownPull struct{ leasePull }

func (ownPull) pin() string { return "own" }

type endedHost struct{ leaseHost }

func (endedHost) ended() {}

type lostBatches struct {
	leaseBatches
	err      error
	operator string // operator to blame
}

func (b lostBatches) deviceFailed() error { return b.err }
func (b lostBatches) deviceFault() (inflight.OperatorFault, bool) {
	return inflight.OperatorFault{Operator: b.operator, Fault: inflight.Faults()[0], At: time.Unix(1, 0)}, b.operator != ""
}

// TestWhatALeaseLeaves checks the annotations after a lease. A proper end leaves none. After a loss of the device the
// next lease is cautious. If a kernel lost the device, the annotations also name the payload that was on it.
func TestWhatALeaseLeaves(t *testing.T) {
	t.Parallel()
	const own = "own-id"
	all := []string{annotationAlone, annotationBeside, annotationOwner}
	for name, c := range map[string]struct {
		batches lostBatches
		want    []string // annotations that stay
	}{
		"a proper end":              {lostBatches{}, nil},
		"another loss":              {lostBatches{err: errors.New("the driver is gone")}, []string{annotationOwner}},
		"a kernel":                  {lostBatches{err: device.ErrKernelFault}, all},
		"a kernel that is to blame": {lostBatches{err: device.ErrKernelFault, operator: "crc32c"}, append([]string{annotationBlamed, inflight.FaultNote}, all...)},
	} {
		server := &endedServer{state: jetstream.ConsumerInfo{
			Config:         jetstream.ConsumerConfig{Metadata: map[string]string{annotationOwner: own, annotationAlone: "5", annotationBeside: "5"}},
			PriorityGroups: []jetstream.PriorityGroupState{{Group: topology.PriorityGroup, PinnedClientID: "own"}},
		}}
		l := newLease(newLeaseState(leaseOptions{id: own}, server, endedHost{}, slog.New(slog.DiscardHandler)), c.batches)
		l.begun, l.reader.pull = true, ownPull{}
		l.end(t.Context())
		left := server.state.Config.Metadata
		delete(left, topology.MarkDelivered)
		if got := slices.Sorted(maps.Keys(left)); !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("after %s: %v stay, want %v", name, got, c.want)
		}
		if !server.unpinned {
			t.Errorf("after %s: the partition isn't given up", name)
		}
	}
}
