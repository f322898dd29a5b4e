package results

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// stateRig has a server, and a writer with the stateful operator neardup. Each of its leases has a partition and its own copy of the state.
type stateRig struct {
	*rig
	w    *Writer
	pool *inflight.Pool
	way  store.Way

	began      time.Time                  // time when the inputs were stored
	references map[int]*neardup.Reference // reference of each partition
}

const (
	stateRecords = 300 // number of records of a generation
	stateBatch   = 100 // records in one call of State.Apply
)

// eachStateRig runs test with fast batches and with atomic ones. Messages of the result stream have at most 1200 bytes, so entries are small.
func eachStateRig(t *testing.T, test func(t *testing.T, r *stateRig)) {
	t.Helper()
	t.Parallel()
	for name, way := range map[string]store.Way{"fast": store.Fast, "atomic": store.Atomic} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &stateRig{rig: &rig{natstest.New(t)}, way: way, began: time.Now(), references: map[int]*neardup.Reference{}}
			r.w = r.writer(func(o *Options) {
				o.Operators = natstest.Must(operator.ParseList("crc32c,neardup?bands=8&rows=2&k=5"))(t)
				o.Consumer, o.Exclusive, o.Partitions, o.MaxDeliver, o.MaxAckPending = "millrace", true, 100, 5, 100
				o.ResultIDs = false // otherwise the server drops a result with a known ID, even after dyingStore has removed the first one
				natstest.OK(t, topology.Provision(r.Ctx(), r.JS, o.Topology, o.Log))
			})
			r.Change("RESULTS", func(c *jetstream.StreamConfig) {
				c.AllowMsgTTL, c.AllowBatchPublish, c.MaxMsgSize = true, way == store.Fast, 1200
			})
			r.pool = natstest.Must(inflight.NewPool([]*streams.Pipeline{r.pipeline(r.w)}, memory.Worker{Messages: memory.Messages{
				Format: r.w.o.Format, Operators: r.w.o.Operators, Split: frame.Splitter{Framing: frame.NewlineDelimited, MaxRecords: 1 << 16, MaxBytes: 1 << 20},
			}}))(t)
			test(t, r)
		})
	}
}

func (r *stateRig) stateful() operator.Stateful { return r.w.o.Operators[1].(operator.Stateful) }

func (r *stateRig) parameters() neardup.Parameters {
	return natstest.Must(neardup.ParseBlock(r.stateful().Params(), stateRecords))(r)
}

// similar returns n records, of which many are near-duplicates of others.
func similar(first, n int) (records [][]byte) {
	for i := range n {
		k := first + i
		records = append(records, fmt.Appendf(nil, "text %d of %d", k*k%(50+k/3), k%3))
	}
	return records
}

// frameOf returns the delivery of an input, whose records have their keys.
func (r *stateRig) frameOf(sequence uint64, records [][]byte) inflight.Delivery {
	r.Helper()
	in := r.input(sequence, nil)
	in.Stored = r.began
	in.Msg = modelMessage{body: append(bytes.Join(records, []byte("\n")), '\n'), header: nats.Header{}}
	r.pool.Unpack(&in)
	in.Frame.Open()
	natstest.OK(r, in.Frame.Fault())
	compute(&in.Frame.Unpacked, r.w.o.Operators, records)
	in.Frame.Fail(nil) // its results are complete
	return in
}

// compute puts the results of kernels into the table of a message.
func compute(m *inflight.Unpacked, ops []operator.Operator, records [][]byte) {
	for i, each := range records {
		for k, op := range ops {
			m.Table.Put(k, i, operator.KernelOf(op).AppendReference(nil, each))
		}
	}
}

// decide returns the expected result of an input, whose records come next in its partition. The result omits the records in failed.
func (r *stateRig) decide(partition int, sequence uint64, records [][]byte, failed ...int) string {
	r.Helper()
	reference := r.references[partition]
	if reference == nil {
		reference = neardup.NewReference(r.parameters())
		r.references[partition] = reference
	}
	var body []byte
	for i, each := range records {
		if slices.Contains(failed, i) {
			continue
		}
		var keys []uint64
		for k := r.stateful().Kernel().AppendReference(nil, each); len(k) > 0; k = k[neardup.KeyBytes:] {
			keys = append(keys, binary.LittleEndian.Uint64(k))
		}
		verdict := reference.Apply(device.Position{Sequence: sequence, Record: uint64(i)}, keys)
		values := [][]byte{r.w.o.Operators[0].AppendReference(nil, each), verdict.AppendValue(nil)}
		body = append(operator.JSON.Append(body, r.w.o.Operators, len(each), values), '\n')
	}
	return string(body)
}

