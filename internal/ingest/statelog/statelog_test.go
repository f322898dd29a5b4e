package statelog

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/ingest/store"
)

// script is a log that a test writes entry by entry. It implements Source.
type script struct {
	t       *testing.T
	writer  device.State
	at      uint64   // sequence of the last message or marker
	stored  []Stored // the entries that aren't removed
	state   store.State
	reads   int      // number of calls of Read
	yielded []uint64 // sequences of the entries that were read
	fail    int      // number of entries after which the next Read fails; 0 for no failure
	purges  []uint64 // arguments of Purge
	refuses bool     // whether Purge fails
}

func newScript(t *testing.T) *script {
	return &script{t: t, writer: newState(t), state: store.State{Spec: modelSpec, Begins: 1}, at: 1}
}

var errScript = errors.New("no answer")

func (s *script) Read(_ context.Context, after, before uint64) iter.Seq2[Stored, error] {
	s.reads++
	return func(yield func(Stored, error) bool) {
		for _, each := range s.stored {
			if each.Sequence <= after || each.Sequence >= before {
				continue
			}
			s.yielded = append(s.yielded, each.Sequence)
			if !yield(each, nil) {
				return
			}
			if s.fail--; s.fail == 0 {
				yield(Stored{}, errScript)
				return
			}
		}
	}
}

func (s *script) Purge(_ context.Context, below uint64) error {
	if s.purges = append(s.purges, below); s.refuses {
		return errScript
	}
	return nil
}

