package results

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/frame"
	"millrace/internal/history"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// The model of settling passes random frames and plain messages through the real pool, packers, pipeline and Writer. Batches and
// publishes fail at random, and deliveries are given back, until every message has ended. A history reproduces the inputs and
// settings of a run. It does not reproduce the order of events, because goroutines run freely.

// TestFramesSettleOnceWhateverFails runs random histories. Several run in parallel, because a run mostly waits before
// it publishes again.
func TestFramesSettleOnceWhateverFails(t *testing.T) {
	t.Parallel()
	bounds := history.Bounds{Min: modelMin, Max: modelMax, Parallel: 4, MustHappen: modelMustHappen}
	history.Run(t, bounds, func(h *history.History) map[string]int {
		d := natstest.Must(host.Open(host.Options{Cores: 2, Kernels: operator.HostKernels()}))(t)
		defer func() { _ = d.Close() }()
		m := newModel(t, h, d)
		m.run()
		return m.counts
	})
}

// TestFramesSettleOnceWhateverFails makes at least modelMin runs. It makes more, up to modelMax, until every required event has happened.
const (
	modelMin = 48
	modelMax = 2000
)

var modelMustHappen = []string{
	"settled", "dead letter", "given back", "batch refused", "batch failed", "incomplete", "publish lost", "confirmation lost",
	"stored", "stored again", "part", "part of another cut", "record letter", "too large", "payload apart", "input apart",
	"payload left out", "unread", "drain ended", "died", "spread over batches", "ends in a later batch", "several queues in a batch",
}

const (
	modelMaxPayload = 6 << 10 // limit of the server; larger results have parts
	modelMessages   = 40      // per run
	modelRounds     = 20      // maximum number of rounds per run; each redelivers the inputs that were given back
	modelTrouble    = 8       // number of rounds with faults
)

// model is the state of one run.
type model struct {
	t    *testing.T
	seed uint64
	o    Options
	// Each batch is settled by one of two Writers, which may compress and cut results in different ways.
	w    [2]*Writer
	pipe *streams.Pipeline
	pool *inflight.Pool

	stream modelStream
	inputs []*modelInput // input i has stream sequence i+1

	mu      sync.Mutex // guards all fields below
	random  *rand.Rand
	calm    bool // whether no more faults happen
	counts  map[string]int
	number  uint64   // consumer sequence of the last delivery
	ended   []string // outcome of each delivery, by consumer sequence
	waiting []int    // inputs to deliver next
}

// oneOf returns one of several values.
func oneOf[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

func newModel(t *testing.T, h *history.History, d device.Device) *model {
	t.Helper()
	m := &model{t: t, seed: h.Seed, random: rand.New(h), counts: map[string]int{}, ended: []string{""}}
	operators := oneOf(m.random, "crc32c", "crc32c,minhash?k=4&hashes=8")
	m.o = options(t, slog.New(slog.DiscardHandler), operators)
	m.o.Format = oneOf(m.random, operator.JSON, operator.Binary, operator.Arrow)
	m.stream = modelStream{m: m, byID: map[string]int{}, maxLetter: oneOf(m.random, modelMaxPayload, 800, 480, 480)}
	for i := range m.w {
		o := m.o
		o.Encoding = oneOf(m.random, compression.None, compression.Zstd, compression.LZ4, compression.Snappy)
		streams := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Duplicates: time.Hour}, TimeStamp: time.Now()}
		m.w[i] = NewModelWriter(&Server{
			First: &m.stream, Again: &m.stream, StoreApart: m.stream.storeApart, Closed: func() bool { return false },
			MaxPayload:     func() int64 { return modelMaxPayload },
			AwaitConnected: func(ctx context.Context) bool { return ctx.Err() == nil },
			Reconnect:      func(context.Context) bool { return true },
		}, o, streams, streams)
		m.w[i].size.stream.Store(oneOf[int64](m.random, -1, 2<<10, 3<<10))
	}
	m.pipe = natstest.Must(streams.New(d, streams.Options{
		Operators: m.o.Operators, Lanes: 1 + m.random.IntN(3), BatchPayloads: oneOf(m.random, 1, 2, 7, 64),
		BatchBytes: oneOf(m.random, 256, 1024, 8192), ScratchLimit: 64 << 20,
	}))(t)
	m.pool = natstest.Must(inflight.NewPool([]*streams.Pipeline{m.pipe}, memory.Worker{Messages: memory.Messages{
		Format: m.o.Format, Operators: m.o.Operators, Decompress: compression.Auto,
		Split: frame.Splitter{Framing: frame.Auto, MaxRecords: modelMaxRecords, MaxBytes: 64 << 10},
	}}))(t)
	m.pool.Limit = int64(1+m.random.IntN(200)) << 10
	for i := range modelMessages {
		m.inputs = append(m.inputs, m.newInput(uint64(i+1)))
		m.waiting = append(m.waiting, i)
	}
	return m
}