// result returns the result of an input that is stored after a stream sequence. Its parts must be stored once, and in order.
func (r *stateRig) result(after, sequence uint64) string {
	r.Helper()
	var body strings.Builder
	parts := 0
	for m := range r.messages(after, "results.>") {
		if m.Header.Get(HeaderSequence) != fmt.Sprint(sequence) {
			continue
		}
		if part, _, ok := strings.Cut(m.Header.Get(HeaderPart), "/"); ok && part != fmt.Sprint(parts+1) {
			r.Fatalf("part %s of input %d comes after part %d", part, sequence, parts)
		}
		parts++
		body.Write(m.Data)
	}
	return body.String()
}

// messages yields the messages of the result stream with matching subjects, after a stream sequence.
func (r *stateRig) messages(after uint64, subject string) iter.Seq[*jetstream.RawStreamMsg] {
	return func(yield func(*jetstream.RawStreamMsg) bool) {
		for {
			m := natstest.Must(jsapi.Next(r.Ctx(), r.JS, "RESULTS", after+1, subject))(r)
			if m == nil || !yield(m) {
				return
			}
			after = m.Sequence
		}
	}
}

// lease opens a lease on a partition. wrap may wrap the result stream for the lease.
func (r *stateRig) lease(partition int, owner string, wrap func(store.Markers) store.Markers) *Commits {
	r.Helper()
	r.w.sawStream(r.Stream("RESULTS").CachedInfo(), time.Now())
	c := r.StreamConfig("RESULTS")
	var stream store.Markers = commitStream(r.w, c, partition)
	letters, _, err := letterStore(r.Ctx(), r.w, partition)
	natstest.OK(r, err)
	markers := commitSubject(r.w.o.Topology, "RESULTS", partition)
	o := store.ChainOptions{
		Owner: owner, Created: r.Stream("INGEST").CachedInfo().Created, Way: r.way,
		Again: func(context.Context, store.Markers, int, error) bool { return false },
		Entry: func(behind uint64, state *store.State, entry []byte) *nats.Msg {
			return statelog.Message(markers, true, behind, state, entry)
		},
	}
	if wrap != nil {
		stream = wrap(stream)
	}
	of, dead, err := store.OpenChains(r.Ctx(), o, stream, letters)
	natstest.OK(r, err)
	return NewCommits(r.w, of, dead)
}

// restore gives a lease a new copy of the state, which it reads from the log.
func (r *stateRig) restore(c *Commits, partition int) (*statelog.Replica, error) {
	r.Helper()
	state := natstest.Must(neardup.NewState(r.parameters(), stateBatch))(r)
	replica := statelog.NewReplica(state, "a state", &storedLog{r, statelog.Subject(commitSubject(r.w.o.Topology, "RESULTS", partition))})
	return replica, c.Restore(r.Ctx(), replica, stateBatch, false)
}

// takeOver returns a new lease with its state.
func (r *stateRig) takeOver(partition int, owner string) (*Commits, *statelog.Replica) {
	r.Helper()
	c := r.lease(partition, owner, nil)
	replica, err := r.restore(c, partition)
	natstest.OK(r, err)
	return c, replica
}

// store stores the result of an input, if no earlier lease has settled it.
func (r *stateRig) store(c *Commits, d inflight.Delivery) error {
	r.Helper()
	settled, err := c.Known(r.Ctx(), &d)
	if err != nil || settled {
		return err
	}
	b := &inflight.Batch{}
	b.Add(d)
	return c.Store(r.Ctx(), b, new(Buffers), noSink{})
}

// storedLog implements statelog.Source.
type storedLog struct {
	r       *stateRig
	subject string
}

func (l *storedLog) Read(_ context.Context, after, before uint64) iter.Seq2[statelog.Stored, error] {
	return func(yield func(statelog.Stored, error) bool) {
		for m := range l.r.messages(after, l.subject) {
			if m.Sequence >= before || !yield(statelog.Parse(m.Sequence, m.Header, m.Data)) {
				return
			}
		}
	}
}

func (l *storedLog) Purge(ctx context.Context, below uint64) error {
	return l.r.Stream("RESULTS").Purge(ctx, jetstream.WithPurgeSubject(l.subject), jetstream.WithPurgeSequence(below))
}

// dyingStore is the result stream of a worker that dies in its n-th commit.
type dyingStore struct {
	store.Markers
	r     *stateRig
	n     int
	stage deathStage
}

// deathStage describes how much of a worker's last commit is stored.
type deathStage struct {
	name string
	// missing returns how many messages at the end of the commit aren't stored. all is the number of messages with the marker. missing is
	// nil if the worker dies before the commit.
	missing func(all int) int
	atomic  bool // whether the stage is possible with atomic batches
}

