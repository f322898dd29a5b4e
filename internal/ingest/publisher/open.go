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
)

// Capability is whether a stream takes batches, in words for a log and for who may change it.
type Capability struct {
	Batches bool   // one commit a batch
	Missing bool   // the stream is not there
	Found   string // why, or why not
	Advice  string // what to do to have batches; empty if it takes them
}

func (c Capability) String() string {
	if c.Advice == "" {
		return c.Found
	}
	return c.Found + ": " + c.Advice
}

// The first release of the server that publishes in fast batches.
const (
	batchesMajor = 2
	batchesMinor = 14
)

// ServerBatches says whether a server of that version can let streams take batches.
func ServerBatches(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > batchesMajor || major == batchesMajor && minor >= batchesMinor
}

// Ask finds out whether a stream takes batches. It fails when the server does not tell; a stream that is not there
// is no failure.
func Ask(ctx context.Context, nc *nats.Conn, stream string) (Capability, error) {
	return ask(ctx, nc, stream, nil)
}

// ask is Ask that tells read, which may be nil, of the stream as it is and of when that was asked.
func ask(ctx context.Context, nc *nats.Conn, stream string, read func(*jetstream.StreamInfo, time.Time)) (Capability, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return Capability{}, err
	}
	asked := time.Now()
	s, err := js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return Capability{Missing: true, Found: fmt.Sprintf("one publish a result: there is no stream %q", stream), Advice: "create it"}, nil
	}
	if err != nil {
		return Capability{}, fmt.Errorf("asking whether stream %q takes batches: %w: check the account's permissions on the JetStream API", stream, err)
	}
	if read != nil {
		read(s.CachedInfo(), asked)
	}
	return judgeStream(s.CachedInfo().Config, nc.ConnectedServerVersion()), nil
}

// judgeStream says what a stream's settings mean for batches.
func judgeStream(c jetstream.StreamConfig, version string) Capability {
	switch {
	case c.AllowBatchPublish:
		return Capability{Batches: true, Found: "one commit a batch: the stream allows batch publish"}
	case !ServerBatches(version):
		return Capability{Found: "one publish a result: server " + version + " cannot publish in batches",
			Advice: fmt.Sprintf("upgrade it to %d.%d or later and set allow_batched on the stream", batchesMajor, batchesMinor)}
	}
	return Capability{Found: "one publish a result: the stream does not allow batch publish",
		Advice: "set allow_batched on the stream (not allow_atomic, which is what the --allow-batch of the nats command may set)"}
}

// Options says how Open follows a stream. Functions may be nil; they are called from several goroutines and must
// not block.
type Options struct {
	Stream  string           // that stores what is put
	Changed func(Capability) // told when what was found at the last question has changed
	Trouble func(error)      // told why a batch was not confirmed; its messages are published one by one

	Read func(info *jetstream.StreamInfo, asked time.Time) // told of the stream whenever it was asked, and when that began
}

const (
	// askEvery is how often the stream is asked again while all is well: somebody may have changed it.
	askEvery = 30 * time.Second

	// askDoubtful is how often it is asked while it is missing, and after a batch that was not confirmed. Until the
	// answer there are no batches.
	askDoubtful = time.Second

	// askPatience bounds one question.
	askPatience = 2 * time.Second
)

// Following stores in batches while its stream takes them, and one by one otherwise. It asks the stream now and
// then, and when a batch fails, since the stream may have been changed or made anew.
type Following struct {
	singles *Windowed
	batched *Batched
	o       Options

	every, doubtful time.Duration // askEvery and askDoubtful
	asking          sync.Mutex    // held by who asks; nobody waits for it
	doubt           atomic.Bool   // the last question had no good answer, or a batch was not confirmed since
	last            atomic.Pointer[finding]
}

// finding is the answer to a question.
type finding struct {
	at         time.Time
	capability Capability
}

// Open asks the server and the stream what they can do, and makes a store over the connections of singles that keeps
// to it. It says what it has found. It fails when the server does not tell.
func Open(ctx context.Context, singles *Windowed, o Options) (*Following, Capability, error) {
	f := &Following{singles: singles, o: o, every: askEvery, doubtful: askDoubtful}
	f.batched = NewBatched(singles, f.failed)
	found, err := ask(ctx, singles.next().nc, o.Stream, o.Read)
	if err != nil {
		return nil, Capability{}, err
	}
	f.doubt.Store(found.Missing)
	f.last.Store(&finding{at: time.Now(), capability: found})
	return f, found, nil
}

// Publish implements Store.
func (f *Following) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	return f.choose(ctx).Publish(ctx, msgs, dst)
}

// Singles is the store that publishes one by one, over the same connections.
func (f *Following) Singles() *Windowed { return f.singles }

// choose is the store to use now. One of those who need it asks when it is time to.
func (f *Following) choose(ctx context.Context) Publisher {
	every := f.every
	if f.doubt.Load() {
		every = f.doubtful
	}
	if time.Since(f.last.Load().at) >= every && f.asking.TryLock() {
		f.ask(ctx)
		f.asking.Unlock()
	}
	if f.doubt.Load() || !f.last.Load().capability.Batches {
		return f.singles
	}
	return f.batched
}

// ask asks the stream. Without an answer what was known stays.
func (f *Following) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	f.doubt.Store(false) // a batch that fails from now on is for the next question
	before := f.last.Load().capability
	found, err := ask(ctx, f.singles.next().nc, f.o.Stream, f.o.Read)
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

// failed notes that a batch was not confirmed.
func (f *Following) failed(err error) {
	f.doubt.Store(true)
	if f.o.Trouble != nil {
		f.o.Trouble(err)
	}
}
