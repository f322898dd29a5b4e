// Package lookup finds out which inputs have a result or a dead letter already. The result stream's duplicate window says it for as long
// as it lasts; for what may be older, this package reads the headers of what was stored since. It reads each message once, and
// remembers of it which input it is of.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Settings say where to look.
type Settings struct {
	Input   string   // the input stream
	Streams []string // that store results and dead letters

	// BySubject says that inputs are delivered in the order of their sequences within a partition only, and that all inputs of a subject
	// are in one. Find is then asked for inputs of one partition at a time.
	BySubject bool

	// Deliveries is the header of results that were not stored soon after the first delivery of their input.
	Deliveries string

	Log *slog.Logger
}

// ErrImpossible says that results cannot be read, and that it is of no use to try again.
var ErrImpossible = errors.New("results cannot be looked up")

const (
	// slack is added to what is scanned, for clocks of servers that differ and results that were on their way.
	slack = 30 * time.Second

	// askTimeout bounds one question.
	askTimeout = 5 * time.Second
)

// Results looks inputs up. Its methods may be called by several goroutines; they take turns.
type Results struct {
	nc *nats.Conn
	js jetstream.JetStream
	s  Settings

	mu      sync.Mutex
	found   index
	since   time.Time // everything stored since then was read, up to the cursors; zero: nothing
	cursors []cursor
	read    int // messages so far, for tests
}

// cursor is how far a stream was read.
type cursor struct {
	stream  string
	created time.Time
	next    uint64 // sequence; 0: by time
	highest uint64 // sequence of an input that was read
}

// New makes a lookup over nc, which stays the caller's.
func New(nc *nats.Conn, s Settings) (*Results, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return &Results{nc: nc, js: js, s: s}, nil
}

// Wanted is an input to look up.
type Wanted struct {
	Input
	Subject string // of its result
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
	if r.since.IsZero() || oldest.Before(r.since) && r.bound(ctx, inputs, oldest).Before(r.since) {
		r.forget()
		r.since = r.bound(ctx, inputs, oldest).Add(-slack)
	}
	began = time.Now()
	complete := true
	for i := range r.cursors {
		all, err := r.scan(ctx, &r.cursors[i], keys)
		if err != nil {
			return nil, began, r.explain(err)
		}
		complete = complete && all
	}
	found = make([]bool, len(inputs))
	for i, in := range keys {
		found[i] = r.found.has(in)
	}
	if !complete {
		r.forget()
		r.since = time.Time{} // the next inputs need what was let go of
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
		if _, err := r.consumer(ctx, &cursor{stream: name, next: info.State.LastSeq + 1}); err != nil {
			return r.explain(err)
		}
	}
	return nil
}

// keeps fails for a stream in which nothing can be looked for.
func keeps(info *jetstream.StreamInfo) error {
	if kept := info.Config.Retention; kept != jetstream.LimitsPolicy {
		return fmt.Errorf("%w: stream %q removes what consumers have taken (retention %s)", ErrImpossible, info.Config.Name, kept)
	}
	return nil
}

// Highest returns the highest sequence of an input that has a result or a dead letter stored after oldest, the time at which the first
// input in question was stored.
func (r *Results) Highest(ctx context.Context, oldest time.Time) (highest uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() || oldest.Before(r.since) {
		r.forget()
		r.since = oldest.Add(-slack)
	}
	for i := range r.cursors {
		all, err := r.scan(ctx, &r.cursors[i], nil)
		if err != nil {
			return 0, r.explain(err)
		}
		if !all {
			r.since = time.Time{}
		}
		highest = max(highest, r.cursors[i].highest)
	}
	return highest, nil
}

// forget lets go of what was read.
func (r *Results) forget() {
	r.found, r.cursors = newIndex(), nil
	for _, name := range r.s.Streams {
		r.cursors = append(r.cursors, cursor{stream: name})
	}
}

// info is a stream's state; nil where there is no such stream.
func (r *Results) info(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := r.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at stream %q: %w", name, err)
	}
	return s.CachedInfo(), nil
}

// explain tells what will never work from what may the next time.
func (r *Results) explain(err error) error {
	if last := r.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
		for _, name := range r.s.Streams {
			if strings.Contains(last.Error(), "."+name+".") || strings.Contains(last.Error(), "."+name+`"`) {
				return fmt.Errorf("%w: %w (docs/security.md lists what the worker's user needs)", ErrImpossible, last)
			}
		}
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && api.Code == 400 {
		return fmt.Errorf("%w: %w", ErrImpossible, err)
	}
	return err
}
