package statelog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/device"
	"millrace/internal/history"
	"millrace/internal/ingest/store"
	"millrace/internal/operator/neardup"
)

// The model has one partition and several workers, each with a chain of commit markers, a Replica, and the state of neardup on a CPU. A
// worker that owns the partition decides on records and commits the decisions. Some messages have more records than one call of
// State.Apply takes, and more entries than one commit has. Other workers follow the log, and take the partition over at any moment, even
// from a worker that doesn't notice. Workers crash, requests and answers are lost or late, and parts of fast batches arrive after
// messages of the next owners. Logs are trimmed. An owner may leave an input out, because its operators or its filter refuse it.
//
// The decisions that markers cover must equal the reference's decisions on the same records.

var parameters = neardup.Parameters{Bands: 3, Rows: 2, K: 5, Seed: 1, Records: 11}

const (
	modelBatch   = 5
	modelEntries = 2 // maximum number of entries in one commit
	modelSpec    = "neardup of 11 records"
)

// keysOf returns the keys of a record. Many records share some.
func keysOf(p device.Position) []uint64 {
	random := rand.New(rand.NewPCG(p.Sequence, p.Record))
	var signature []uint32
	for range parameters.Bands {
		signature = append(signature, random.Uint32N(40), 0)
	}
	return parameters.AppendKeys(nil, signature)
}

