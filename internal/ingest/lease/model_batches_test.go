package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/ingest/inflight"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// This file has modelLease's implementations of leaseDevice.

func (e *modelLease) limit() int {
	e.packs++
	random := rand.New(rand.NewPCG(e.w.m.seed+uint64(e.packs), uint64(e.n)))
	return 1 + random.IntN(e.w.device.pipe.BatchPayloads())
}

// serve packs and submits the batches of the lease. The model has one lease per device.
func (e *modelLease) serve(q *inflight.Queue) (stop func()) { return e.w.serve(q, e) }

// serve packs the deliveries of a queue into batches, and submits them to d.
func (w *leaseWorker) serve(q *inflight.Queue, d batchDevice) (stop func()) {
	feed := inflight.NewFeed()
	packer := w.pool.NewPacker(w.device.pipe, feed, 0)
	feed.Attach(q)
	life, end := context.WithCancel(context.Background())
	ctx, endPacking := context.WithCancel(w.drain)
	var packing sync.WaitGroup
	packing.Go(func() {
		_ = packAll(ctx, packer, d)
		packer.Leave(life)
	})
	return func() {
		q.Detach()
		endPacking()
		end()
		packing.Wait()
	}
}

// submit computes a batch at once. The scheduler determines its outcome.
func (e *modelLease) submit(p *inflight.Packed) {
	g, device := p.Groups[0], e.w.device
	e.w.m.submits(e, g)
	if g.Open() != nil {
		e.w.m.did("spread over batches")
	}
	device.mu.Lock()
	computed := modelResults(device.compute(p.Batch))
	device.mu.Unlock()
	go func() {
		err := e.w.outcome(e.w.drain, computed)
		if err == nil {
			e.w.m.collect(g, computed)
			g.Collected()
			e.w.judge.CameRight(device.pipe, g)
		}
		if !errors.Is(err, context.Canceled) {
			p.Complete(streams.Record{}, err)
		}
	}()
}

// outcome waits until the scheduler ends a batch on the device.
func (w *leaseWorker) outcome(ctx context.Context, computed modelResults) error {
	return w.call(ctx, "compute", true, func() error {
		m := w.m
		switch {
		case m.kills(computed):
			return errModelKilled
		case w.lost != nil:
			return w.lost
		case m.faults && m.random.IntN(100) == 0 && m.mayFailByChance(computed):
			m.did("batch failed")
			return errors.New("the batch failed")
		case len(m.failingRows(computed)) > 0:
			m.did("operator failed")
			return errModelOperator
		}
		return nil
	})
}

// mayFailByChance reports whether a batch may fail for a reason that isn't in its rows. The same row alone may do so only once,
// because a row that fails alone a second time is to blame.
func (m *leaseModel) mayFailByChance(computed modelResults) bool {
	if len(computed) != 4 {
		return true
	}
	row := computed.checksum(0)
	before := m.chance[row]
	m.chance[row] = true
	return !before
}

// modelApart implements quarantine.Device.
type modelApart struct {
	w    *leaseWorker
	lose func(error) // called when the device is lost; may be nil
}

func (a modelApart) Run(ctx context.Context, g *inflight.Batch, rows []int) (part *inflight.Batch, n int, ran bool, err error) {
	w := a.w
	part = g.NewPart()
	n, computed, err := w.device.computeApart(ctx, w.pool, g, part, rows)
	if err == nil {
		err = w.outcome(ctx, computed)
	}
	if err != nil {
		part.DropRecords()
		return nil, 0, true, err
	}
	w.m.did("computed again")
	w.m.collect(part, computed)
	part.Collected()
	w.judge.CameRight(w.device.pipe, part)
	return part, n, true, nil
}

func (modelApart) Probe(context.Context) error { return nil }

func (a modelApart) Lose(err error) error {
	err = fmt.Errorf("%w: %w", device.ErrLost, err)
	a.w.m.did("device not well")
	a.w.m.mu.Lock()
	a.w.lost = err
	a.w.m.mu.Unlock()
	if a.lose != nil {
		a.lose(err)
	}
	return err
}

