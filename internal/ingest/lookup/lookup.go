// Package lookup finds the inputs that already have a result or a dead letter. The result stream's duplicate window
// covers recent results. For older results, this package reads the headers of all messages that were stored since the
// first delivery of the inputs. It reads each message once, and keeps only the input that the message belongs to.
//
// Package results calls Find before it publishes a result that may already be stored. Package topology calls Check to
// verify that results can be read. Start reading at Results.Find, which reads the streams into an index.
package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/store"
)

// Options defines where to search for results.
type Options struct {
	Input   string   // name of the input stream
	Streams []string // names of the streams that store results and dead letters

	// BySubject means that only inputs of the same partition are delivered in order. All inputs of a subject are in one
	// partition. Each call of Find must then pass inputs of a single partition.
	BySubject bool

	// Deliveries is the header on each result that wasn't stored soon after the first delivery of its input.
	Deliveries string

	// Part is the header with the value i/n on each part of a result in n parts. The last part is stored last.
	Part string

	// Reason is the header with the reason on each dead letter.
	Reason string

	Log *slog.Logger
}

// ErrImpossible means that results can't be read and that a retry won't help.
var ErrImpossible = errors.New("results cannot be looked up")

// slack extends the scanned period, because the clocks of servers differ and results may have been in transit.
const slack = 30 * time.Second

// Results looks up inputs. It reads the headers of each message in the streams once, and records the input that the message belongs
// to. It is safe for concurrent use, and runs one call at a time.
type Results struct {
	js jetstream.JetStream
	o  Options

	mu      sync.Mutex
	found   index
	since   time.Time // start of the period that has been read, up to the cursors; zero if nothing has been read
	cursors []cursor
	dropped bool // whether entries of inputs that weren't wanted were dropped since the last restart
	read    int  // number of messages read so far, for tests
}

// cursor is the position up to which a stream has been read.
type cursor struct {
	stream  string
	created time.Time
	next    uint64    // next sequence to read; 0 means the first message since Results.since
	last    time.Time // time when the stream stored the message before next; zero if unknown

	// Consecutive scans share a consumer, because the server limits the number of consumers of a stream and keeps
	// unused ones for some time.
	consumer string // name of the consumer that delivers the messages from next on, or empty
	number   uint64 // consumer sequence of the last message from it
}

// New returns a Results that uses js. The caller keeps ownership of its connection.
func New(js jetstream.JetStream, o Options) *Results { return &Results{js: js, o: o} }

// Found describes the stored messages of one input.
type Found struct {
	Done    bool      // whether the result, or the dead letter of the whole message, is stored
	Partial []Partial // the stored parts of the result, and the dead letters of records; nil if Done
}

// Find returns the stored messages of each input. A result that it doesn't find was not stored before began. Find reads
// the headers of all messages that were stored since the earliest first delivery of the inputs. It skips messages that
// an earlier call has read. It fails with ErrImpossible if results can't be read at all.
func (r *Results) Find(ctx context.Context, inputs []Wanted) (found []Found, began time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := make([]Input, len(inputs))
	for i, in := range inputs {
		keys[i] = in.Input
	}
	first := slices.MinFunc(keys, func(a, b Input) int { return cmp.Compare(a.Stored, b.Stored) })
	oldest := time.Unix(0, first.Stored)
	if r.since.IsZero() || oldest.Before(r.since) && r.bound(ctx, inputs, oldest).Before(r.since) {
		r.restart(r.bound(ctx, inputs, oldest).Add(-slack))
	}
	began = time.Now()
	err = r.scan(ctx, keys)
	if r.dropped {
		defer r.restart(time.Time{}) // the next inputs need entries that were dropped
	}
	if err != nil {
		return nil, began, r.explain(err)
	}
	found = make([]Found, len(inputs))
	for i, in := range keys {
		if found[i].Done = r.found.has(in); !found[i].Done {
			found[i].Partial = slices.Clip(r.found.unfinished.of[in])
		}
	}
	return found, began, nil
}

// Check returns an error if results can't be read. The error is ErrImpossible if the account lacks a permission, or if
// the stream removes acknowledged messages. A stream that doesn't exist is not an error.
func (r *Results) Check(ctx context.Context) error {
	for _, name := range r.o.Streams {
		info, err := r.info(ctx, name)
		if err != nil {
			return r.explain(err)
		}
		if info == nil {
			continue
		}
		if _, err := r.consumer(ctx, name, info.State.LastSeq+1); err != nil {
			return r.explain(err)
		}
	}
	return nil
}

