package results

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
)

// Partition describes a partition to OpenCommits.
type Partition struct {
	Number    int
	Owner     string // identifies the lease; unique among all leases
	Floor     uint64 // sequence of the last acknowledged input
	Delivered uint64 // sequence of the last input that was delivered before the lease
	Loose     bool   // whether a worker without commit markers has owned the partition since the last marker

	// IsStored reports whether the input stream still has the partition's input with a sequence.
	IsStored func(ctx context.Context, sequence uint64) bool
}

// IsBeyond reports whether inputs are acknowledged that the markers of c don't cover. Either the result stream lost its
// last messages, or a worker without commit markers owned the partition. A purge moves the floor of a consumer without
// pending messages, so the floor alone doesn't prove an acknowledgement.
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
		Name: c.Name, Subject: commitSubject(w.o.Topology, c.Name, partition),
		Rollup: c.Retention == jetstream.WorkQueuePolicy && c.AllowRollup, Publisher: w.singles, JS: w.js,
	}
}

// commitSubject returns the subject of a partition's commit markers in a stream.
func commitSubject(t topology.Topology, stream string, partition int) string {
	return topology.CommitSubject(t.CommitPrefix, stream, t.Stream, t.Consumer, partition)
}

// LastMarker returns the last commit marker of a partition in the result stream.
func LastMarker(ctx context.Context, w *Writer, partition int) (store.StoredMarker, error) {
	s := store.Stream{Name: w.o.ResultStream, Subject: commitSubject(w.o.Topology, w.o.ResultStream, partition), JS: w.js}
	return s.Last(ctx)
}

// LastState returns the newest state that markers of this deployment's partitions describe, even with another number of partitions. It
// returns nil if there is no such state, or if the state belongs to a deleted input stream. t is the deployment.
func LastState(ctx context.Context, js jetstream.JetStream, t topology.Topology) (*store.State, error) {
	inputs, err := js.Stream(ctx, t.Stream)
	if err != nil {
		return nil, fmt.Errorf("look up the input stream %q: %w", t.Stream, err)
	}
	stream, err := js.Stream(ctx, t.ResultStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up the result stream %q: %w", t.ResultStream, err)
	}
	first := commitSubject(t, t.ResultStream, 0)
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(first[:strings.LastIndexByte(first, '.')]+".*"))
	if err != nil {
		return nil, fmt.Errorf("list the commit markers in stream %q: %w", t.ResultStream, err)
	}
	newest := store.StoredMarker{}
	for subject := range info.State.Subjects {
		s := store.Stream{Name: t.ResultStream, Subject: subject, JS: js}
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