var deathStages = []deathStage{
	{"before the commit", nil, true},
	{"after the commit", func(int) int { return 0 }, true},
	{"before the marker", func(int) int { return 1 }, false},
	{"between the entries", func(all int) int { return (all + 1) / 2 }, false},
}

var errDead = errors.New("the worker is dead")

func (s *dyingStore) Write(ctx context.Context, way store.Way, expected uint64, msgs []*nats.Msg, m *store.Marker) (uint64, error) {
	if len(msgs) > 0 {
		s.n--
	}
	switch {
	case s.n > 0 || len(msgs) == 0 && s.n == 0 && m.Number == 1:
		return s.Markers.Write(ctx, way, expected, msgs, m)
	case s.n < 0 || s.stage.missing == nil || len(msgs) == 0:
		s.n = -1
		return 0, errDead
	}
	s.n = -1
	at := natstest.Must(s.Markers.Write(ctx, way, expected, msgs, m))(s.r)
	for missing := range s.stage.missing(len(msgs) + 1) {
		natstest.OK(s.r, s.r.Stream("RESULTS").DeleteMsg(ctx, at-uint64(missing)))
	}
	return 0, errDead
}

// TestAMessageWithMoreEntriesThanACommit kills workers between and in the commits of one message. The next owner stores the missing
// messages, and decides as in an undisturbed run. The owner after it reads the log of both, and also decides as in an undisturbed run.
func TestAMessageWithMoreEntriesThanACommit(t *testing.T) {
	eachStateRig(t, func(t *testing.T, r *stateRig) {
		const long = 2000
		partition := 0
		for n := 1; n <= 3; n++ {
			for _, stage := range deathStages {
				if r.way == store.Atomic && !stage.atomic {
					continue
				}
				partition++
				base, before := uint64(100*partition), r.Stream("RESULTS").CachedInfo().State.LastSeq
				inputs := [][][]byte{similar(0, 150), similar(150, long), similar(150+long, 150)}
				var want []string
				for i, records := range inputs {
					want = append(want, r.decide(partition, base+uint64(i), records))
				}
				name := fmt.Sprintf("death in commit %d of the message, %s", n, stage.name)
				c, _ := r.takeOver(partition, "first")
				natstest.OK(t, r.store(c, r.frameOf(base, inputs[0])))
				dying := &dyingStore{r: r, n: n, stage: stage}
				c = r.lease(partition, "second", func(s store.Markers) store.Markers { dying.Markers = s; return dying })
				_, err := r.restore(c, partition)
				natstest.OK(t, err)
				if err := r.store(c, r.frameOf(base+1, inputs[1])); !errors.Is(err, errDead) {
					t.Fatalf("%s: the worker ends with %v", name, err)
				}
				c, replica := r.takeOver(partition, "third")
				natstest.OK(t, r.store(c, r.frameOf(base+1, inputs[1])))
				natstest.OK(t, replica.Trim(r.Ctx()))
				c, _ = r.takeOver(partition, "fourth")
				natstest.OK(t, r.store(c, r.frameOf(base+2, inputs[2])))
				for i := range inputs {
					if got := r.result(before, base+uint64(i)); got != want[i] {
						t.Fatalf("%s: the result of message %d is wrong:\n%s", name, i, differences(got, want[i]))
					}
				}
				if _, state := c.results.Last(); state.Records != uint64(long+300) {
					t.Errorf("%s: the last marker says that the state has %d records", name, state.Records)
				}
			}
		}
	})
}

// differences describes the first line that two texts don't have in common.
func differences(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d is\n%s\nwant\n%s", i, a[i], b[i])
		}
	}
	return fmt.Sprintf("it has %d lines, want %d", len(a), len(b))
}

// TestAnOwnerThatFreezesBeforeItReadsTheLog has an owner that fences the partition, but reads the log only after the next owner has trimmed
// it. The state isn't lost. The error only says that the partition has another owner.
func TestAnOwnerThatFreezesBeforeItReadsTheLog(t *testing.T) {
	eachStateRig(t, func(t *testing.T, r *stateRig) {
		const partition = 1
		c, _ := r.takeOver(partition, "first")
		natstest.OK(t, r.store(c, r.frameOf(1, similar(0, stateRecords))))
		frozen := r.lease(partition, "frozen", nil)
		c, replica := r.takeOver(partition, "next")
		for i := range uint64(3) {
			natstest.OK(t, r.store(c, r.frameOf(2+i, similar(0, stateRecords))))
		}
		natstest.OK(t, replica.Trim(r.Ctx()))
		if _, err := r.restore(frozen, partition); !errors.Is(err, store.ErrFenced) || errors.As(err, new(*statelog.LostError)) {
			t.Errorf("the frozen owner gets %v, want %v", err, store.ErrFenced)
		}
		r.takeOver(partition, "last")
	})
}

