package broker

import (
	"context"
	"errors"
	"time"

	"millrace/internal/bench"
	"millrace/internal/ingest/embedded"
	"millrace/internal/operator"
)

// The names of rows that show the cost of exactly once, on one server and on three.
const (
	rowWindow     = "exclusive-window"
	rowOnce       = "exclusive-once"
	rowOnceNoIDs  = "exclusive-once-no-ids"
	rowWindow3    = "cluster-window"
	rowOnce3      = "cluster-once"
	rowOnceNoIDs3 = "cluster-once-no-ids"
)

// onceEntries are the rows on one server.
var onceEntries = []bench.Entry{
	{Name: rowWindow, Shows: "millrace-exclusive with crc32c, with MILLRACE_EXACTLY_ONCE=off: the server drops repeated results by their ids, within the duplicate window"},
	{Name: rowOnce, Shows: "the same exactly once: each batch ends with a commit marker (fast batches)"},
	{Name: rowOnceNoIDs, Shows: "the same with MILLRACE_RESULT_IDS=false: the server remembers no ids"},
}

// clusterEntries are the same rows on three servers.
var clusterEntries = []bench.Entry{
	{Name: rowWindow3, Shows: "exclusive-window on three servers, with three replicas of every stream; not with --server"},
	{Name: rowOnce3, Shows: "exclusive-once on the same servers (atomic batches)"},
	{Name: rowOnceNoIDs3, Shows: "exclusive-once-no-ids on the same servers (atomic batches)"},
}

// onceSize is the default size of a payload in these rows, in bytes.
const onceSize = 256

// guaranteed returns the kind that runs Millrace with exclusive delivery and a guarantee.
func (n connections) guaranteed(session *bench.Session, ops []operator.Operator, g guarantee) kind {
	return kind{name: rowExclusive, shape: pinned, ops: ops, guarantee: g, make: func(took func(time.Duration)) worker {
		m := newMillrace(session, ops, n.exclusive, took)
		m.exclusive, m.guarantee = true, g
		return m
	}}
}

// runOnce measures the cost of exactly once on one server.
func (b *Bench) runOnce(ctx context.Context, session *bench.Session) error {
	s, err := b.open(ctx, session)
	if err != nil {
		return err
	}
	return s.runGuarantees(ctx, session, onceEntries)
}

// runCluster measures the cost of exactly once on three servers, which run only for these rows.
func (b *Bench) runCluster(ctx context.Context, session *bench.Session) (err error) {
	switch {
	case b.o.Server.URL != "":
		return bench.Unable("the bench starts the three servers itself: leave out --server")
	case !embedded.Included:
		return bench.Unable("the bench starts the three servers itself: %w", embedded.ErrLeftOut)
	}
	s, err := newCluster(ctx, b.o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	s.batches, s.pollFirst = !b.withoutBatches, b.pollFirst
	s.note(session)
	return s.runGuarantees(ctx, session, clusterEntries)
}

// runGuarantees measures the rows of entries: one for each guarantee, in the order of their values.
func (s *server) runGuarantees(ctx context.Context, session *bench.Session, entries []bench.Entry) error {
	ops := bench.Parse(operatorLists[0])
	for _, size := range session.Sizes(onceSize) {
		var all []*bench.Case
		for i, e := range entries {
			k := s.connections.guaranteed(session, ops, guarantee(i)).named(e.Name)
			all = append(all, s.rate(session, k, size))
		}
		window := all[byID]
		window.Reference = true
		if err := session.Measure(ctx, all...); err != nil {
			return err
		}
		for _, c := range all[byMarker:] {
			c.Compare(figureOverWindow, figurePayloads, window)
		}
		session.Report(all...)
	}
	return nil
}
