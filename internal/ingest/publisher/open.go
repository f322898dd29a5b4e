package publisher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
)

// Capability describes whether a stream accepts fast batches, with texts for the log and for the stream's administrator.
type Capability struct {
	Batches bool   // whether the stream accepts fast batches
	Missing bool   // whether the stream doesn't exist
	Found   string // reason for the value of Batches
	Advice  string // how to enable fast batches; empty if the stream accepts them
}

func (c Capability) String() string {
	if c.Advice == "" {
		return c.Found
	}
	return c.Found + ": " + c.Advice
}

// firstFast is the first server release that supports fast batches.
var firstFast = jsapi.Release{Major: 2, Minor: 14}

// ServerBatches reports whether a server with the given version supports fast batches.
func ServerBatches(version string) bool { return firstFast.In(version) }

// Ask queries whether a stream accepts fast batches. It sets Missing if the stream doesn't exist, and returns an error if the
// query fails.
func Ask(ctx context.Context, js jetstream.JetStream, stream string) (Capability, error) {
	return ask(ctx, js, stream, nil)
}

// ask is like Ask. It also calls read, unless nil, with the stream's info and the time of the query.
func ask(ctx context.Context, js jetstream.JetStream, stream string, read func(*jetstream.StreamInfo, time.Time)) (Capability, error) {
	asked := time.Now()
	s, err := js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return Capability{Missing: true, Found: fmt.Sprintf("one publish a result: there is no stream %q", stream), Advice: "create it"}, nil
	}
	if err != nil {
		return Capability{}, fmt.Errorf("check whether stream %q accepts batches: %w: check the account's permissions on the JetStream API", stream, err)
	}
	if read != nil {
		read(s.CachedInfo(), asked)
	}
	return judgeStream(s.CachedInfo().Config, js.Conn().ConnectedServerVersion()), nil
}

// judgeStream derives the capability from a stream's settings.
func judgeStream(c jetstream.StreamConfig, version string) Capability {
	switch {
	case c.AllowBatchPublish:
		return Capability{Batches: true, Found: "one commit a batch: the stream allows batch publish"}
	case !ServerBatches(version):
		return Capability{Found: "one publish a result: server " + version + " cannot publish in batches",
			Advice: fmt.Sprintf("upgrade it to %s or later and set allow_batched on the stream (nats stream edit %s --allow-fast)", firstFast, c.Name)}
	}
	return Capability{Found: "one publish a result: the stream does not allow batch publish",
		Advice: "set allow_batched on the stream (nats stream edit " + c.Name + " --allow-fast; not allow_atomic, which --allow-batch sets)"}
}

// Options configures Open. Its functions may be nil. Several goroutines call them, and they must not block.
type Options struct {
	Stream  string           // the stream that stores the messages
	Changed func(Capability) // called after a query that finds a changed capability
	Trouble func(error)      // called with the error of a failed batch, whose messages are then published one by one

	Read func(info *jetstream.StreamInfo, asked time.Time) // called after each query with the stream's info and the time of the query
}

const (
	// askEvery is the normal interval between queries of the stream's settings.
	askEvery = 30 * time.Second

	// askDoubtful is the interval while the stream is missing, after a failed query and after a failed batch. Following publishes
	// no batches until the next successful query.
	askDoubtful = time.Second

	// askPatience is the time limit for one query.
	askPatience = 2 * time.Second
)

// Following publishes fast batches while its stream accepts them, and single messages otherwise. It queries the stream at
// intervals and after a failed batch, because the stream may have been changed or recreated.
type Following struct {
	singles *Windowed
	batched *Batched
	o       Options

	every, doubtful time.Duration // askEvery and askDoubtful
	asking          sync.Mutex    // held during a query; goroutines only try to lock it
	doubt           atomic.Bool   // whether the last query failed or found no stream, or a batch failed since
	last            atomic.Pointer[finding]
}

// finding is the result of a query.
type finding struct {
	at         time.Time
	capability Capability
}

// Open queries the stream, and returns a publisher over the connections of singles together with the stream's capability. It fails
// if the query fails. A missing stream is not an error.
func Open(ctx context.Context, singles *Windowed, o Options) (*Following, Capability, error) {
	f := &Following{singles: singles, o: o, every: askEvery, doubtful: askDoubtful}
	f.batched = NewBatched(singles, f.failed)
	found, err := ask(ctx, singles.next().js, o.Stream, o.Read)
	if err != nil {
		return nil, Capability{}, err
	}
	f.doubt.Store(found.Missing)
	f.last.Store(&finding{at: time.Now(), capability: found})
	return f, found, nil
}

// Publish implements Publisher.
func (f *Following) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	return f.choose(ctx).Publish(ctx, msgs, dst)
}

// Singles returns the publisher of single messages over the same connections.
func (f *Following) Singles() *Windowed { return f.singles }

// choose calls Refresh, and returns the publisher for the current capability.
func (f *Following) choose(ctx context.Context) Publisher {
	f.Refresh(ctx)
	if f.doubt.Load() || !f.last.Load().capability.Batches {
		return f.singles
	}
	return f.batched
}

// Refresh queries the stream if the last query is older than askEvery, or than askDoubtful after Doubt. Only one of several
// concurrent callers makes the query.
func (f *Following) Refresh(ctx context.Context) {
	every := f.every
	if f.doubt.Load() {
		every = f.doubtful
	}
	if time.Since(f.last.Load().at) >= every && f.asking.TryLock() {
		f.ask(ctx)
		f.asking.Unlock()
	}
}

// Doubt shortens the time until the next query to askDoubtful. Following publishes no batches until then.
func (f *Following) Doubt() { f.doubt.Store(true) }

// ask queries the stream. If the query fails, it keeps the last known capability.
func (f *Following) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	f.doubt.Store(false) // a batch that fails during the query sets doubt again
	before := f.last.Load().capability
	found, err := ask(ctx, f.singles.next().js, f.o.Stream, f.o.Read)
	if err != nil {
		found = before
	}
	if err != nil || found.Missing {
		f.doubt.Store(true)
	}
	f.last.Store(&finding{at: time.Now(), capability: found})
	if found != before && f.o.Changed != nil {
		f.o.Changed(found)
	}
}

// failed records that a batch failed, and calls Options.Trouble.
func (f *Following) failed(err error) {
	f.doubt.Store(true)
	if f.o.Trouble != nil {
		f.o.Trouble(err)
	}
}
