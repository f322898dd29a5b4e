// Package statelog reads the log of a partition's state back. The state of a stateful operator is a view of its log, which is in the
// result stream (adr/0056).
//
// A commit stores results, then entries of the log, and then a commit marker. A Replica is a copy of the state, and CatchUp brings it to a
// marker. An owner of the partition calls CatchUp once, when its lease begins, and then continues with its own commits. Other workers call
// CatchUp at intervals.
//
// The log may have entries that no marker covers, because a commit failed or its worker died. Fast batches aren't atomic, so such entries
// may even arrive after the next owner's entries, and some entries of a batch may be missing. Each entry names the positions of the
// record before it and of its last record. It also names the marker behind which its commit began, and the last record of the state in
// that marker. The sequences of markers ascend, even from owner to owner. Therefore:
//
//   - An entry is stale if an earlier entry was behind a later marker.
//   - An entry drops the entries before it that end after the position at which it begins.
//   - An entry is covered if the state in a later marker has its last record. A position of inputs would not prove that: the input of an entry
//     that no marker covers may have been settled without its records.
//
// Start reading at Replica.CatchUp.
package statelog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"millrace/internal/device"
	"millrace/internal/ingest/store"
)

const (
	// headerBehind has three numbers with spaces between them: the stream sequence of the marker behind which the entry's commit began,
	// and the position of the last record of the state in that marker.
	headerBehind = "Millrace-Behind"

	headerTTL = "Nats-TTL"
)

// suffix is the last token of the subject of a log. The subject of the commit markers precedes it.
const suffix = ".state"

// Subject returns the subject of a log. markers is the subject of the partition's commit markers.
func Subject(markers string) string { return markers + suffix }

// Message returns the message with an entry. markers is the subject of the partition's commit markers. The entry's commit begins behind the
// marker with stream sequence behind, which describes the given state, or no state if it is nil. With keep, the entry outlives the stream's
// maximum age. The stream must then allow TTLs.
func Message(markers string, keep bool, behind uint64, state *store.State, entry []byte) *nats.Msg {
	var last device.Position
	if state != nil {
		last = device.Position{Sequence: state.Sequence, Record: state.Record}
	}
	h := nats.Header{headerBehind: {fmt.Sprintf("%d %d %d", behind, last.Sequence, last.Record)}}
	if keep {
		h[headerTTL] = []string{"never"}
	}
	return &nats.Msg{Subject: Subject(markers), Header: h, Data: entry}
}

// Stored is an entry in the stream.
type Stored struct {
	Sequence uint64          // stream sequence
	Behind   uint64          // stream sequence of the marker behind which the entry's commit began
	Covered  device.Position // position of the last record of the state in that marker
	Entry    []byte
}