const (
	askTimeout = 5 * time.Second

	// unused is the time without a request after which the server deletes the consumer of a scan.
	unused = 30 * time.Second
)

// info returns a stream's state, or nil if there is no such stream. It returns an error unless the stream has retention by limits.
// Other streams remove acknowledged messages, so a lookup isn't possible there.
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
	if kept := s.CachedInfo().Config.Retention; kept != jetstream.LimitsPolicy {
		return nil, fmt.Errorf("%w: stream %q removes messages that consumers have taken (retention %s)", ErrImpossible, name, kept)
	}
	return s.CachedInfo(), nil
}

// next returns the result stream's first message at or after sequence from with a subject that matches filter, or nil.
func (r *Results) next(ctx context.Context, from uint64, filter string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return jsapi.Next(ctx, r.js, r.o.Streams[0], from, filter)
}

// consumer creates a consumer that delivers the headers of the messages from sequence on. Sequence 0 selects the messages that
// were stored since r.since. The server deletes the consumer after the duration unused without a request.
func (r *Results) consumer(ctx context.Context, stream string, sequence uint64) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	config := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: sequence,
		AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: unused,
	}
	if sequence == 0 {
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &r.since
	}
	consumer, err := r.js.CreateConsumer(ctx, stream, config)
	if err != nil {
		return nil, fmt.Errorf("create a consumer to read the headers of stream %q: %w", stream, err)
	}
	return consumer, nil
}

// explain adds ErrImpossible to permanent errors. If a limit on consumers is reached, it adds advice.
func (r *Results) explain(err error) error {
	if last := r.js.Conn().LastError(); errors.Is(last, nats.ErrPermissionViolation) {
		for _, name := range r.o.Streams {
			if strings.Contains(last.Error(), "."+name+".") || strings.Contains(last.Error(), "."+name+`"`) {
				return fmt.Errorf("%w: %w (docs/security.md lists what the worker's user needs)", ErrImpossible, last)
			}
		}
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return err
	}
	if api.ErrorCode == jetstream.JSErrCodeMaximumConsumersLimit {
		return fmt.Errorf("%w: raise the limit on consumers (max_consumers of the stream or the account, or the server's default_max_consumers), or remove consumers that nobody uses", err)
	}
	if api.Code == 400 {
		return fmt.Errorf("%w: %w", ErrImpossible, err)
	}
	return err
}

// bound returns a time before which no result of the inputs can have been stored. oldest, the time when the stream
// stored the first of the inputs, is such a time. With a long backlog, oldest is far back, so bound searches for a
// later time.
//
// The server first delivers inputs in the order of their sequences. A result without the header Options.Deliveries was
// stored within one duplicate window after the first delivery of its input. If that input precedes all given inputs,
// their first deliveries came later. They were therefore at the earliest one window before the result was stored.
func (r *Results) bound(ctx context.Context, inputs []Wanted, oldest time.Time) time.Time {
	lowest := slices.MinFunc(inputs, func(a, b Wanted) int { return cmp.Compare(a.Sequence, b.Sequence) })
	info, err := r.info(ctx, r.o.Streams[0])
	if err != nil || info == nil || info.State.Msgs == 0 {
		return oldest
	}
	filter := ">"
	if r.o.BySubject {
		filter = lowest.Subject
	}
	for low, high := info.State.FirstSeq, info.State.LastSeq+1; low < high; {
		middle := low + (high-low)/2
		m, err := r.next(ctx, middle, filter)
		switch {
		case err != nil:
			return oldest
		case m == nil || m.Sequence >= high:
			high = middle
		case before(m, lowest.Input, r.o):
			if at := m.Time.Add(-info.Config.Duplicates - slack); at.After(oldest) {
				oldest = at
			}
			low = m.Sequence + 1
		default:
			high = middle
		}
	}
	return oldest
}

// before reports whether a message is the result of an earlier input than in, and was stored soon after the first
// delivery of its input.
func before(m *jetstream.RawStreamMsg, in Input, o Options) bool {
	of, ok := parse(store.IDOf(m.Header), o.Input)
	return ok && of.Sequence < in.Sequence && m.Header.Get(o.Deliveries) == ""
}
