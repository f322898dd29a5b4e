package store

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
	found, _, err := ask(ctx, js, stream)
	return found, err
}

// ask is like Ask. It also returns the stream's info, or nil if the stream doesn't exist.
func ask(ctx context.Context, js jetstream.JetStream, stream string) (Capability, *jetstream.StreamInfo, error) {
	s, err := js.Stream(ctx, stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return Capability{Missing: true, Found: fmt.Sprintf("one publish a result: there is no stream %q", stream), Advice: "create it"}, nil, nil
	case err != nil:
		return Capability{}, nil, fmt.Errorf("check whether stream %q accepts batches: %w: check the account's permissions on the JetStream API", stream, err)
	}
	info := s.CachedInfo()
	return judgeStream(info.Config, js.Conn().ConnectedServerVersion()), info, nil
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

// FollowOptions configures Follow. Several goroutines call its functions, which must not block.
type FollowOptions struct {
	Stream  string           // the stream that stores the messages
	Changed func(Capability) // called after a query that finds a changed capability, and by Follow

	// Trouble is called with the error of a failed batch, unless the messages or their ctx caused the error.
	Trouble func(error)

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

	// maxMessages and maxBytes bound one batch. Together with maxAtOnce, they bound a worker's messages in the stream's queue
	// at the server. The server drops messages beyond 100,000 messages or 128 MiB in that queue. If a batch fails because of a
	// dropped message, its messages are published one by one.
	maxMessages = 4096
	maxBytes    = 4 << 20

	// batchesAtOnce is the maximum number of batches in flight per connection, and maxAtOnce the maximum over all
	// connections.
	batchesAtOnce = 8
	maxAtOnce     = 24
)

// Following publishes fast batches while its stream accepts them, and single messages otherwise. It queries the stream at
// intervals and after a failed batch, because the stream may have been changed or recreated.
//
// If the server doesn't confirm a whole batch, Following publishes its messages again one by one, and the server drops duplicates
// by their ids. Answer.Duplicate is never set for a batch's messages, because the server doesn't report duplicates in a batch.
type Following struct {
	singles *Windowed     // also publishes the messages of failed batches
	batches chan struct{} // a token for each batch in flight
	o       FollowOptions

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

// Follow queries the stream, and returns a publisher over the connections of singles. It fails if the query fails. A missing stream
// is not an error.
func Follow(ctx context.Context, singles *Windowed, o FollowOptions) (*Following, error) {
	f := newFollowing(singles, o)
	return f, f.ask(ctx)
}

func newFollowing(singles *Windowed, o FollowOptions) *Following {
	f := &Following{
		singles: singles, batches: make(chan struct{}, min(batchesAtOnce*len(singles.conns), maxAtOnce)), o: o,
		every: askEvery, doubtful: askDoubtful,
	}
	f.last.Store(&finding{})
	return f
}

// Publish implements Publisher.
func (f *Following) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	f.Refresh(ctx, false)
	if f.doubt.Load() || !f.last.Load().capability.Batches {
		return f.singles.Publish(ctx, msgs, dst)
	}
	return f.publishBatches(ctx, msgs, dst)
}

func (f *Following) publishBatches(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	for len(msgs) > 0 {
		n := cut(msgs)
		dst = f.publishBatch(ctx, msgs[:n], dst)
		msgs = msgs[n:]
	}
	return dst
}

// cut returns the number of messages in the next batch, which is at least one.
func cut(msgs []*nats.Msg) int {
	bytes := 0
	for i, m := range msgs {
		bytes += len(m.Data)
		if i > 0 && (i == maxMessages || bytes > maxBytes) {
			return i
		}
	}
	return len(msgs)
}

// publishBatch stores msgs, which must fit into one batch, and appends the answers to dst.
func (f *Following) publishBatch(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	if len(msgs) > 1 {
		err := f.storeBatch(ctx, msgs)
		if err == nil {
			return append(dst, make([]Answer, len(msgs))...)
		}
		if ctx.Err() == nil && !errors.Is(err, errKnown) && !Unstorable(err) {
			f.doubt.Store(true)
			f.o.Trouble(err)
		}
	}
	return f.singles.Publish(ctx, msgs, dst)
}

// storeBatch stores msgs as one batch. It returns nil only if the server has confirmed all messages.
func (f *Following) storeBatch(ctx context.Context, msgs []*nats.Msg) error {
	select {
	case f.batches <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-f.batches }()
	_, err := f.singles.StoreFast(ctx, FastBatch{Messages: msgs})
	return err
}

// Refresh queries the stream if the last query is older than askEvery, or than askDoubtful after a doubt. Only one of several
// concurrent callers makes the query. If doubt is set, Following publishes no batches until the next query.
func (f *Following) Refresh(ctx context.Context, doubt bool) {
	if doubt {
		f.doubt.Store(true)
	}
	every := f.every
	if f.doubt.Load() {
		every = f.doubtful
	}
	if time.Since(f.last.Load().at) >= every && f.asking.TryLock() {
		defer f.asking.Unlock()
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		_ = f.ask(ctx) // sets doubt
	}
}

// ask queries the stream. If the query fails, it keeps the last known capability.
func (f *Following) ask(ctx context.Context) error {
	f.doubt.Store(false) // a batch that fails during the query sets doubt again
	before, asked := f.last.Load().capability, time.Now()
	found, info, err := ask(ctx, f.singles.next().js, f.o.Stream)
	if err != nil {
		found = before
	}
	if info != nil {
		f.o.Read(info, asked)
	} else {
		f.doubt.Store(true)
	}
	f.last.Store(&finding{at: time.Now(), capability: found})
	if found != before {
		f.o.Changed(found)
	}
	return err
}