// Parse returns a stored message as an entry. It returns an error if the message doesn't have the form that Message creates.
func Parse(sequence uint64, h nats.Header, body []byte) (s Stored, err error) {
	s.Sequence, s.Entry = sequence, body
	if _, err = fmt.Sscanf(h.Get(headerBehind), "%d %d %d", &s.Behind, &s.Covered.Sequence, &s.Covered.Record); err != nil {
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

// LostError means that a replica can't reach the state of a marker. Either the log doesn't have that state, or the replica has taken
// records of another log. If a new replica fails too, the log doesn't have the state. Cause is the reason.
type LostError struct{ Cause error }

func (e *LostError) Error() string {
	return e.Cause.Error() + "; " + LostAdvice
}

// LostAdvice is the advice for the user on a LostError.
const LostAdvice = "restore the settings or what is missing, or set MILLRACE_STATE_LOST=begin for one start: an empty state then begins, which knows no earlier record"

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

func lost(format string, args ...any) error { return &LostError{fmt.Errorf(format, args...)} }

// OtherSpec returns the LostError of a state with another spec than the worker's states.
func OtherSpec(state, worker string) error {
	return lost("the state belongs to %s, and this worker is set to %s", state, worker)
}

// Replica is a copy of a partition's state. Unless noted otherwise, its methods are for one goroutine at a time.
type Replica struct {
	state  device.State
	spec   string
	source Source

	begins  uint64    // see store.State.Begins
	read    uint64    // stream sequence up to which this replica has read or committed the log
	behind  uint64    // the largest Behind so far
	waiting []waiting // entries after the entries in the state, in the order of their records

	first      uint64   // generation with which the log began
	generation uint64   // generation of the last record
	starts     [2]place // starts of the previous generation and of this one

	bytes    atomic.Int64          // total size of all entries that were read or committed
	last     place                 // start of the last commit that was read
	unneeded atomic.Pointer[place] // entries before this place aren't needed; nil if all are needed
	purged   atomic.Pointer[place] // entries before this place are purged; nil if none are purged
}

// place is where a commit begins in the log.
type place struct {
	behind uint64 // stream sequence of the marker behind which the commit begins
	bytes  int64  // value of Replica.bytes before the commit's entries
}

// waiting is an entry that no known marker covers.
type waiting struct {
	Stored
	device.EntryInfo
	commit place
}

// NewReplica returns a replica with an empty state, which the caller owns. spec identifies the settings that the state depends on.
func NewReplica(state device.State, spec string, source Source) *Replica {
	return &Replica{state: state, spec: spec, source: source}
}

// State returns the state.
func (r *Replica) State() device.State { return r.state }

// Spec returns the text that identifies the settings that the state depends on.
func (r *Replica) Spec() string { return r.spec }

// CatchUp reads the log up to the marker with stream sequence at, which describes the state want. It reads nothing if the replica has that
// state. It returns a *LostError if this replica can't reach that state with the log. If the device fails, it returns an error with a
// *device.Error. The replica is unusable after these errors. After any other error, a further call continues.
func (r *Replica) CatchUp(ctx context.Context, at uint64, want *store.State) error {
	switch {
	case want.Spec != r.spec:
		return OtherSpec(want.Spec, r.spec)
	case r.read == 0:
		r.begins, r.read = want.Begins, want.Begins
	case r.begins != want.Begins:
		return lost("the log begins behind message %d, and the copy of the state is of a log that began behind %d", want.Begins, r.begins)
	}
	end := device.Position{Sequence: want.Sequence, Record: want.Record}
	if records, last := r.state.Applied(); records == want.Records && last == end {
		return nil // entries after r.read may belong to a message that no marker covers yet, so they are read later
	}
	for s, err := range r.source.Read(ctx, r.read, at) {
		if err != nil {
			return fmt.Errorf("read the log of the state: %w", err)
		}
		if s.Behind > r.last.behind {
			r.last = place{s.Behind, r.bytes.Load()}
		}
		r.bytes.Add(int64(len(s.Entry)))
		if err := r.take(s); err != nil {
			return err
		}
		r.read = s.Sequence
	}
	if err := r.flush(end); err != nil {
		return err
	}
	switch records, last := r.state.Applied(); {
	case records != want.Records || last != end:
		return lost("the log has %d records up to %d:%d, and the marker says %d up to %d:%d: entries were removed", records, last.Sequence, last.Record,
			want.Records, want.Sequence, want.Record)
	case r.first > 0 && r.generation == r.first:
		return lost("the log begins with generation %d, and the state needs the one before it too: entries were removed", r.first)
	}
	return nil
}

// take receives the next entry of the stream.
func (r *Replica) take(s Stored) error {
	if s.Behind < r.behind {
		return nil // the entry is from a fenced commit
	}
	r.behind = s.Behind
	info, err := r.state.ReadEntry(s.Entry)
	if err != nil {
		return lost("message %d in the log: %w", s.Sequence, err)
	}
	for n := len(r.waiting); n > 0 && r.waiting[n-1].Last.Compare(info.Previous) > 0; n-- {
		r.waiting = r.waiting[:n-1]
	}
	if n := r.covered(s.Covered); n > 0 && r.waiting[n-1].Last != s.Covered {
		r.waiting = r.waiting[:0] // stale entries that arrived after the marker up to which the log was trimmed
	}
	if err := r.flush(s.Covered); err != nil {
		return err
	}
	_, tail := r.state.Applied()
	if n := len(r.waiting); n > 0 {
		tail = r.waiting[n-1].Last
	}
	switch {
	case info.Previous == tail:
		r.waiting = append(r.waiting, waiting{s, info, r.last})
	case info.First == 0:
		r.waiting = append(r.waiting[:0], waiting{s, info, r.last})
	}
	return nil // otherwise an earlier entry of the commit is missing, or the generation isn't needed
}

// covered returns the number of waiting entries with records up to end.
func (r *Replica) covered(end device.Position) (n int) {
	for n < len(r.waiting) && r.waiting[n].Last.Compare(end) <= 0 {
		n++
	}
	return n
}

// flush applies the waiting entries with records up to end.
func (r *Replica) flush(end device.Position) error {
	n := r.covered(end)
	for i := range r.waiting[:n] {
		w := &r.waiting[i]
		if err := r.state.Replay(w.Entry); err != nil {
			if e := (*device.Error)(nil); errors.As(err, &e) && errors.Is(e, device.ErrInvalid) && e.Code == 0 {
				return lost("message %d in the log: %w", w.Sequence, err)
			}
			return fmt.Errorf("replay message %d in the log: %w", w.Sequence, err) // the device failed, and the log may be right
		}
		r.reached(w.Generation, w.commit)
	}
	r.waiting = r.waiting[:copy(r.waiting, r.waiting[n:])]
	return nil
}

// Committed records that a commit has stored entries of records that the state has. bytes is the size of the entries. behind and at are
// the stream sequences of the marker behind which the commit began and of its own marker. generation is the generation of its last record,
// or 0 without records. The state may have later records, which a new owner wouldn't know.
func (r *Replica) Committed(behind, at, generation uint64, bytes int) {
	r.read, r.behind, r.waiting = at, behind, nil
	commit := place{behind, r.bytes.Load()}
	r.bytes.Add(int64(bytes))
	r.reached(generation, commit)
}

// reached records that a commit has a record of a generation. Only entries of the last two generations are needed.
func (r *Replica) reached(generation uint64, commit place) {
	switch {
	case r.starts[1].behind == 0:
		r.first, r.generation, r.starts = generation, generation, [2]place{commit, commit}
	case generation > r.generation:
		r.generation, r.starts = generation, [2]place{r.starts[1], commit}
		unneeded := r.starts[0]
		r.unneeded.Store(&unneeded)
	}
}

// LogBytes returns the size in bytes of the part of the log that the replica has read or committed. It omits entries of commits that failed
// since. Any goroutine may call it.
func (r *Replica) LogBytes() int64 {
	purged := r.purged.Load() // read before bytes, which only grows
	if purged == nil {
		return r.bytes.Load()
	}
	return r.bytes.Load() - purged.bytes
}

// Trim purges entries of generations that are no longer needed. One goroutine at a time may call it, at any time.
func (r *Replica) Trim(ctx context.Context) error {
	below := r.unneeded.Load()
	if below == r.purged.Load() {
		return nil
	}
	if err := r.source.Purge(ctx, below.behind); err != nil {
		return fmt.Errorf("remove entries that are no longer needed from the log of the state: %w", err)
	}
	r.purged.Store(below)
	return nil
}
