package faults

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

const (
	// lead is the maximum number of stored inputs without a result. It keeps any number of workers busy, and the inputs
	// are processed soon after the fault ends.
	lead = 8000

	// chunk is the number of inputs that are published at once.
	chunk = 500

	// endless is the number of inputs of a feed that runs until it is stopped.
	endless = 1 << 40

	// pause and shortPause are the minimum times between two chunks of an endless feed, in the full form and in the short
	// form. They allow 5,000 and 2,000 inputs a second. These rates keep long faults from filling the disk of a fast
	// machine. The short form leaves processors to other tests. shortPause also applies to inputs with many records, for
	// which the audit computes all results one after the other.
	pause, shortPause = 100 * time.Millisecond, 250 * time.Millisecond
)

// feed publishes inputs and retries each input until the server has stored it. It publishes a given number at full
// speed, or an endless number with pauses. Inputs have an ID, so an input that is published again is stored once.
type feed struct {
	r      *rig
	id     int // number of the feed within its rig
	js     jetstream.JetStream
	n      int // number of inputs
	input  func(i int) *nats.Msg
	stored atomic.Int64
	// The next two fields are valid once done is closed.
	refused int   // number of failed attempts to publish an input
	refusal error // the last error
	stop    chan struct{}
	done    chan struct{}
	err     error // valid once done is closed
}

// feed starts to publish n inputs.
func (r *rig) feed(n int, input func(i int) *nats.Msg) *feed {
	r.t.Helper()
	js, err := jetstream.New(r.connect(), jetstream.WithPublishAsyncMaxPending(2*chunk), jetstream.WithPublishAsyncTimeout(askTimeout))
	if err != nil {
		r.t.Fatal(err)
	}
	r.feeds++
	f := &feed{r: r, id: r.feeds, js: js, n: n, input: input, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.err = f.run()
	}()
	return f
}

// finish stops an endless feed, and returns when all inputs that it has begun to publish are stored.
func (f *feed) finish() {
	f.r.t.Helper()
	close(f.stop)
	f.wait()
}

func (f *feed) wait() {
	f.r.t.Helper()
	<-f.done // run can't block, because each of its steps has a time limit
	if f.err != nil {
		f.r.t.Fatal(f.err)
	}
}

func (f *feed) run() error {
	for next := 0; next < f.n; {
		if !f.awaitLead() {
			return nil
		}
		again := time.After(f.pause())
		end := min(next+chunk, f.n)
		if err := f.store(next, end); err != nil {
			return err
		}
		next = end
		<-again
	}
	return nil
}

// pause returns the minimum time between the starts of two chunks.
func (f *feed) pause() time.Duration {
	switch {
	case f.n != endless:
		return 0
	case isFull() && f.r.history == nil:
		return pause
	}
	return shortPause
}

// awaitLead waits until the number of inputs without a result is below the lead. It returns false if the feed has been stopped.
func (f *feed) awaitLead() bool {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return false
		default:
		}
		stored := int(f.stored.Load())
		if mayFeed := f.n != endless || f.r.fed.Load() < f.r.max.Load(); mayFeed && (stored+chunk <= f.r.lead || stored-f.r.settled() < f.r.lead) {
			return true
		}
		<-tick.C
	}
}

// store returns when the inputs from first up to, but not including, end are stored.
func (f *feed) store(first, end int) error {
	left := make([]int, 0, end-first)
	for i := first; i < end; i++ {
		left = append(left, i)
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var err error
	for deadline := time.Now().Add(natstest.Patience); len(left) > 0; <-tick.C {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d inputs could not be stored within %v: %w", len(left), natstest.Patience, err)
		}
		left, err = f.tryStore(left)
		if len(left) == 0 {
			break
		}
	}
	f.stored.Add(int64(end - first))
	f.r.fed.Add(int64(end - first))
	return nil
}

// tryStore publishes inputs once, and returns the inputs that the server has not confirmed.
func (f *feed) tryStore(inputs []int) (left []int, last error) {
	acks := make([]jetstream.PubAckFuture, len(inputs))
	for n, i := range inputs {
		m := f.input(i)
		if m.Header == nil {
			m.Header = nats.Header{}
		}
		m.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("feed:%d:%d", f.id, i))
		acks[n], last = f.js.PublishMsgAsync(m)
	}
	for n, ack := range acks {
		if ack == nil {
			left = append(left, inputs[n])
			continue
		}
		select { // the client limits the wait for the server
		case <-ack.Ok():
		case last = <-ack.Err():
			left = append(left, inputs[n])
		}
	}
	if last != nil {
		f.refused, f.refusal = f.refused+len(left), last
	}
	return left, last
}

// load describes the inputs that a test feeds to workers.
type load struct {
	input   func(i int) *nats.Msg
	between int // maximum number of results between two faults
}

// ordinary returns the load of most tests: inputs with one payload each.
func (r *rig) ordinary() load { return load{input: r.inputs(), between: 2000} }

// inputs returns a function that creates the i-th input from a seed. Inputs are mostly small, sometimes large, on a few
// subjects. Their bytes are random, so no result fits another input.
func (r *rig) inputs() func(i int) *nats.Msg {
	return r.inputsOf(func(rng *rand.Rand) int {
		if rng.IntN(100) == 0 {
			return rng.IntN(64 << 10)
		}
		return rng.IntN(1 << 10)
	})
}

// inputsOf does the same as inputs, but size draws the sizes.
func (r *rig) inputsOf(size func(rng *rand.Rand) int) func(i int) *nats.Msg {
	return func(i int) *nats.Msg {
		var key [32]byte
		binary.LittleEndian.PutUint64(key[:], r.seed)
		binary.LittleEndian.PutUint64(key[8:], uint64(i))
		source := rand.NewChaCha8(key)
		payload := make([]byte, size(rand.New(source)))
		_, _ = source.Read(payload) // never fails
		return &nats.Msg{
			Subject: fmt.Sprintf("ingest.web.%d", i%7), Data: payload, Header: nats.Header{"Input": {fmt.Sprint(i)}},
		}
	}
}