// run delivers messages until every message has ended, and checks the stream.
func (m *model) run() {
	over := make(chan struct{})
	var settlers sync.WaitGroup
	settlers.Go(func() { m.settleBatches(&settlers, over) })
	rounds := 0
	for ; len(m.waiting) > 0 && rounds < modelRounds && !m.t.Failed(); rounds++ {
		m.calm = rounds >= modelTrouble
		m.round()
	}
	close(over)
	settlers.Wait()
	if err := m.pipe.Close(); err != nil {
		m.t.Error(err)
	}
	if len(m.waiting) > 0 {
		m.errorf("after %d rounds %d messages have not ended", rounds, len(m.waiting))
	}
	for number, how := range m.ended[1:] {
		if how == "" {
			m.errorf("the delivery with the number %d has not ended", number+1)
		}
	}
	if used, batches, bytes := m.pool.Memory().Used, m.pool.InFlight(), m.pool.Memory().Submitted; used != 0 || batches != 0 || bytes != 0 {
		m.errorf("in the end %d bytes of memory, %d batches and %d submitted bytes are in use", used, batches, bytes)
	}
	for i, in := range m.inputs {
		if in.ends != 1 {
			m.errorf("message %d has ended %d times", i+1, in.ends)
		}
		m.checkStored(uint64(i+1), in)
	}
}

func (m *model) errorf(format string, args ...any) {
	m.t.Helper()
	m.t.Errorf("seed %d: "+format, append([]any{m.seed}, args...)...)
}

// chance reports whether a fault happens. The probability is 1/n.
func (m *model) chance(n int) bool { return m.pick(n) == 0 && !m.calm }

// pick returns a random number below n.
func (m *model) pick(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.random.IntN(n)
}

func (m *model) did(what string) {
	m.mu.Lock()
	m.counts[what]++
	m.mu.Unlock()
}

// round delivers the waiting messages, and returns when all deliveries have ended.
func (m *model) round() {
	ctx, cancel := context.WithTimeout(m.t.Context(), natstest.Patience)
	defer cancel()
	inputs := m.waiting
	m.waiting = nil
	feed := inflight.NewFeed()
	packer := m.pool.NewPacker(m.pipe, feed, time.Millisecond)
	var queues []*inflight.Queue
	for range 1 + m.pick(3) {
		q := m.pool.NewQueue(m, oneOf(m.random, 1, 3, inflight.QueueMax), inflight.NewWindow(1))
		feed.Attach(q)
		queues = append(queues, q)
	}
	packing, stop := context.WithCancel(ctx)
	var packers sync.WaitGroup
	for range 1 + m.random.IntN(2) {
		packers.Go(func() {
			for !m.chance(300) && m.pack(packing, packer) {
			}
			packer.Leave(packing)
		})
	}
	for _, i := range inputs {
		d := m.delivery(i)
		if !m.pool.Hold(ctx, nil, &d) {
			m.t.Fatalf("seed %d: there is no memory for message %d: %+v", m.seed, i+1, m.pool.Memory())
		}
		m.pool.Unpack(&d)
		queues[m.pick(len(queues))].Put(ctx, d)
	}
	for _, q := range queues {
		q.Close()
		q.AwaitIdle(ctx)
	}
	if ctx.Err() != nil {
		m.t.Fatalf("seed %d: %d batches are not settled: %+v", m.seed, m.pool.InFlight(), m.pool.Memory())
	}
	stop()
	packers.Wait()
}

// Packed implements inflight.Owner.
func (m *model) Packed(g *inflight.Batch) {
	if g.Open() != nil {
		m.did("spread over batches")
	}
	if len(g.Items) == 0 {
		m.did("ends in a later batch")
	}
}

// Unread implements inflight.Owner.
func (m *model) Unread(d inflight.Delivery) {
	m.did("unread")
	m.giveBack(&d)
	m.pool.Release(&d)
}

// Encode implements inflight.Owner. The model encodes itself.
func (m *model) Encode(*inflight.Batch, *streams.Batch) { panic("the model has no collector") }

