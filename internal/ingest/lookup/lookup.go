// Package lookup finds out which inputs have a result or a dead letter already. The result stream's duplicate window says it for as long
// as it lasts; for what may be older, this package reads the headers of what was stored since. It reads each message once, and
// remembers of it which input it is of.
//
// Package results asks it before it publishes what may be stored already, and package topology whether results can be read at all.
// Start reading at Results.Find. A scanner reads the streams into an index, and api asks the server.
package lookup

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Results looks inputs up. Its methods may be called by several goroutines; they take turns.
type Results struct {
	*api

	mu      sync.Mutex
	scanner scanner
}

// New makes a lookup over nc, which stays the caller's.
func New(nc *nats.Conn, s Settings) (*Results, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	a := &api{nc: nc, js: js, s: s}
	return &Results{api: a, scanner: scanner{api: a}}, nil
}

// Find says of each input whether a result or a dead letter of it is stored. What it does not find was not stored before began, a moment
// of this process. It takes as long as it takes to read the headers of what was stored since the first of these inputs was delivered for
// the first time, less what was read before. It fails with ErrImpossible where results cannot be read at all.
func (r *Results) Find(ctx context.Context, inputs []Wanted) (found []bool, began time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := make([]Input, len(inputs))
	for i, in := range inputs {
		keys[i] = in.Input
	}
	oldest := time.Unix(0, inputs[0].Stored)
	for _, in := range inputs {
		if at := time.Unix(0, in.Stored); at.Before(oldest) {
			oldest = at
		}
	}
	scan := &r.scanner
	if scan.since.IsZero() || oldest.Before(scan.since) && r.bound(ctx, inputs, oldest).Before(scan.since) {
		scan.restart(r.bound(ctx, inputs, oldest).Add(-slack))
	}
	began = time.Now()
	complete := true
	for i := range scan.cursors {
		all, err := scan.scan(ctx, &scan.cursors[i], keys)
		if err != nil {
			return nil, began, r.explain(err)
		}
		complete = complete && all
	}
	found = make([]bool, len(inputs))
	for i, in := range keys {
		found[i] = scan.found.has(in)
	}
	if !complete {
		scan.restart(time.Time{}) // the next inputs need what was let go of
	}
	return found, began, nil
}

// Check finds out whether results can be read: it fails with ErrImpossible where the account lacks a permission, or where the stream
// removes what consumers have taken, so that a result that is not found may have been stored all the same. A stream that is not there is
// no failure.
func (r *Results) Check(ctx context.Context) error {
	for _, name := range r.s.Streams {
		info, err := r.info(ctx, name)
		if err != nil {
			return r.explain(err)
		}
		if info == nil {
			continue
		}
		if err := keeps(info); err != nil {
			return err
		}
		if _, err := r.consumerFrom(ctx, name, info.State.LastSeq+1); err != nil {
			return r.explain(err)
		}
	}
	return nil
}

// Highest returns the highest sequence of an input that has a result or a dead letter stored after oldest, the time at which the first
// input in question was stored.
func (r *Results) Highest(ctx context.Context, oldest time.Time) (highest uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	scan := &r.scanner
	if scan.since.IsZero() || oldest.Before(scan.since) {
		scan.restart(oldest.Add(-slack))
	}
	for i := range scan.cursors {
		all, err := scan.scan(ctx, &scan.cursors[i], nil)
		if err != nil {
			return 0, r.explain(err)
		}
		if !all {
			scan.since = time.Time{}
		}
		highest = max(highest, scan.cursors[i].highest)
	}
	return highest, nil
}
