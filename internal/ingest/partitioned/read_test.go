package partitioned

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
)

// opensCommits is a leaseHost that records the argument of openCommits.
type opensCommits struct {
	leaseHost
	got results.Partition
}

func (o *opensCommits) openCommits(_ context.Context, p results.Partition) (leaseCommits, error) {
	o.got = p
	return nil, nil
}

// delivers is a leaseServer whose consumer has delivered all inputs up to stream sequence upTo.
type delivers struct {
	leaseServer
	upTo uint64
}

func (d delivers) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	info, err := d.leaseServer.info(ctx)
	if err == nil {
		info.Delivered.Stream = d.upTo
	}
	return info, err
}

// TestALeaseKnowsWhatWasDeliveredBefore shows that a lease uses the deliveries in the annotations, because a crashed
// server may have forgotten them. Their inputs may have results of workers without commit markers, so they are looked
// up.
func TestALeaseKnowsWhatWasDeliveredBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	for _, c := range []struct {
		name        string
		delivered   uint64 // as reported by the server
		annotations map[string]string
		want        results.Partition
	}{
		{"nothing", 0, nil, results.Partition{}},
		{"deliveries", 9, map[string]string{topology.MarkDelivered: "7"}, results.Partition{Delivered: 9}},
		{"deliveries that the server has forgotten", 5, map[string]string{topology.MarkDelivered: "7"}, results.Partition{Delivered: 7}},
		{"a lease without commit markers", 0, map[string]string{annotationLoose: "yes"}, results.Partition{Loose: true}},
	} {
		config := r.partitionConfig(0)
		config.Metadata = c.annotations
		r.changePartition(config)
		l := r.idleLease()
		host := &opensCommits{leaseHost: l.host}
		l.host, l.server = host, delivers{l.server, c.delivered}
		if err := l.reader.begin(r.Ctx(), r.Ctx(), &inflight.Delivery{}); err != nil {
			t.Fatal(err)
		}
		if host.got != c.want {
			t.Errorf("after %s: the lease opens %+v, want %+v", c.name, host.got, c.want)
		}
	}
}

// foundCommits are leaseCommits with markers of earlier leases.
type foundCommits struct {
	leaseCommits
	found, beyond uint64 // 0 means no marker
}

func (f foundCommits) Found() (commit.Position, bool) {
	return commit.Position{Sequence: f.found}, f.found > 0
}
func (f foundCommits) Beyond() uint64 { return f.beyond }

// TestAWarningOfALossIsTrue shows that a loss is logged only without a proof that the acknowledged inputs were
// stored. Messages after the last marker are a proof.
func TestAWarningOfALossIsTrue(t *testing.T) {
	t.Parallel()
	const (
		fresh, lost, again = "has no commit marker of this partition", "more inputs are acknowledged", "acknowledged without being computed"
		n                  = 4
	)
	r := newRig(t, 1)
	r.publish(n, document)
	l := r.idleLease()
	for _, c := range []struct {
		name               string
		commits            foundCommits
		floor, acknowledge uint64 // stream and consumer sequence
		want               string // empty means no warning
	}{
		{"a new partition", foundCommits{}, 0, 0, ""},
		{"no marker", foundCommits{}, n, n, fresh},
		{"a marker that agrees", foundCommits{found: n, beyond: n}, n, n, ""},
		{"a marker of fewer inputs", foundCommits{found: n - 1, beyond: n - 1}, n, n, lost},
		{"messages behind the marker", foundCommits{found: n - 1, beyond: n}, n, n, ""},
		{"an acknowledged input that the stream never had", foundCommits{found: n - 1, beyond: n - 1}, n + 1, n, ""},
		{"a marker of more inputs", foundCommits{found: n, beyond: n}, n - 1, n - 1, again},
	} {
		log := natstest.NewLog(t)
		l.log, l.commits = log.Logger(), c.commits
		l.reader.describeCommits(r.Ctx(), &jetstream.ConsumerInfo{AckFloor: jetstream.SequenceInfo{Stream: c.floor, Consumer: c.acknowledge}})
		for _, text := range []string{fresh, lost, again} {
			if got := log.Has(text); got != (text == c.want) {
				t.Errorf("%s: it is logged that %q: %v", c.name, text, got)
			}
		}
	}
}