// decide returns the entries of the next records, one for each of these inputs.
func (s *script) decide(inputs ...uint64) (entries [][]byte) {
	s.t.Helper()
	for part := range slices.Chunk(inputs, modelBatch) {
		var positions []device.Position
		var keys []byte
		for _, sequence := range part {
			p := device.Position{Sequence: sequence}
			positions = append(positions, p)
			for _, key := range keysOf(p) {
				keys = binary.LittleEndian.AppendUint64(keys, key)
			}
		}
		decisions, err := s.writer.Apply(positions, keys)
		if err == nil {
			entries, err = decisions.AppendLog(entries, 0, len(positions), 1<<20)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return entries
}

// abandoned returns the entries of an owner that was fenced after it had decided on the first n inputs and then on inputs.
func (s *script) abandoned(n uint64, inputs ...uint64) [][]byte {
	s.t.Helper()
	fenced := &script{t: s.t, writer: newState(s.t)}
	fenced.decide(upTo(n)...)
	return fenced.decide(inputs...)
}

// upTo returns the inputs from 1 to n. span returns the inputs from first to last.
func upTo(n uint64) []uint64 { return span(1, n) }

func span(first, last uint64) (all []uint64) {
	for ; first <= last; first++ {
		all = append(all, first)
	}
	return all
}

// store stores entries of a commit behind a marker that describes the state covered.
func (s *script) store(behind uint64, covered store.State, entries ...[]byte) {
	for _, entry := range entries {
		s.at++
		position := device.Position{Sequence: covered.Sequence, Record: covered.Record}
		s.stored = append(s.stored, Stored{Sequence: s.at, Behind: behind, Covered: position, Entry: entry})
	}
}

// commit stores the records of inputs, and returns the sequence of the commit's marker.
func (s *script) commit(inputs ...uint64) (at uint64) {
	s.t.Helper()
	s.store(s.at, s.state, s.decide(inputs...)...)
	return s.mark()
}

// size returns the bytes of the entries behind a marker.
func (s *script) size(behind uint64) (n int) {
	for _, each := range s.stored {
		if each.Sequence > behind {
			n += len(each.Entry)
		}
	}
	return n
}

// mark stores a marker with the state of the writer.
func (s *script) mark() (at uint64) {
	s.state.Records, _ = s.writer.Applied()
	_, last := s.writer.Applied()
	s.state.Sequence, s.state.Record = last.Sequence, last.Record
	s.at++
	return s.at
}

func (s *script) replica() *Replica { return NewReplica(newState(s.t), modelSpec, s) }

// catchUp brings a replica to the last marker, which must succeed.
func (s *script) catchUp(r *Replica, at uint64) {
	s.t.Helper()
	state := s.state
	if err := r.CatchUp(s.t.Context(), at, &state); err != nil {
		s.t.Fatal(err)
	}
	if records, last := r.State().Applied(); records != s.state.Records || last.Sequence != s.state.Sequence {
		s.t.Fatalf("the replica has %d records up to %v, but the marker has %+v", records, last, s.state)
	}
}

// wantLost checks that the last marker's state can't be restored from the log, and that the error has the reason why.
func (s *script) wantLost(r *Replica, at uint64, state store.State, why string) {
	s.t.Helper()
	err := r.CatchUp(s.t.Context(), at, &state)
	if !errors.As(err, new(*LostError)) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "MILLRACE_STATE_LOST=begin") {
		s.t.Errorf("the state is restored with the error %v, want a loss because %q", err, why)
	}
}

// TestEachEntryIsReadOnce follows a log, and some reads fail.
func TestEachEntryIsReadOnce(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	r := s.replica()
	at := s.commit(upTo(30)...)
	s.fail = 4
	state := s.state
	if err := r.CatchUp(t.Context(), at, &state); !errors.Is(err, errScript) {
		t.Fatalf("a failed read returns %v", err)
	}
	s.catchUp(r, at)
	reads := s.reads
	s.catchUp(r, at)
	if s.reads != reads {
		t.Error("an up-to-date replica reads the log")
	}
	s.catchUp(r, s.commit(span(31, 40)...))
	var want []uint64
	for _, each := range s.stored {
		want = append(want, each.Sequence)
	}
	if !slices.Equal(s.yielded, want) {
		t.Errorf("entries %d are read, want %d", s.yielded, want)
	}
}

// TestStaleEntriesBeforeATrimmedLog has entries of an owner that was fenced. The next owner trims the log up to a marker, and the server
// stores these entries only after that marker. So they are the first entries in the log.
func TestStaleEntriesBeforeATrimmedLog(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.commit(upTo(11)...) // a generation
	behind, covered, late := s.at, s.state, s.abandoned(11, 12, 13, 14)
	s.commit(span(12, 22)...)
	s.stored = nil // trimmed
	s.store(behind, covered, late...)
	s.commit(span(23, 33)...)
	at := s.commit(span(34, 40)...)
	s.catchUp(s.replica(), at)
}

// TestLostLogs has logs from which the state of the last marker can't be restored.
func TestLostLogs(t *testing.T) {
	t.Parallel()
	const removed = "entries were removed"
	for name, c := range map[string]struct {
		spoil func(s *script, r *Replica, state *store.State)
		why   string
	}{
		"other parameters":          {func(_ *script, _ *Replica, state *store.State) { state.Spec = "another" }, "the state belongs to another"},
		"no entries":                {func(s *script, _ *Replica, _ *store.State) { s.stored = nil }, removed},
		"without its last entry":    {func(s *script, _ *Replica, _ *store.State) { s.stored = s.stored[:len(s.stored)-1] }, removed},
		"without one in the middle": {func(s *script, _ *Replica, _ *store.State) { s.stored = slices.Delete(s.stored, 5, 6) }, "without gaps"},
		"without a generation":      {func(s *script, _ *Replica, _ *store.State) { s.stored = s.lastGeneration() }, removed},
		"damaged":                   {func(s *script, _ *Replica, _ *store.State) { s.stored[3].Entry = s.stored[3].Entry[1:] }, "in the log"},
		"a record more":             {func(_ *script, _ *Replica, state *store.State) { state.Records++ }, removed},
		"a later position":          {func(_ *script, _ *Replica, state *store.State) { state.Record++ }, removed},
		"another log": {func(s *script, r *Replica, state *store.State) {
			s.catchUp(r, s.at)
			state.Begins++ // this state has as many records, which end at the same position
		}, "the log begins behind message 2"},
		"an older state": {func(s *script, r *Replica, state *store.State) {
			old := *state
			s.catchUp(r, s.commit(span(41, 45)...))
			*state = old
		}, "the marker says 40 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScript(t)
			s.commit(upTo(20)...)
			at := s.commit(span(21, 40)...)
			r, state := s.replica(), s.state
			c.spoil(s, r, &state)
			s.wantLost(r, at, state, c.why)
		})
	}
}

