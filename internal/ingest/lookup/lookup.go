// Package lookup finds the inputs that already have a result or a dead letter. The result stream's duplicate window
// covers recent results. For results that may be older, this package reads the headers of all messages stored since
// then. It reads each message once, and remembers only the input that it belongs to. Start reading at Results.Find.
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

// Settings says where to search for results.
type Settings struct {
	Input   string   // the input stream
	Streams []string // the streams that store results and dead letters

	// BySubject means that inputs are delivered in the order of their sequences only within a partition, and that all
	// inputs of a subject are in one partition. Each call of Find is then for the inputs of one partition.
	BySubject bool

	// Deliveries is the header of results that weren't stored soon after the first delivery of their input.
	Deliveries string

	Log *slog.Logger
}

// ErrImpossible means that results can't be read, and that a retry is useless.
var ErrImpossible = errors.New("results cannot be looked up")

const (
	// slack extends the scanned period, because servers' clocks differ and results may have been in transit.
	slack = 30 * time.Second

	// askTimeout bounds one request.
	askTimeout = 5 * time.Second
)

// Results looks up inputs. It is safe for concurrent use, and runs one call at a time.
type Results struct {
	nc *nats.Conn
	js jetstream.JetStream
	s  Settings

	mu      sync.Mutex
	found   index
	since   time.Time // everything stored since then has been read, up to the cursors; zero: nothing has
	cursors []cursor
	read    int // number of messages read so far, for tests
}

// cursor is the position up to which a stream has been read.
type cursor struct {
	stream  string
	created time.Time
	next    uint64 // next sequence to read; 0: start by time
	highest uint64 // highest sequence of an input that was read
}

// New returns a Results that uses nc, which the caller still owns.
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
	Subject string // the subject of its result
}

// Find reports for each input whether a result or a dead letter of it is stored. A result that it doesn't find was
// not stored before began. Find reads the headers of all messages stored since the first delivery of the first of
// these inputs, except those that it has read before. It fails with ErrImpossible if results can't be read at all.
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
		r.since = time.Time{} // the next inputs need entries that were dropped
	}
	return found, began, nil
}

// Check reports whether results can be read. It fails with ErrImpossible if the account lacks a permission. It also
// fails if the stream removes messages that consumers have taken, because a missing result may then have been stored.
// A stream that doesn't exist is not an error.
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

// keeps returns an error for a stream in which a lookup isn't possible.
func keeps(info *jetstream.StreamInfo) error {
	if kept := info.Config.Retention; kept != jetstream.LimitsPolicy {
		return fmt.Errorf("%w: stream %q removes messages that consumers have taken (retention %s)", ErrImpossible, info.Config.Name, kept)
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

// forget drops everything that was read.
func (r *Results) forget() {
	r.found, r.cursors = newIndex(), nil
	for _, name := range r.s.Streams {
		r.cursors = append(r.cursors, cursor{stream: name})
	}
}

// info returns a stream's state; nil if there is no such stream.
func (r *Results) info(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := r.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up stream %q: %w", name, err)
	}
	return s.CachedInfo(), nil
}

// explain distinguishes permanent errors from temporary ones.
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