// collect writes the results of a group's records into the tables of their frames, and the results of plain messages into Bodies.
func (m *leaseModel) collect(g *inflight.Batch, computed modelResults) {
	for row, span := range g.Spans {
		if f := span.Frame; f != nil {
			if f.Records() > 0 {
				f.Table.Put(0, span.First, computed[4*row:][:4*span.Rows])
				for i := span.First; m.stateful() != nil && i < span.First+span.Rows; i++ {
					f.Table.Put(1, i, m.keys([][]byte{f.Record(i)}))
				}
			}
			if span.Item >= 0 {
				g.Bodies.Add(g.Bodies.Data)
			}
			continue
		}
		for i := range span.Rows {
			bytes, value := len(g.Items[span.Item+i].Msg.Data()), computed[4*(row+i):][:4]
			g.Bodies.Add(operator.Binary.Append(g.Bodies.Data, m.operators, bytes, [][]byte{value}))
		}
	}
}

func (modelApart) Isolate() func() { return func() {} }

func (e *modelLease) fault() (f inflight.OperatorFault, known bool) { return f, false }

func (e *modelLease) lost() error {
	e.w.m.mu.Lock()
	defer e.w.m.mu.Unlock()
	return e.w.lost
}

// modelDevice computes the batches of the lease model. Its pipeline is outside the testing/synctest bubble, because
// its goroutines outlive a run. A worker of the model waits for the device within one step of the scheduler.
type modelDevice struct {
	pipe *streams.Pipeline

	mu      sync.Mutex // held while a batch is packed and computed
	batches chan *streams.Batch
	results chan []byte
}

// modelLab is the state that all runs of a test share.
type modelLab struct {
	plain     []operator.Operator
	withState []operator.Operator
	devices   []*modelDevice // one per batch size
}

func newModelLab(t *testing.T) *modelLab {
	t.Helper()
	plain, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	withState, err := operator.ParseList("crc32c,neardup?bands=4&rows=1&k=8")
	if err != nil {
		t.Fatal(err)
	}
	lab := &modelLab{plain: plain, withState: withState}
	for _, rows := range []int{3, modelBatch} {
		d, err := host.Open(host.Options{Cores: 1, Kernels: operator.HostKernels()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		pipe, err := streams.New(d, streams.Options{
			Operators: plain, Lanes: 32, BatchBytes: modelBatchBytes, BatchPayloads: rows, ScratchLimit: 64 << 20,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pipe.Close() })
		m := &modelDevice{pipe: pipe, batches: make(chan *streams.Batch), results: make(chan []byte)}
		t.Cleanup(func() { close(m.batches) })
		go m.run()
		lab.devices = append(lab.devices, m)
	}
	return lab
}

const (
	modelBatch      = 8       // maximum number of rows per batch
	modelBatchBytes = 4 << 10 // maximum number of bytes per batch
)

// run computes one batch after another. It sends nil for a batch that the device refused.
func (m *modelDevice) run() {
	for b := range m.batches {
		var results []byte
		if b.Submit(streams.ClosedByCount) == nil {
			b = <-m.pipe.Completed()
			if b.Err() == nil {
				results = slices.Clone(b.Results(0))
			}
		}
		b.Release()
		m.results <- results
	}
}

// computeApart computes rows of g in a batch of their own. It appends the rows to part, and returns their number.
func (m *modelDevice) computeApart(ctx context.Context, pool *inflight.Pool, g, part *inflight.Batch, rows []int) (n int, results []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := pool.Acquire(ctx, m.pipe)
	if err != nil {
		return 0, nil, err
	}
	defer pool.Finish()
	n = g.PackRows(b, part, rows)
	return n, m.compute(b), nil
}

// compute computes a batch and releases it. The caller holds m.mu.
func (m *modelDevice) compute(b *streams.Batch) (results []byte) {
	m.batches <- b
	return <-m.results
}
