package demo

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/ingest/results"
)

// checker reads results like any other client. It compares each result with the reference, which it computes from a
// regenerated document.
type checker struct {
	js       jetstream.JetStream
	docs     *source
	payloads int
	stream   string
	filters  []string // subjects of results, and then of dead letters, in one stream or in two
	stall    time.Duration

	verified    atomic.Int64
	stored      atomic.Int64 // number of messages in the result stream, until all results are stored
	bytes       atomic.Int64 // size of the result bodies
	records     atomic.Int64 // number of records in results
	started     time.Time
	storedAfter atomic.Int64 // nanoseconds from started until all results were stored

	parts map[int][]jetstream.Msg // messages of incomplete results by document; used only by read
	extra atomic.Int64            // number of result parts, without the last part of each result

	mu    sync.Mutex
	seen  []uint8 // number of results per document
	wrong []error // the first errors, at most maxWrong
	bad   int
}

// maxWrong is the maximum number of errors that the checker keeps.
const maxWrong = 10

// workQueue is the maximum number of results that are read but not checked yet.
const workQueue = 1024

// stallLimit is the maximum time that the checker waits for the next result.
const stallLimit = 2 * time.Minute

// run reads and checks the results. It returns when every document has a result, or when reading fails.
func (c *checker) run(ctx context.Context) error {
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	came, err := c.open(reading)
	if err != nil {
		return fmt.Errorf("read results back: %w", err)
	}

	checking, stop := context.WithCancel(ctx)
	defer stop()
	work := make(chan result, workQueue)
	allCame := make(chan struct{})
	wait := c.startCheckers(checking, work, allCame)
	err = c.read(ctx, came, work)
	close(work)
	close(allCame)
	if err != nil {
		stop() // some results will never be stored
	}
	wait()
	return errors.Join(err, c.findings())
}

// startCheckers starts the goroutines that check the results from work, and returns a function that waits for them. The reference is slow
// by design, so checking needs more CPU time than the worker. Until all results are stored, a quarter of the cores, rounded down, run
// checkers. The worker, the server and the producer use the other cores.
func (c *checker) startCheckers(ctx context.Context, work <-chan result, allCame <-chan struct{}) (wait func()) {
	var checkers sync.WaitGroup
	start := func(n int) {
		for range n {
			checkers.Go(func() {
				var u unpacker
				for r := range work {
					c.check(&u, r)
				}
			})
		}
	}
	cores := runtime.GOMAXPROCS(0)
	few := cores / 4
	start(few)
	checkers.Go(func() { c.awaitStored(ctx, allCame, sync.OnceFunc(func() { start(cores - few) })) })
	return checkers.Wait
}

// quietTicks is the number of ticks without another stored result after which awaitStored doesn't wait for more.
const quietTicks = 10

// awaitStored calls ready when all results are stored, which is when the stream has one result per document, or when all
// messages have been read. The second condition covers dead letters in another stream and results with several parts.
// awaitStored calls ready earlier if the stream has stopped growing: without checkers, reading stops when the queue of
// work is full. It doesn't call ready if all results are already checked or if ctx is done.
func (c *checker) awaitStored(ctx context.Context, allCame <-chan struct{}, ready func()) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for quiet := 0; c.verified.Load() < int64(c.payloads); quiet++ {
		select {
		case <-tick.C:
		case <-allCame:
			c.storedAfter.Store(int64(time.Since(c.started)))
			ready()
			return
		case <-ctx.Done():
			return
		}
		n, err := c.countStored(ctx)
		switch {
		case err == nil && n >= c.payloads && c.extra.Load() == 0:
			c.storedAfter.Store(int64(time.Since(c.started)))
			ready()
			return
		case err == nil && int64(n) > c.stored.Swap(int64(n)):
			quiet = 0
		case quiet >= quietTicks:
			ready()
		}
	}
}

// countStored returns the number of results in the result stream. The stream may also have commit markers and the log of a state.
func (c *checker) countStored(ctx context.Context) (n int, err error) {
	s, err := c.js.Stream(ctx, c.stream)
	if err != nil {
		return 0, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(c.filters[0]))
	if err != nil {
		return 0, err
	}
	for _, messages := range info.State.Subjects {
		n += int(messages)
	}
	return n, nil
}

// arrival is a message, or the error that ends the messages.
type arrival struct {
	m   jetstream.Msg
	err error
}

