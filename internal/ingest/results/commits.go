package results

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
)

// Commits stores the results and dead letters of one lease on a partition exactly once (adr/0046). One goroutine may call Settled
// and Keep while another one stores results.
type Commits struct {
	*Writer
	kind topology.Commits // kind of commits at the start of the lease

	earlier   store.Letters    // dead letters stored by earlier leases
	leftovers *store.Leftovers // results stored by earlier leases after their last marker

	busy    chan struct{} // holds a token during requests of the chains
	results *store.Chain
	letters *store.Chain   // nil if dead letters have ids but no markers
	settled store.Position // position up to which all results are stored
	state   *decider       // nil without a stateful operator

	resultAge, letterAge markerAge
}

type markerAge struct {
	max    time.Duration // the stream's MaxAge; 0 means no limit
	stored time.Time     // time of the lease's last marker, or of its start
}

// isDue reports whether the marker must be stored again, which is after a quarter of max.
func (a *markerAge) isDue() bool { return a.max > 0 && time.Since(a.stored) >= a.max/4 }

// NewCommits returns a Commits of w that stores to the chains results and letters. letters may be nil.
func NewCommits(w *Writer, results, letters *store.Chain) *Commits {
	c := &Commits{
		Writer: w, kind: topology.Commits(w.way.Load()), busy: make(chan struct{}, 1),
		results: results, letters: letters, leftovers: results.Leftovers(), settled: results.At(),
	}
	c.resultAge.stored, c.letterAge.stored = time.Now(), time.Now()
	if letters != nil {
		c.earlier = letters.Letters()
	}
	return c
}

// lock waits until no other goroutine uses the chains.
func (c *Commits) lock() (unlock func()) {
	c.busy <- struct{}{}
	return func() { <-c.busy }
}

// Found returns the position p up to which earlier leases have settled all inputs. ok is false if the position isn't known.
func (c *Commits) Found() (p store.Position, ok bool) { return c.results.Found() }

// Beyond returns the sequence of the last input for which earlier leases may have stored a message. It may exceed the position
// that Found returns.
func (c *Commits) Beyond() uint64 {
	last := c.results.Beyond()
	for _, in := range c.earlier {
		last = max(last, in.Sequence)
	}
	return last
}

func position(d *inflight.Delivery) store.Position {
	return store.Position{Sequence: d.Sequence, Stored: d.Stored.UnixNano()}
}

// Settled reports whether an earlier lease has settled d, so that nothing must be computed for it. It sets d.Parts to the ids of the
// stored parts of an incomplete result. With a stateful operator, an input above the last marker may have a result or a dead letter that
// the state doesn't know. Settled then sets d.Done and returns false.
func (c *Commits) Settled(ctx context.Context, d *inflight.Delivery) (bool, error) {
	in := position(d)
	if at, ok := c.results.Found(); ok && at.Covers(in) {
		return true, nil
	}
	if c.earlier.Has(store.Letter{Input: in, Record: store.WholeMessage}) {
		d.Done = c.earlier.IsDecided(in)
		return !d.Done, nil
	}
	done, parts, err := c.leftovers.Find(ctx, in, store.MapSubject(c.o.ResultPrefix, d.Subject), MessageID(d))
	d.Parts = parts
	d.Done = done && c.state != nil
	return done && !d.Done, err
}

// commit stores b with its marker. Without an error, all of b is stored, and otherwise, stored reports for each of its messages whether
// it is.
func (c *Commits) commit(ctx context.Context, b store.Batch) (stored []bool, err error) {
	defer c.lock()()
	for _, m := range b.Messages {
		c.ownID(m)
	}
	if c.state != nil {
		if err := c.state.commitLog(ctx, c.results, &b); err != nil {
			return make([]bool, len(b.Messages)), err
		}
	}
	if stored, err = c.results.Commit(ctx, b); err != nil {
		return stored, err
	}
	if c.state != nil {
		c.state.committed(c.results)
		c.o.Observer.StateLogged(c.state.bytes)
	}
	c.settled, c.resultAge.stored = b.At, time.Now()
	return stored, c.keepLetters(ctx)
}

// Restore makes a replica of the partition's state the lease's state, after it has read the log up to the last marker. batch is the
// maximum number of records in one call of State.Apply. Restore returns a *statelog.LostError if the log doesn't have the state that the
// marker describes. If the log lacks something because a later owner has trimmed it, Restore returns store.ErrFenced.
//
// If the marker describes no state, or if begin is set, the replica must be empty, and a new log begins.
func (c *Commits) Restore(ctx context.Context, r *statelog.Replica, batch int, begin bool) error {
	at, state := c.results.Last()
	if state == nil || begin {
		state = &store.State{Spec: r.Spec(), Begins: at}
	}
	err := r.CatchUp(ctx, at, state)
	if errors.As(err, new(*statelog.LostError)) {
		err = cmp.Or(c.results.Current(ctx), err)
	}
	if err != nil {
		return err
	}
	limit := min(maxEntry, c.size.maxBytes()-entryHeaders)
	c.state = &decider{replica: r, op: c.stateful, batch: batch, entry: limit, stored: *state}
	if c.letters != nil {
		c.state.letters = &c.earlier
	}
	return nil
}

