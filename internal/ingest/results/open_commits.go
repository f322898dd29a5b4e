package results

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/topology"
)

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
	c := NewCommits(results, letters, w.o.ResultPrefix)
	c.w, c.way, c.resultAge.max, c.letterAge.max = w, way, stored.CachedInfo().Config.MaxAge, kept
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
		way, _, _ := commitsOf(stored.CachedInfo().Config, w.conns[0].ConnectedServerVersion())
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
	if way, _, _ := w.o.LetterCommitsOf(c, w.conns[0].ConnectedServerVersion()); way != topology.AtomicCommits {
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
