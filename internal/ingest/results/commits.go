package results

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/topology"
)

// Commits stores the results and dead letters of one lease on a partition exactly once (adr/0046). One goroutine may call Settled
// and Keep while another one stores results.
type Commits struct {
	*Writer
	kind topology.Commits // kind of commits at the start of the lease

	earlier   commit.Letters    // dead letters stored by earlier leases
	leftovers *commit.Leftovers // results stored by earlier leases after their last marker

	busy    chan struct{} // holds a token during requests of the chains
	results *commit.Chain
	letters *commit.Chain   // nil if dead letters have ids but no markers
	settled commit.Position // position up to which all results are stored

	resultAge, letterAge markerAge
}

type markerAge struct {
	max    time.Duration // the stream's MaxAge; 0 means no limit
	stored time.Time     // time of the lease's last marker, or of its start
}

// isDue reports whether the marker must be stored again, which is after a quarter of max.
func (a *markerAge) isDue() bool { return a.max > 0 && time.Since(a.stored) >= a.max/4 }

// NewCommits returns a Commits of w that stores to the chains results and letters. letters may be nil.
func NewCommits(w *Writer, results, letters *commit.Chain) *Commits {
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
func (c *Commits) Found() (p commit.Position, ok bool) { return c.results.Found() }

// Beyond returns the sequence of the last input for which earlier leases may have stored a message. It may exceed the position
// that Found returns.
func (c *Commits) Beyond() uint64 {
	last := c.results.Beyond()
	for _, in := range c.earlier {
		last = max(last, in.Sequence)
	}
	return last
}

func position(d *inflight.Delivery) commit.Position {
	return commit.Position{Sequence: d.Sequence, Stored: d.Stored.UnixNano()}
}

// Settled reports whether an earlier lease has stored the result or the dead letter of d. It sets d.Parts to the ids of the stored
// parts of an incomplete result.
func (c *Commits) Settled(ctx context.Context, d *inflight.Delivery) (bool, error) {
	in := position(d)
	if at, ok := c.results.Found(); ok && at.Covers(in) || c.earlier.Has(commit.Letter{Input: in, Record: commit.WholeMessage}) {
		return true, nil
	}
	done, parts, err := c.leftovers.Find(ctx, in, topology.MapSubject(c.o.ResultPrefix, d.Subject), MessageID(d))
	d.Parts = parts
	return done, err
}

// commit stores msgs with a marker at position at. If checked is set, an error has the server's reason. stored reports for each
// message whether it is known to be stored.
func (c *Commits) commit(ctx context.Context, msgs []*nats.Msg, at commit.Position, checked bool) (stored []bool, err error) {
	defer c.lock()()
	for _, m := range msgs {
		c.ownID(m)
	}
	write := c.results.Commit
	if checked {
		write = c.results.CommitChecked
	}
	if stored, err = write(ctx, msgs, at); err != nil {
		return stored, err
	}
	c.settled, c.resultAge.stored = at, time.Now()
	return stored, c.keepLetters(ctx)
}

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
		if _, err := c.results.Commit(ctx, nil, c.settled); commit.Over(err) {
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
	if err := c.letters.CommitLetters(ctx, nil, nil, c.settled); commit.Over(err) {
		return err
	}
	return nil // after any other error, the chain has stored a fence
}

// ownID moves the id of m from the server's id header to commit.HeaderID, unless Options.ResultIDs is set.
func (c *Commits) ownID(m *nats.Msg) {
	if !c.o.ResultIDs {
		m.Header[commit.HeaderID] = m.Header[jetstream.MsgIDHeader]
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
	o := commit.Options{
		Owner: p.Owner, Created: inputs.CachedInfo().Created, Way: chainWay(way),
		Start: commit.Position{Sequence: p.Floor}, LookUp: p.Delivered, Loose: p.Loose,
	}
	dead, kept, err := letterStore(ctx, w, p.Number)
	if err != nil {
		return nil, err
	}
	o.Again = waitsFor(w, p.Number, dead)
	results, letters, err := commit.Open(ctx, o, commitStream(w, stored.CachedInfo().Config, p.Number), dead)
	if err != nil {
		return nil, err
	}
	c := NewCommits(w, results, letters)
	c.kind, c.resultAge.max, c.letterAge.max = way, stored.CachedInfo().Config.MaxAge, kept
	return c, nil
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

// waitsFor returns the function commit.Options.Again for a partition. letters is the stream of its dead letters, or nil. The
// function returns true for a retry while a stream is full, missing or unreachable. It returns false to end the lease if the
// stream no longer supports commit markers. The next lease stores without markers.
func waitsFor(w *Writer, partition int, letters commit.Store) func(context.Context, commit.Store, int, error) bool {
	return func(ctx context.Context, s commit.Store, attempts int, err error) bool {
		stream, commitsOf := w.o.ResultStream, w.o.CommitsOf
		if s == letters {
			stream, commitsOf = w.clearance.letters, w.o.LetterCommitsOf
			w.o.Log.Warn(lettersNotStored, "partition", partition, "attempt", attempts, "stream", stream, "error", err)
		} else {
			warnUnstored(w, attempts, err)
		}
		if attempts%lookEvery != 0 || !errors.Is(err, jetstream.ErrNoStreamResponse) && !publisher.Unstorable(err) {
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
func letterStore(ctx context.Context, w *Writer, partition int) (s commit.Store, kept time.Duration, err error) {
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
func commitStream(w *Writer, c jetstream.StreamConfig, partition int) *commit.Stream {
	return &commit.Stream{
		Name: c.Name, Subject: topology.CommitSubject(w.o.CommitPrefix, c.Name, w.o.Stream, w.o.Consumer, partition),
		Rollup: c.Retention == jetstream.WorkQueuePolicy && c.AllowRollup, Publisher: w.singles, JS: w.js,
	}
}

func chainWay(way topology.Commits) commit.Way {
	if way == topology.FastCommits {
		return commit.Fast
	}
	return commit.Atomic
}