// Undecide removes decisions that aren't in the log from the state, after the end of the lease. It returns false if that is impossible,
// because some decisions on the same batch are in the log, or may be.
func (c *Commits) Undecide() bool { return c.state != nil && c.state.undecide() }

// Keep stores the last markers again before the streams remove them because of their age. It does nothing during a commit.
func (c *Commits) Keep(ctx context.Context) error {
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	default:
		return nil // a marker is being stored
	}
	if c.resultAge.isDue() {
		c.resultAge.stored = time.Now()
		if _, err := c.results.Commit(ctx, store.Batch{At: c.settled}); store.EndsChain(err) {
			return err
		}
	}
	return c.keepLetters(ctx)
}

// keepLetters renews the last marker of the dead letters if it is due. commit calls it too, because commits may follow each other
// without a pause for Keep.
func (c *Commits) keepLetters(ctx context.Context) error {
	if c.letters == nil || !c.letterAge.isDue() {
		return nil
	}
	c.letterAge.stored = time.Now()
	if err := c.letters.CommitLetters(ctx, nil, nil, c.settled); store.EndsChain(err) {
		return err
	}
	return nil // after any other error, the chain has stored a fence
}

// ownID moves the id of m from the server's id header to store.HeaderID, unless Options.ResultIDs is set.
func (c *Commits) ownID(m *nats.Msg) {
	if !c.o.ResultIDs {
		m.Header[store.HeaderID] = m.Header[jetstream.MsgIDHeader]
		delete(m.Header, jetstream.MsgIDHeader)
	}
}

// Partition describes a partition to OpenCommits.
type Partition struct {
	Number    int
	Owner     string // identifies the lease; no other lease may have the same
	Floor     uint64 // sequence of the last acknowledged input
	Delivered uint64 // sequence of the last input that was delivered before the lease
	Loose     bool   // whether a worker without commit markers has owned the partition since the last marker

	// IsStored reports whether the input stream still has the partition's input with a sequence.
	IsStored func(ctx context.Context, sequence uint64) bool
}

// IsBeyond reports whether inputs are acknowledged that the markers of c don't cover, because the result stream has lost its last messages,
// or because a worker without commit markers had the partition. A purge moves the floor of a consumer without pending messages, so
// the floor alone doesn't prove an acknowledgement.
func (p *Partition) IsBeyond(ctx context.Context, c interface {
	Found() (store.Position, bool)
	Beyond() uint64
}) bool {
	_, ok := c.Found()
	return ok && c.Beyond() < p.Floor && p.IsStored(ctx, p.Floor)
}

// OpenCommits stores the fences that exclude earlier leases on p, and returns the Commits of a new lease. It waits until the
// result stream exists. It returns nil, nil with shared delivery, if ExactlyOnce is off, or if the result stream supports no
// commit markers. If only the stream of dead letters supports no markers, dead letters have ids but no markers.
func OpenCommits(ctx context.Context, w *Writer, p Partition) (*Commits, error) {
	if !w.o.Exclusive || w.o.ExactlyOnce == topology.Off {
		return nil, nil
	}
	stored, err := awaitResultStream(ctx, w)
	if err != nil {
		return nil, err
	}
	way := topology.Commits(w.way.Load())
	if way == topology.NoCommits {
		return nil, nil
	}
	inputs, err := w.js.Stream(ctx, w.o.Stream)
	if err != nil {
		return nil, fmt.Errorf("look up the input stream %q: %w", w.o.Stream, err)
	}
	o := store.ChainOptions{
		Owner: p.Owner, Created: inputs.CachedInfo().Created, Way: chainWay(way),
		Start: store.Position{Sequence: p.Floor}, LookUp: p.Delivered, Loose: p.Loose,
	}
	c := stored.CachedInfo().Config
	stream := commitStream(w, c, p.Number)
	if w.stateful >= 0 {
		o.Entry = func(behind uint64, state *store.State, entry []byte) *nats.Msg {
			return statelog.Message(stream.Subject, c.AllowMsgTTL, behind, state, entry)
		}
	}
	dead, kept, err := letterStore(ctx, w, p.Number)
	if err != nil {
		return nil, err
	}
	o.Again = waitsFor(w, p.Number, dead)
	results, letters, err := store.OpenChains(ctx, o, stream, dead)
	if err != nil {
		return nil, err
	}
	commits := NewCommits(w, results, letters)
	commits.kind, commits.resultAge.max, commits.letterAge.max = way, c.MaxAge, kept
	return commits, nil
}

// awaitResultStream waits until the result stream exists, and returns it.
func awaitResultStream(ctx context.Context, w *Writer) (jetstream.Stream, error) {
	for attempt := 1; ; attempt++ {
		asked := time.Now()
		stored, err := w.js.Stream(ctx, w.o.ResultStream)
		switch {
		case err == nil:
			w.sawStream(stored.CachedInfo(), asked)
			return stored, nil
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return nil, fmt.Errorf("look up the result stream %q: %w", w.o.ResultStream, err)
		}
		warnUnstored(w, attempt, err)
		if !w.awaitRetry(ctx, attempt) {
			return nil, ctx.Err()
		}
	}
}

