// Package statelog reads the log of a partition's state back. The state of a stateful operator is a view of its log, which is in the
// result stream (adr/0056).
//
// A commit stores results, then entries of the log, and then a commit marker. A Replica is a copy of the state, and CatchUp brings it to a
// marker. An owner of the partition does so once, when its lease begins, and its own commits then go on from there. Other workers do so at
// intervals.
//
// The log may have entries that no marker covers, because a commit failed or its worker died. Fast batches aren't atomic, so such entries
// may even arrive after those of the next owner. Each entry names the positions of the record before it and of its last record, and
// the marker behind which its commit began. Markers have ascending sequences, also from owner to owner. So:
//
//   - An entry is stale if an earlier entry was behind a later marker.
//   - An entry drops the entries before it that end after the position at which it begins.
//   - An entry is covered if a marker has a position at or after its last record.
//
// Start reading at Replica.CatchUp.
package statelog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"millrace/internal/device"
	"millrace/internal/ingest/commit"
)

const (
	// headerBehind has the stream sequence of the marker behind which the entry's commit began, and the sequence of the input up to which
	// that marker settles everything, with a space between them.
	headerBehind = "Millrace-Behind"

	headerTTL = "Nats-TTL"
)

// suffix is the last token of the subject of a log. The subject of the commit markers precedes it.
const suffix = ".state"

// Subject returns the subject of a log. markers is the subject of the partition's commit markers.
func Subject(markers string) string { return markers + suffix }

// Message returns the message with an entry. markers is the subject of the partition's commit markers. The entry's commit begins behind the
// marker with stream sequence behind, which settles all inputs up to the sequence settled. With keep, the entry outlives the stream's
// maximum age, for which the stream must allow TTLs.
func Message(markers string, keep bool, behind, settled uint64, entry []byte) *nats.Msg {
	h := nats.Header{headerBehind: {strconv.FormatUint(behind, 10) + " " + strconv.FormatUint(settled, 10)}}
	if keep {
		h[headerTTL] = []string{"never"}
	}
	return &nats.Msg{Subject: Subject(markers), Header: h, Data: entry}
}

// Stored is an entry in the stream.
type Stored struct {
	Sequence        uint64 // stream sequence
	Behind, Settled uint64 // see Message
	Entry           []byte
}

// Parse returns a stored message as an entry. It returns an error if the message isn't one of Message.
func Parse(sequence uint64, h nats.Header, body []byte) (s Stored, err error) {
	s.Sequence, s.Entry = sequence, body
	behind, settled, _ := strings.Cut(h.Get(headerBehind), " ")
	if s.Behind, err = strconv.ParseUint(behind, 10, 64); err == nil {
		s.Settled, err = strconv.ParseUint(settled, 10, 64)
	}
	if err != nil {
		return s, fmt.Errorf("message %d is no entry of a state's log (somebody else publishes there): %w", sequence, err)
	}
	return s, nil
}

// Source is a partition's log in the stream.
type Source interface {
	// Read yields the entries with stream sequences between the two given ones, both exclusive, in order. The iteration ends when it yields
	// an error.
	Read(ctx context.Context, after, before uint64) iter.Seq2[Stored, error]

	// Purge removes the entries with stream sequences below the given one.
	Purge(ctx context.Context, below uint64) error
}

// LostError means that the log doesn't have the state of a marker. It says why.
type LostError struct{ Cause error }