func newState(t testing.TB) device.State {
	t.Helper()
	state, err := neardup.NewState(parameters, modelBatch)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// worker is a process with at most one lease.
type worker struct {
	*modelStream
	replica *Replica // nil without memory
	lease   *lease
}

// lease is a worker's ownership. Its fields are those of decider in package results.
type lease struct {
	*store.Chain
	next   uint64 // next input
	stored store.State

	positions []device.Position
	decisions device.Decisions
	logged    int
	earlier   [][]byte
	before    int
	reached   uint64
}

func always(context.Context, store.Markers, int, error) bool { return true }

// open creates an empty replica if the worker has none.
func (w *worker) open() {
	if w.replica == nil {
		w.replica = NewReplica(newState(w.t), modelSpec, w)
	}
}

// catchUp brings the replica to a marker. It repeats reads that fail.
func (w *worker) catchUp(ctx context.Context, at uint64, state *store.State) error {
	for {
		if err := w.replica.CatchUp(ctx, at, state); !errors.Is(err, errModel) {
			return err
		}
	}
}

// follow reads the log up to the last marker.
func (w *worker) follow(ctx context.Context) {
	last, err := w.Last(ctx)
	if err != nil || last.State == nil {
		return
	}
	w.open()
	if err := w.catchUp(ctx, last.At, last.State); err != nil {
		w.happened["stale"]++
		w.replica = nil
	}
}

// take begins a lease. Another worker may overtake it at once.
func (w *worker) take(ctx context.Context, owner string) {
	c, _, err := store.OpenChains(ctx, store.ChainOptions{
		Owner: owner, Created: time.Unix(1_700_000_000, 0), Way: w.way, Again: always,
		Entry: func(behind uint64, state *store.State, entry []byte) *nats.Msg {
			return Message(markers, false, behind, state, entry)
		},
	}, w, nil)
	if err != nil {
		return
	}
	at, state := c.Last()
	if state == nil {
		state = &store.State{Spec: modelSpec, Begins: at}
	}
	fresh := w.replica == nil
	w.open()
	err = w.catchUp(ctx, at, state)
	if err != nil && !fresh {
		w.happened["stale"]++
		w.replica = nil
		w.open()
		err = w.catchUp(ctx, at, state)
	}
	switch {
	case err != nil && w.last() == at:
		w.t.Fatalf("the state at marker %d of %d messages, %+v: %v", at, len(w.modelStream.stored), *state, err)
	case err != nil:
		w.replica = nil // the next owner has trimmed the log
		return
	}
	w.lease = &lease{Chain: c, next: c.At().Sequence + 1, stored: *state}
}

// end ends the lease. The replica stays if the log has all of its records.
func (w *worker) end() {
	l := w.lease
	if w.lease = nil; l.decisions != nil && (l.logged > 0 || l.before > 0 || w.replica.State().Undo() != nil) {
		w.replica = nil
	}
}

// recordsOf returns the records of an input.
func recordsOf(input uint64) (all []device.Position) {
	n := input * 7 % 5
	if input%9 == 0 {
		n = 17
	}
	for record := range n {
		all = append(all, device.Position{Sequence: input, Record: record * 3})
	}
	return all
}

// step decides on a few inputs, and commits them in parts. It returns false if the lease ends.
func (w *worker) step(ctx context.Context) bool {
	l := w.lease
	var inputs []uint64
	var all []device.Position
	for n := 1 + w.random.IntN(4); n > 0; n-- {
		records := recordsOf(l.next)
		if w.random.IntN(8) == 0 {
			records = nil
		}
		if len(inputs) > 0 && len(all)+len(records) > modelBatch {
			break
		}
		inputs, all, l.next = append(inputs, l.next), append(all, records...), l.next+1
	}
	values := w.decide(all)
	numbers := make([]int, len(inputs))
	for i, input := range inputs {
		d := decision{}
		for k, p := range all {
			if p.Sequence == input {
				d.positions, d.values = append(d.positions, p), append(d.values, values[k])
			}
		}
		numbers[i] = len(w.decided)
		w.decided = append(w.decided, d)
	}
	for len(inputs) > 0 {
		some := len(inputs)
		if w.random.IntN(3) == 0 {
			some = 1 + w.random.IntN(some)
		}
		err := w.commit(ctx, numbers[:some], inputs[some-1])
		if store.EndsChain(err) {
			return false
		}
		if err == nil {
			inputs, numbers = inputs[some:], numbers[some:]
		}
	}
	return true
}

// decide returns the values of records.
func (w *worker) decide(all []device.Position) (values [][]byte) {
	l := w.lease
	l.positions, l.decisions, l.logged, l.earlier, l.before = nil, nil, 0, nil, 0
	for part := range slices.Chunk(all, modelBatch) {
		var err error
		if l.decisions != nil {
			if l.earlier, err = l.decisions.AppendLog(l.earlier, 0, len(l.positions), w.limit()); err != nil {
				w.t.Fatal(err)
			}
			l.before += len(l.positions)
		}
		var keys []byte
		for _, p := range part {
			for _, key := range keysOf(p) {
				keys = binary.LittleEndian.AppendUint64(keys, key)
			}
		}
		if l.decisions, err = w.replica.State().Apply(part, keys); err != nil {
			w.t.Fatal(err)
		}
		l.positions = part
		for i := range part {
			values = append(values, l.decisions.AppendValue(nil, i))
		}
	}
	return values
}

// limit returns a limit of an entry's size.
func (w *worker) limit() int { return parameters.MinEntry() + w.random.IntN(200) }

// commit stores the results with these numbers, and the log entries of all records up to an input.
func (w *worker) commit(ctx context.Context, numbers []int, input uint64) error {
	l := w.lease
	behind, _ := l.Last()
	log, next, covered := slices.Clone(l.earlier), l.stored, l.logged
	for covered < len(l.positions) && l.positions[covered].Sequence <= input {
		covered++
	}
	if covered > l.logged {
		var err error
		if log, err = l.decisions.AppendLog(log, l.logged, covered, w.limit()); err != nil {
			w.t.Fatal(err)
		}
		last := l.positions[covered-1]
		next.Records += uint64(l.before + covered - l.logged)
		next.Sequence, next.Record = last.Sequence, last.Record
	}
	l.reached = 0
	if len(log) > 0 {
		last, err := w.replica.State().ReadEntry(log[len(log)-1])
		if err != nil {
			w.t.Fatal(err)
		}
		l.reached = last.Generation
	}
	for ; len(log) > modelEntries; log = log[modelEntries:] {
		w.happened["split"]++
		if _, err := l.Commit(ctx, store.Batch{At: l.At(), Log: log[:modelEntries]}); err != nil {
			return err
		}
	}
	b := store.Batch{At: store.Position{Sequence: input, Stored: int64(input)}, Log: log, State: &next}
	for _, number := range numbers {
		b.Messages = append(b.Messages, &nats.Msg{Subject: results, Data: strconv.AppendInt(nil, int64(number), 10)})
	}
	if _, err := l.Commit(ctx, b); err != nil {
		return err
	}
	l.stored, l.logged, l.earlier, l.before = next, covered, nil, 0
	if covered == len(l.positions) {
		l.decisions = nil
	}
	at, _ := l.Last()
	w.replica.Committed(behind, at, l.reached, 0) // TestTrimming checks sizes
	if w.random.IntN(4) == 0 {
		w.trim(ctx) // in a worker, another goroutine trims, in the middle of a batch too
	}
	return nil
}

func (w *worker) trim(ctx context.Context) {
	if err := w.replica.Trim(ctx); err != nil && !errors.Is(err, errModel) {
		w.t.Fatal(err)
	}
}

// act lets a worker do something. Some workers crash at a fault.
func (w *worker) act(ctx context.Context, name string) {
	switch {
	case w.lease == nil && w.random.IntN(4) > 0:
		w.follow(ctx)
	case w.lease == nil:
		w.take(ctx, name)
	case w.random.IntN(4) == 0:
		w.trim(ctx)
	default:
		crashed := false
		if w.random.IntN(3) == 0 {
			var stop func()
			ctx, stop = context.WithCancel(ctx)
			w.crash = func() { crashed = true; stop() }
		}
		if alive := w.step(ctx); crashed {
			w.lease, w.replica = nil, nil
		} else if !alive {
			w.end()
		}
		w.crash = nil
	}
}

// TestModel runs random histories, with fast batches and with atomic ones.
func TestModel(t *testing.T) {
	t.Parallel()
	bounds := history.Bounds{Min: 300, Max: 2000, MustHappen: []string{"fast", "atomic", "purged", "split", "stale", "generations"}}
	history.Run(t, bounds, func(h *history.History) (happened map[string]int) {
		synctest.Test(t, func(t *testing.T) { happened = modelRun(t, h) })
		return happened
	})
}

// modelRun runs workers with faults, and finally a new worker without faults. It returns the number of times that each event happened.
func modelRun(t *testing.T, h *history.History) map[string]int {
	s := &modelStream{t: t, random: rand.New(h), way: store.Atomic, faults: true, happened: map[string]int{}}
	name := "atomic"
	if h.Seed%4 > 0 {
		s.way, name = store.Fast, "fast"
	}
	workers := []*worker{{modelStream: s}, {modelStream: s}, {modelStream: s}}
	for step := range 80 {
		s.happened[history.Step]++
		workers[s.random.IntN(len(workers))].act(t.Context(), fmt.Sprint("owner-", step))
	}
	s.faults = false
	last := &worker{modelStream: s}
	last.take(t.Context(), "last")
	for range 10 {
		if !last.step(t.Context()) {
			t.Fatal("the last owner's lease ends")
		}
	}
	for _, w := range workers {
		w.follow(t.Context())
	}
	records := s.check()
	s.happened[name], s.happened["generations"] = records, records/parameters.Records
	return maps.Clone(s.happened)
}

// check compares all decisions that markers cover with the reference's decisions. It returns their number.
func (s *modelStream) check() (n int) {
	reference, last := neardup.NewReference(parameters), device.Position{}
	for _, number := range s.committed {
		for i, p := range s.decided[number].positions {
			if p.Compare(last) <= 0 {
				s.t.Fatalf("a decision on %v comes after a decision on %v", p, last)
			}
			if want := reference.Apply(p, keysOf(p)); !bytes.Equal(s.decided[number].values[i], want.AppendValue(nil)) {
				got, _ := neardup.ReadValue(s.decided[number].values[i])
				s.t.Fatalf("the decision on %v is %+v, want %+v", p, got, want)
			}
			last, n = p, n+1
		}
	}
	return n
}