// TestMarkersExpire removes the commit markers of a partition, as max_age does if no worker runs for long enough. The log never expires, so a lease
// detects that the state is lost, and begins no empty state by itself. Each later lease detects that, too.
func TestMarkersExpire(t *testing.T) {
	eachStateRig(t, func(t *testing.T, r *stateRig) {
		const partition = 1
		c, _ := r.takeOver(partition, "first")
		natstest.OK(t, r.store(c, r.frameOf(1, similar(0, 20))))
		markers := commitSubject(r.w.o.Topology, "RESULTS", partition)
		natstest.OK(t, r.Stream("RESULTS").Purge(r.Ctx(), jetstream.WithPurgeSubject(markers)))
		for _, owner := range []string{"second", "third"} {
			_, err := r.restore(r.lease(partition, owner, nil), partition)
			if !errors.As(err, new(*statelog.LostError)) || !strings.Contains(err.Error(), "its commit markers have expired") {
				t.Errorf("the %s owner gets %v", owner, err)
			}
		}
		c = r.lease(partition, "fourth", nil)
		replica := statelog.NewReplica(natstest.Must(neardup.NewState(r.parameters(), stateBatch))(t), "a state", nil)
		natstest.OK(t, c.Restore(r.Ctx(), replica, stateBatch, true)) // MILLRACE_STATE_LOST=begin
	})
}

// TestRecordsThatFailOnlyAfterTheirResult computes an input again whose result is stored, but not its marker. The state gets the records
// that have a value in the result, even if they fail now. It doesn't get records that failed before, because they have dead letters.
func TestRecordsThatFailOnlyAfterTheirResult(t *testing.T) {
	eachStateRig(t, func(t *testing.T, r *stateRig) {
		partition := 0
		for name, c := range map[string]struct {
			before, now []int // records that fail
			whole       bool  // whether the whole message has a dead letter, although the state has decided
		}{
			"none":                 {nil, nil, false},
			"one fails only now":   {nil, []int{1}, false},
			"one failed before":    {[]int{1}, []int{1}, false},
			"one more fails now":   {[]int{1}, []int{1, 2}, false},
			"in a letter of all":   {nil, []int{1}, true},
			"all, if none did":     {nil, []int{0, 1, 2, 3}, false},
			"all, if one did":      {[]int{3}, []int{0, 1, 2, 3}, false},
			"all, in a dead frame": {nil, []int{0, 1, 2, 3}, true},
		} {
			for _, status := range []record.Status{record.DeviceFault, record.OperatorError} {
				partition++
				sequence := uint64(10 * partition)
				inputs := [][][]byte{similar(0, 4), similar(0, 8)}
				failed := c.before
				if c.whole && status == record.OperatorError {
					failed = c.now // nobody knows whether they failed before
				}
				r.decide(partition, sequence, inputs[0], failed...)
				want := r.decide(partition, sequence+1, inputs[1])
				first, _ := r.takeOver(partition, "first")
				d := r.frameOf(sequence, inputs[0])
				var letters []*deadLetter
				for _, i := range c.before {
					d.Frame.Mark(i, status)
					letters = append(letters, r.w.newRecordLetter(&d, i))
				}
				if c.whole {
					letters = append(letters, r.w.newDeadLetter(&d, TooLarge, errors.New("no")))
				}
				natstest.Must(first.storeLetters(r.Ctx(), letters, new(partials)))(t)
				second, _ := r.takeOver(partition, "second")
				d = r.frameOf(sequence, inputs[0])
				d.Done = true
				for _, i := range c.now {
					d.Frame.Mark(i, status)
				}
				b, from := &inflight.Batch{}, r.Stream("RESULTS").CachedInfo().State.LastSeq
				b.Add(d)
				natstest.OK(t, second.Store(r.Ctx(), b, new(Buffers), noSink{}))
				natstest.OK(t, r.store(second, r.frameOf(sequence+1, inputs[1])))
				if got := r.result(from, sequence+1); got != want {
					t.Errorf("%s, %v: the next result is wrong:\n%s", name, status, differences(got, want))
				}
			}
		}
	})
}

// TestFitting checks how many entries one commit has.
func TestFitting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ entries, bytes, want int }{
		{0, 0, 0}, {1, maxLogged + 1, 1}, {2, maxLogged, 1}, {4, maxLogged / 4, 4}, {5, maxLogged / 4, 4}, {maxEntries, 10, maxEntries}, {maxEntries + 1, 10, maxEntries},
	} {
		if got := fitting(slices.Repeat([][]byte{make([]byte, c.bytes)}, c.entries)); got != c.want {
			t.Errorf("of %d entries with %d bytes each, %d fit into a commit, want %d", c.entries, c.bytes, got, c.want)
		}
	}
}