// lookEvery is the number of attempts to store a marker between two queries of the stream's settings.
const lookEvery = 5

// waitsFor returns the function store.ChainOptions.Again for a partition. letters is the stream of its dead letters, or nil. The
// function returns true for a retry while a stream is full, missing or unreachable. It returns false to end the lease if the
// stream no longer supports commit markers. The next lease stores without markers.
func waitsFor(w *Writer, partition int, letters store.Markers) func(context.Context, store.Markers, int, error) bool {
	return func(ctx context.Context, s store.Markers, attempts int, err error) bool {
		stream, commitsOf := w.o.ResultStream, w.o.CommitsOf
		if s == letters {
			stream, commitsOf = w.clearance.letters, w.o.LetterCommitsOf
			w.o.Log.Warn(lettersNotStored, "partition", partition, "attempt", attempts, "stream", stream, "error", err)
		} else {
			warnUnstored(w, attempts, err)
		}
		if attempts%lookEvery != 0 || !errors.Is(err, jetstream.ErrNoStreamResponse) && !store.Unstorable(err) {
			return true
		}
		stored, err := w.js.Stream(ctx, stream)
		if err != nil {
			return true
		}
		way, _, _ := commitsOf(stored.CachedInfo().Config, w.nc.ConnectedServerVersion())
		return way != topology.NoCommits
	}
}

func warnUnstored(w *Writer, attempt int, err error) {
	w.o.Log.Warn(notStored, "attempt", attempt, "stream", w.o.ResultStream, "error", err)
}

// letterStore returns the stream of dead letters and its MaxAge. It returns nil, 0, nil if that stream supports no commit markers,
// or is also the result stream.
func letterStore(ctx context.Context, w *Writer, partition int) (s store.Markers, kept time.Duration, err error) {
	if !w.clearance.apart {
		return nil, 0, nil
	}
	stream, err := w.js.Stream(ctx, w.clearance.letters)
	if err != nil {
		return nil, 0, fmt.Errorf("look up the stream of dead letters %q: %w", w.clearance.letters, err)
	}
	c := stream.CachedInfo().Config
	if way, _, _ := w.o.LetterCommitsOf(c, w.nc.ConnectedServerVersion()); way != topology.AtomicCommits {
		return nil, 0, nil
	}
	return commitStream(w, c, partition), c.MaxAge, nil
}

// commitStream returns the stream with settings c as the store of a partition's commit markers.
func commitStream(w *Writer, c jetstream.StreamConfig, partition int) *store.Stream {
	return &store.Stream{
		Name: c.Name, Subject: commitSubject(w, c.Name, partition),
		Rollup: c.Retention == jetstream.WorkQueuePolicy && c.AllowRollup, Publisher: w.singles, JS: w.js,
	}
}

// commitSubject returns the subject of a partition's commit markers in a stream.
func commitSubject(w *Writer, stream string, partition int) string {
	return topology.CommitSubject(w.o.CommitPrefix, stream, w.o.Stream, w.o.Consumer, partition)
}

// LastMarker returns the last commit marker of a partition in the result stream.
func LastMarker(ctx context.Context, w *Writer, partition int) (store.StoredMarker, error) {
	s := store.Stream{Name: w.o.ResultStream, Subject: commitSubject(w, w.o.ResultStream, partition), JS: w.js}
	return s.Last(ctx)
}

// LastState returns the newest state that markers of this deployment's partitions describe, whatever the number of partitions was. It returns
// nil if there is none, or only of an input stream that was deleted since.
func LastState(ctx context.Context, w *Writer) (*store.State, error) {
	inputs, err := w.js.Stream(ctx, w.o.Stream)
	if err != nil {
		return nil, fmt.Errorf("look up the input stream %q: %w", w.o.Stream, err)
	}
	stream, err := w.js.Stream(ctx, w.o.ResultStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up the result stream %q: %w", w.o.ResultStream, err)
	}
	first := commitSubject(w, w.o.ResultStream, 0)
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(first[:strings.LastIndexByte(first, '.')]+".*"))
	if err != nil {
		return nil, fmt.Errorf("list the commit markers in stream %q: %w", w.o.ResultStream, err)
	}
	newest := store.StoredMarker{}
	for subject := range info.State.Subjects {
		s := store.Stream{Name: w.o.ResultStream, Subject: subject, JS: w.js}
		last, err := s.Last(ctx)
		if err != nil {
			return nil, err
		}
		if last.State != nil && last.Created == inputs.CachedInfo().Created.UnixNano() && last.At > newest.At {
			newest = last
		}
	}
	return newest.State, nil
}

func chainWay(way topology.Commits) store.Way {
	if way == topology.FastCommits {
		return store.Fast
	}
	return store.Atomic
}