// lastGeneration returns the entries of the last generation.
func (s *script) lastGeneration() []Stored {
	s.t.Helper()
	return slices.DeleteFunc(slices.Clone(s.stored), func(each Stored) bool {
		info, err := s.writer.ReadEntry(each.Entry)
		if err != nil {
			s.t.Fatal(err)
		}
		return info.Generation < s.writer.Stats().Generation
	})
}

// TestAnOwnerAfterAFailedCommit has an owner that reads entries that no marker covers. It leaves a record out, so it stores other entries in
// their place. After it loses the partition, it follows the log.
func TestAnOwnerAfterAFailedCommit(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"before its lease": false, "behind its marker": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScript(t)
			behind := s.commit(upTo(11)...) // a generation
			covered, failed := s.state, s.abandoned(11, 12, 13, 14)
			if !late {
				s.store(behind, covered, failed...)
			}
			fence := s.mark()
			owner := s.replica()
			s.catchUp(owner, fence)
			next := s.writer
			s.writer = owner.State()
			at := s.commit(12, 14)
			owner.Committed(fence, at, s.writer.Stats().Generation, s.size(fence))
			if late {
				s.store(behind, covered, failed...)
			}
			s.writer = next
			s.decide(12, 14)
			at = s.commit(15, 16)
			s.catchUp(owner, at)
			s.catchUp(s.replica(), at)
		})
	}
}

// TestTrimming checks the log's size, and the sequence up to which it is purged. Generations are kept until two later ones have begun. A failed purge
// is repeated, and a successful purge isn't.
func TestTrimming(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	owner := s.replica()
	s.writer = owner.State()
	var begins []uint64 // markers behind which the generations begin
	commit := func(sequences ...uint64) {
		t.Helper()
		behind := s.at
		if first, _ := s.writer.Applied(); first%uint64(parameters.Records) == 0 {
			begins = append(begins, behind)
		}
		at := s.commit(sequences...)
		owner.Committed(behind, at, s.writer.Stats().Generation, s.size(behind))
		owner.Committed(s.at, s.mark(), 0, 0) // a commit without records
	}
	purged := uint64(0)
	trim := func(want ...uint64) {
		t.Helper()
		defer func() {
			if got := owner.LogBytes(); got != int64(s.size(purged)) {
				t.Fatalf("the log has %d bytes, want %d", got, s.size(purged))
			}
		}()
		if err := owner.Trim(t.Context()); (err != nil) != s.refuses || !slices.Equal(s.purges, want) {
			t.Fatalf("the log is purged below %d, want %d: %v", s.purges, want, err)
		} else if err == nil && len(want) > 0 {
			purged = want[0]
		}
		s.purges = nil
	}
	commit(upTo(11)...)
	trim()
	commit(span(12, 16)...)
	trim(begins[0]) // nothing is left to trim
	commit(span(17, 22)...)
	commit(span(23, 24)...)
	s.refuses = true
	trim(begins[1])
	s.refuses = false
	trim(begins[1])
	trim()
	commit(span(25, 33)...)
	commit(span(34, 44)...)
	commit(span(45, 50)...)
	trim(begins[3])
	reader := s.replica()
	s.stored = slices.DeleteFunc(s.stored, func(each Stored) bool { return each.Sequence < begins[3] })
	s.catchUp(reader, s.at)
	owner = reader
	trim(begins[3])
}