func (e *LostError) Error() string {
	return e.Cause.Error() + "; restore what is missing, or set MILLRACE_STATE_LOST=begin for one start: an empty state then begins, which knows no earlier record"
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

func lost(format string, args ...any) error { return &LostError{fmt.Errorf(format, args...)} }

// ErrStale means that a replica can't reach a marker, because it has taken records that the marker doesn't cover, or of another log. A new
// replica may reach it.
var ErrStale = errors.New("the copy of the state has records that the log doesn't have")

// Replica is a copy of a partition's state. Unless noted otherwise, its methods are for one goroutine at a time.
type Replica struct {
	state  device.State
	spec   string
	source Source

	begins  uint64    // see commit.State.Begins
	read    uint64    // stream sequence up to which the log has been read, or belongs to own commits
	behind  uint64    // the largest Behind so far
	waiting []waiting // entries after those that the state has, in the order of their records

	generation uint64    // of the last record
	starts     [2]uint64 // Behind of the first entry of the generation before that, and of the generation itself

	unneeded atomic.Uint64 // entries behind markers below this one aren't needed
	purged   uint64        // the unneeded entries that are purged
}

// waiting is an entry that no known marker covers.
type waiting struct {
	Stored
	device.EntryInfo
}

// NewReplica returns a replica with an empty state, which the caller owns. spec identifies what the state depends on.
func NewReplica(state device.State, spec string, source Source) *Replica {
	return &Replica{state: state, spec: spec, source: source}
}

// State returns the state.
func (r *Replica) State() device.State { return r.state }

// Spec returns what the state depends on.
func (r *Replica) Spec() string { return r.spec }

// CatchUp reads the log up to the marker with stream sequence at, which describes the state want. It returns a *LostError if the log doesn't give that state, and an error that wraps ErrStale if the replica can't reach it.
// After any other error, a further call continues.
func (r *Replica) CatchUp(ctx context.Context, at uint64, want *commit.State) error {
	switch {
	case want.Spec != r.spec:
		return lost("the state belongs to %s, and this worker is set to %s", want.Spec, r.spec)
	case r.read == 0:
		r.begins, r.read = want.Begins, want.Begins
	case r.begins != want.Begins || r.read > at:
		return fmt.Errorf("%w: its log began behind message %d, and now it begins behind %d", ErrStale, r.begins, want.Begins)
	}
	for s, err := range r.source.Read(ctx, r.read, at) {
		if err != nil {
			return fmt.Errorf("read the log of the state: %w", err)
		}
		if err := r.take(s); err != nil {
			return err
		}
		r.read = s.Sequence
	}
	end := device.Position{Sequence: want.Sequence, Record: want.Record}
	if err := r.flush(end); err != nil {
		return err
	}
	r.read = at
	records, last := r.state.Applied()
	switch {
	case records > want.Records:
		return fmt.Errorf("%w: it has %d records, and the marker says %d", ErrStale, records, want.Records)
	case records < want.Records:
		return lost("the log has %d of %d records: entries were removed", records, want.Records)
	case last != end:
		return lost("the last record in the log is %v, and the marker says %d:%d", last, want.Sequence, want.Record)
	}
	return nil
}

// take receives the next entry of the stream.
func (r *Replica) take(s Stored) error {
	if s.Behind < r.behind {
		return nil // of a commit that was fenced
	}
	r.behind = s.Behind
	info, err := r.state.ReadEntry(s.Entry)
	if err != nil {
		return lost("message %d in the log: %w", s.Sequence, err)
	}
	for n := len(r.waiting); n > 0 && r.waiting[n-1].Last.Compare(info.Previous) > 0; n-- {
		r.waiting = r.waiting[:n-1]
	}
	if err := r.flush(device.Position{Sequence: s.Settled, Record: math.MaxUint64}); err != nil {
		return err
	}
	records, tail := r.state.Applied()
	if n := len(r.waiting); n > 0 {
		tail = r.waiting[n-1].Last
	}
	begins := records == 0 && len(r.waiting) == 0
	if begins && info.First == 0 || !begins && info.Previous == tail {
		r.waiting = append(r.waiting, waiting{s, info})
	}
	return nil // otherwise the entry is of a commit of which an entry is missing, or of a generation that isn't needed
}

// flush applies the waiting entries with records up to end.
func (r *Replica) flush(end device.Position) error {
	n := 0
	for ; n < len(r.waiting) && r.waiting[n].Last.Compare(end) <= 0; n++ {
		w := &r.waiting[n]
		if err := r.state.Replay(w.Entry); err != nil {
			if errors.Is(err, device.ErrLost) {
				return err
			}
			return lost("message %d in the log: %w", w.Sequence, err)
		}
		r.reached(w.Generation, w.Behind)
	}
	r.waiting = r.waiting[:copy(r.waiting, r.waiting[n:])]
	return nil
}

// Committed records that a commit behind the marker with stream sequence behind has stored the entries of all records that the state
// has. at is the sequence of the commit's own marker.
func (r *Replica) Committed(behind, at uint64) {
	r.read, r.behind, r.waiting = at, max(r.behind, behind), nil
	r.reached(r.state.Stats().Generation, behind)
}

// reached records that an entry behind a marker has a record of a generation. The entries of the generation before the last one and of
// the last one are needed.
func (r *Replica) reached(generation, behind uint64) {
	switch {
	case r.starts[1] == 0:
		r.generation, r.starts = generation, [2]uint64{behind, behind}
	case generation > r.generation:
		r.generation, r.starts = generation, [2]uint64{r.starts[1], behind}
		r.unneeded.Store(r.starts[0])
	}
}

// Trim purges entries of generations that aren't needed any more. One goroutine at a time may call it, at any time.
func (r *Replica) Trim(ctx context.Context) error {
	below := r.unneeded.Load()
	if below <= r.purged {
		return nil
	}
	if err := r.source.Purge(ctx, below); err != nil {
		return fmt.Errorf("remove entries that are no longer needed from the log of the state: %w", err)
	}
	r.purged = below
	return nil
}
