package results

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/store"
	"millrace/internal/operator"
)

// decider has a lease's state of a stateful operator. The state decides on the records of a batch after everything else of the batch has
// succeeded, in the order of the stream. A commit stores the decisions in the state's log, together with the results that depend on them
// (adr/0056).
type decider struct {
	replica *statelog.Replica
	op      int // index of the operator
	batch   int // maximum number of records in one call of State.Apply
	entry   int // maximum size of a log entry, in bytes

	letters *store.Letters // dead letters of earlier leases; nil if they have no chain

	// stored describes the state in the last marker, and next the state in the marker of the commit that is being written.
	stored, next store.State

	positions []device.Position // arguments of the last call of Apply
	keys      []byte            // keys in the last call of Apply
	decisions device.Decisions  // results of the last call of Apply; nil if all of them are in the log
	failed    bool              // whether Apply failed, so that the contents of the state are unknown
	logged    int               // number of decisions that are in the log
	covered   int               // number of decisions that the commit covers
	bytes     int               // size of the entries for the covered decisions
	behind    uint64            // stream sequence of the marker behind which the commit begins
	reached   uint64            // generation of the last record in the commit; 0 without records
	earlier   [][]byte          // entries of earlier calls for the same message, which aren't in the log yet
	before    int               // number of records in earlier
	value     []byte
}

const (
	// maxEntry is the maximum size of a log entry, in bytes, unless the server allows less. Entries of one call of State.Apply have about
	// this size.
	maxEntry = 1 << 20

	// entryHeaders is the space that the headers of an entry's message need, in bytes.
	entryHeaders = 512

	// maxEntries is the maximum number of entries in one commit. maxLogged is the maximum number of their bytes, unless a single entry is larger. A
	// message with very many records has more entries. They are stored in several commits, and only the last commit covers the message.
	maxEntries = 64
	maxLogged  = 4 << 20
)

// stateful returns the index of the only stateful operator, or -1.
func stateful(ops []operator.Operator) int {
	return slices.IndexFunc(ops, func(op operator.Operator) bool {
		_, ok := op.(operator.Stateful)
		return ok
	})
}

// take returns the number of deliveries at the start of items that the state decides on together. Their records fit into one call of
// State.Apply, unless take returns 1. ask returns the number of records in a delivery on which the state decides.
func (s *decider) take(items []int, ask func(i int) int) (n int) {
	records := 0
	for n < len(items) {
		if records += ask(items[n]); n > 0 && records > s.batch {
			break
		}
		n++
	}
	return n
}

// decide puts the state's values into the tables of deliveries, in stream order. All earlier decisions must be in the log.
func (s *decider) decide(deliveries []*inflight.Delivery) error {
	s.positions, s.keys, s.earlier, s.before = s.positions[:0], s.keys[:0], nil, 0
	first := 0 // index of the first delivery with records in positions
	for n, d := range deliveries {
		for asked := d.Frame.Asked; len(asked) > 0; {
			if len(s.positions) == s.batch {
				if err := s.apply(deliveries[first : n+1]); err != nil {
					return err
				}
				var err error
				if s.earlier, err = s.decisions.AppendLog(s.earlier, 0, len(s.positions), s.entry); err != nil {
					return err
				}
				s.before += len(s.positions)
				s.positions, s.keys, first = s.positions[:0], s.keys[:0], n
			}
			some := asked[:min(len(asked), s.batch-len(s.positions))]
			asked = asked[len(some):]
			for _, record := range some {
				s.positions = append(s.positions, device.Position{Sequence: d.Sequence, Record: uint64(record)})
			}
			s.keys = d.Frame.Table.AppendKeys(s.keys, s.op, some)
		}
	}
	return s.apply(deliveries[first:])
}

// apply decides on the records in positions, and puts the values into the tables of deliveries.
func (s *decider) apply(deliveries []*inflight.Delivery) (err error) {
	s.logged, s.decisions = 0, nil
	if len(s.positions) == 0 {
		return nil
	}
	if s.decisions, err = s.replica.State().Apply(s.positions, s.keys); err != nil {
		s.failed = true
		return fmt.Errorf("decide on %d records from %d:%d on: %w", len(s.positions), s.positions[0].Sequence, s.positions[0].Record, err)
	}
	for i, p := range s.positions {
		for deliveries[0].Sequence != p.Sequence {
			deliveries = deliveries[1:]
		}
		s.value = s.decisions.AppendValue(s.value[:0], i)
		deliveries[0].Frame.Table.PutValue(s.op, int(p.Record), s.value)
	}
	return nil
}

// commitLog adds the log entries of all decisions up to b.At and the resulting state to a commit. If there are too many entries,
// commitLog stores the first ones in separate commits, which don't change the position.
func (s *decider) commitLog(ctx context.Context, c *store.Chain, b *store.Batch) error {
	s.covered = sort.Search(len(s.positions), func(i int) bool { return s.positions[i].Sequence > b.At.Sequence })
	s.behind, _ = c.Last()
	s.next = s.stored
	if b.Log = slices.Clone(s.earlier); s.decisions != nil && s.covered > s.logged {
		var err error
		if b.Log, err = s.decisions.AppendLog(b.Log, s.logged, s.covered, s.entry); err != nil {
			return fmt.Errorf("write the log of the state: %w", err)
		}
		last := s.positions[s.covered-1]
		s.next.Records += uint64(s.before + s.covered - s.logged)
		s.next.Sequence, s.next.Record = last.Sequence, last.Record
	}
	s.reached = 0
	if n := len(b.Log); n > 0 {
		last, err := s.replica.State().ReadEntry(b.Log[n-1])
		if err != nil {
			return fmt.Errorf("write the log of the state: %w", err)
		}
		s.reached = last.Generation
	}
	s.bytes = 0
	for _, entry := range b.Log {
		s.bytes += len(entry)
	}
	for n := fitting(b.Log); n < len(b.Log); n = fitting(b.Log) {
		if _, err := c.Commit(ctx, store.Batch{At: c.At(), Log: b.Log[:n]}); err != nil {
			return err
		}
		b.Log = b.Log[n:]
	}
	b.State = &s.next
	return nil
}

// fitting returns the number of entries at the start of log that fit into one commit.
func fitting(log [][]byte) (n int) {
	for bytes := 0; n < min(len(log), maxEntries); n++ {
		if bytes += len(log[n]); n > 0 && bytes > maxLogged {
			break
		}
	}
	return n
}

// committed records that the last commit of commitLog is stored.
func (s *decider) committed(c *store.Chain) {
	s.stored, s.logged, s.earlier, s.before = s.next, s.covered, nil, 0
	if s.logged == len(s.positions) {
		s.decisions = nil
	}
	at, _ := c.Last()
	s.replica.Committed(s.behind, at, s.reached, s.bytes)
}

// undecide implements Commits.Undecide.
func (s *decider) undecide() bool {
	switch {
	case s.failed:
		return false
	case s.decisions != nil && (s.logged > 0 || s.before > 0):
		return false
	case s.decisions != nil && s.replica.State().Undo() != nil:
		return false
	}
	s.decisions = nil
	return true
}