// delivery returns the next delivery of message i.
func (m *model) delivery(i int) inflight.Delivery {
	in := m.inputs[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	m.number++
	m.ended = append(m.ended, "")
	in.deliveries++
	return inflight.Delivery{
		Msg: modelMessage{body: in.body, header: in.header}, Stream: "INGEST", Subject: "ingest.web", Sequence: uint64(i + 1),
		ConsumerSequence: m.number, NumDelivered: in.deliveries, Stored: time.Unix(int64(i), 0), Received: time.Now(),
		First: true, Cleared: time.Now(), // the model's stream drops duplicates
	}
}

// pack fills and submits one batch. It returns false if there is none.
func (m *model) pack(ctx context.Context, packer *inflight.Packer) bool {
	p, err := packer.Next(ctx, 0)
	if p == nil {
		if err != nil {
			m.t.Error(err)
		}
		return false
	}
	if len(p.Groups) > 1 {
		m.did("several queues in a batch")
	}
	if !m.chance(80) {
		if err := m.pool.Submit(p); err == nil {
			return true
		}
	}
	m.fail(p, "batch refused")
	return true
}

// errModelBatch is the error of a batch that fails.
var errModelBatch = errors.New("the batch failed")

// fail gives back the deliveries of a batch that has no results.
func (m *model) fail(p *inflight.Packed, what string) {
	m.did(what)
	p.Batch.Release()
	for _, g := range p.Groups {
		m.giveBackAll(g)
		g.FailOpen(errModelBatch)
		m.pool.Recycle(g)
	}
}

// settleBatches settles completed batches until over is closed. Each batch has its own goroutine, because it may wait for another one.
func (m *model) settleBatches(settlers *sync.WaitGroup, over chan struct{}) {
	for {
		select {
		case b := <-m.pipe.Completed():
			settlers.Go(func() { m.settle(b) })
		case <-over:
			return
		}
	}
}

// settle stores the results of a completed batch, or makes it fail.
func (m *model) settle(b *streams.Batch) {
	p := b.Owner.(*inflight.Packed)
	if err := b.Err(); err != nil {
		m.errorf("%v", err)
	}
	if m.chance(50) {
		m.fail(p, "batch failed")
		return
	}
	var buffers Buffers
	defer buffers.Free(m.pool)
	w := m.w[m.pick(len(m.w))]
	for _, g := range p.Groups {
		m.markFailing(g)
		g.StartPublish()
		w.Encode(g, b, &buffers)
	}
	b.Release()
	for _, g := range p.Groups {
		m.store(w, g, &buffers)
	}
}

// store stores the results of a group.
func (m *model) store(w *Writer, g *inflight.Batch, buffers *Buffers) {
	ctx, die := context.WithCancel(m.t.Context())
	defer die()
	ctx = context.WithValue(ctx, dying{}, die)
	if m.chance(20) {
		ending, cancel := context.WithTimeout(ctx, time.Duration(m.pick(2000))*time.Microsecond)
		defer cancel()
		ctx = ending
	}
	if w.Store(ctx, g, buffers, m) != nil {
		m.did("drain ended")
		m.giveBackAll(g)
	}
	m.pool.Recycle(g)
	buffers.Tidy(m.pool)
}

// dying is the context key of a function that ends a Settle, as if the worker died.
type dying struct{}

// markFailing marks the records on which the operator fails, like a bisection does.
func (m *model) markFailing(g *inflight.Batch) {
	for row := range g.Rows() {
		f, i := g.Row(row)
		if f != nil && f.Records() > 0 && m.inputs[g.Source(row).Sequence-1].fails[i] {
			f.Mark(i, record.OperatorError)
		}
	}
}

// Stored implements Sink.
func (m *model) Stored(_ context.Context, stored []*inflight.Delivery) {
	for _, d := range stored {
		m.end(d, "settled")
	}
}

// DeadLettered implements Sink.
func (m *model) DeadLettered(d *inflight.Delivery, why Reason) {
	m.mu.Lock()
	in := m.inputs[d.Sequence-1]
	in.reasons = append(in.reasons, why)
	m.mu.Unlock()
	m.end(d, "dead letter")
}

// Incomplete implements Sink.
func (m *model) Incomplete(g *inflight.Batch, i int, _ error) error {
	m.did("incomplete")
	g.Settle(i)
	m.giveBack(&g.Items[i])
	return nil
}

// end records the outcome of a delivery, which must be its only one.
func (m *model) end(d *inflight.Delivery, how string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[how]++
	if before := m.ended[d.ConsumerSequence]; before != "" {
		m.errorf("delivery %d of message %d is %s, and was %s already", d.NumDelivered, d.Sequence, how, before)
	}
	m.ended[d.ConsumerSequence] = how
	if how == "given back" {
		m.waiting = append(m.waiting, int(d.Sequence-1))
	} else {
		m.inputs[d.Sequence-1].ends++
	}
}

func (m *model) giveBack(d *inflight.Delivery) { m.end(d, "given back") }

func (m *model) giveBackAll(g *inflight.Batch) {
	for _, i := range g.Unsettled() {
		g.Settle(i)
		m.giveBack(&g.Items[i])
	}
}