// open reads the streams that the filters match, until ctx is done. Only one goroutine may receive from the returned
// channel.
func (c *checker) open(ctx context.Context) (<-chan arrival, error) {
	byStream := map[string][]string{}
	for _, filter := range c.filters {
		name, err := c.js.StreamNameBySubject(ctx, filter)
		if err != nil {
			return nil, fmt.Errorf("find the stream of %s: %w", filter, err)
		}
		byStream[name] = append(byStream[name], filter)
	}
	came := make(chan arrival)
	for name, filters := range byStream {
		consumer, err := c.js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{FilterSubjects: filters})
		if err != nil {
			return nil, err
		}
		messages, err := consumer.Messages(jetstream.PullMaxMessages(4096))
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, messages.Stop)
		go func() {
			for err := error(nil); err == nil; {
				var m jetstream.Msg
				m, err = messages.Next()
				select {
				case came <- arrival{m, err}:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return came, nil
}

// result is a result in one or several messages.
type result struct {
	parts []jetstream.Msg
	turn
}

// read sends every result to work until each document has a result.
func (c *checker) read(ctx context.Context, came <-chan arrival, work chan<- result) error {
	var before <-chan struct{}
	stalled := time.NewTimer(c.stall)
	defer stalled.Stop()
	for n := 0; n < c.payloads; {
		stalled.Reset(c.stall)
		select {
		case a := <-came:
			if a.err != nil {
				return fmt.Errorf("read results back: %w", a.err)
			}
			parts := c.collect(a.m)
			if parts == nil {
				continue
			}
			known := make(chan struct{})
			r := result{parts, turn{before: before, known: sync.OnceFunc(func() { close(known) })}}
			before = known
			select {
			case work <- r:
				n++
			case <-ctx.Done(): // perhaps no checker has started
				return ctx.Err()
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-stalled.C:
			return fmt.Errorf("%d of %d results arrived, then none for %v", n, c.payloads, c.stall)
		}
	}
	return nil
}

// collect returns all messages of a result when its last part arrives. Before that, it returns nil.
func (c *checker) collect(m jetstream.Msg) []jetstream.Msg {
	at, err := client.ParsePart(m.Headers().Get(client.HeaderPart))
	if err != nil || at.Count == 1 {
		return []jetstream.Msg{m} // check reports the error
	}
	i, err := documentOf(m)
	if err != nil {
		return []jetstream.Msg{m}
	}
	c.parts[i] = append(c.parts[i], m)
	if at.Index < at.Count {
		c.extra.Add(1)
		return nil
	}
	parts := c.parts[i]
	delete(c.parts, i)
	return parts
}

// documentOf returns the number of the document that a message belongs to.
func documentOf(m jetstream.Msg) (int, error) { return strconv.Atoi(m.Headers().Get(HeaderDocument)) }

// unpacker holds the memory of one goroutine that checks results.
type unpacker struct {
	doc          []byte
	decompressor compression.Decompressor
}

// maxResult is the maximum size of a result message after decompression, in bytes.
const maxResult = 1 << 30

// part returns the n-th of count parts of a result.
func (u *unpacker) part(m jetstream.Msg, n, count int) (p part, err error) {
	h := m.Headers()
	if at, err := client.ParsePart(h.Get(client.HeaderPart)); err != nil || at != (client.Part{Index: n, Count: count}) {
		return p, fmt.Errorf("message %d of %d has the part %q", n, count, h.Get(client.HeaderPart))
	}
	if first := h.Get(client.HeaderFirstRecord); first != "" {
		if p.from, err = strconv.Atoi(first); err != nil {
			return p, fmt.Errorf("a part's first record is %q", first)
		}
	}
	encoding, err := compression.FromHeader(h.Get(client.HeaderContentEncoding))
	if err != nil || encoding == compression.None || len(m.Data()) == 0 {
		p.body = m.Data()
		return p, err
	}
	p.body, err = u.decompressor.Append(nil, encoding, m.Data(), maxResult)
	return p, err
}

// check compares one result with the reference.
func (c *checker) check(u *unpacker, r result) {
	defer r.known() // also after an error
	msgs := r.parts
	m := msgs[len(msgs)-1]
	i, err := documentOf(m)
	if err == nil && c.docs.verdicts != nil {
		r.sequence, err = strconv.ParseUint(m.Headers().Get(client.HeaderSequence), 10, 64)
	}
	switch {
	case err != nil || i < 0 || i >= c.payloads:
		c.found(fmt.Errorf("a message on %s belongs to no document: %v", m.Subject(), m.Headers()))
		return
	case m.Headers().Get(results.HeaderReason) != "":
		c.found(fmt.Errorf("document %d is a dead letter: %s: %s", i, m.Headers().Get(results.HeaderReason), m.Headers().Get(results.HeaderError)))
		return
	}
	if !c.first(i) {
		c.found(fmt.Errorf("document %d has two results", i))
		return
	}
	bytes := 0
	parts := make([]part, len(msgs))
	for n, m := range msgs {
		if parts[n], err = u.part(m, n+1, len(msgs)); err != nil {
			c.found(fmt.Errorf("document %d: %w", i, err))
			return
		}
		bytes += len(m.Data())
	}
	doc, kept, err := c.docs.check(u.doc, i, r.turn, parts)
	if u.doc = doc; err != nil {
		c.found(fmt.Errorf("document %d of %d bytes: %w", i, len(u.doc), err))
		return
	}
	c.verified.Add(1)
	c.records.Add(int64(kept))
	c.bytes.Add(int64(bytes))
}

func (c *checker) first(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[i]++
	return c.seen[i] == 1
}

func (c *checker) found(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bad++
	if len(c.wrong) < maxWrong {
		c.wrong = append(c.wrong, err)
	}
}

// findings returns an error with the number of wrong results and the first errors. It returns nil if all results are
// correct.
func (c *checker) findings() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bad == 0 {
		return nil
	}
	return errors.Join(append([]error{fmt.Errorf("%d results are wrong; the first ones are", c.bad)}, c.wrong...)...)
}

// surplus returns the number of messages in the stream beyond all parts of one result per document. A repeated publish
// without deduplication would leave such messages. Call surplus after the worker has stopped.
func (c *checker) surplus(ctx context.Context) (int, error) {
	n, err := c.countStored(ctx)
	return n - c.payloads - int(c.extra.Load()), err
}
