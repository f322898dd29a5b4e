package streams_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// The possible owners of a batch.
const (
	ownedByPool int32 = iota
	ownedByFiller
	ownedByDevice
	ownedByReceiver
)

// traffic runs many goroutines on one pipeline and records the owner of each batch. A change of owner is recorded
// before the call that passes the batch on, or after the call that returns it.
type traffic struct {
	t       *testing.T
	pipe    *streams.Pipeline
	ops     []operator.Operator
	rows    [][]byte   // source of random payloads
	results [][][]byte // results of each row, by operator

	owner  []atomic.Int32 // owner of each slot's batch
	chosen [][]int        // indexed by slot: the rows in the batch; belongs to the batch's owner
	begun  atomic.Int64   // number of batches acquired
	total  int64          // number of batches to acquire

	good    atomic.Int64 // number of batches completed with results
	enough  int64        // value of good at which reached is closed; 0 for never
	reached chan struct{}

	hands   sync.RWMutex // held for reading while a goroutine accesses a batch's memory
	closing bool         // the pipeline is about to be closed, so no goroutine may access the memory
}

func newTraffic(t *testing.T, p *streams.Pipeline, ops []operator.Operator, total int) *traffic {
	tr := &traffic{t: t, pipe: p, ops: ops, rows: someRows(9, 40, 300), total: int64(total)}
	for _, row := range tr.rows {
		var all [][]byte
		for _, op := range ops {
			all = append(all, op.AppendReference(nil, row))
		}
		tr.results = append(tr.results, all)
	}
	tr.owner = make([]atomic.Int32, p.Slots())
	tr.chosen = make([][]int, p.Slots())
	return tr
}

func (t *traffic) hand(b *streams.Batch, from, to int32) {
	if !t.owner[b.Slot()].CompareAndSwap(from, to) {
		t.t.Errorf("the batch in slot %d goes from owner %d to %d, but its owner is %d", b.Slot(), from, to, t.owner[b.Slot()].Load())
	}
}

// fill acquires, fills and submits batches until the total is reached or the pipeline ends.
func (t *traffic) fill(random *rand.Rand) {
	for t.begun.Add(1) <= t.total {
		b, err := t.pipe.Acquire(context.Background())
		if err != nil {
			t.mustBeOver(err)
			return
		}
		t.hand(b, ownedByPool, ownedByFiller)
		t.touch(func() { t.pack(b, random) })
		if random.IntN(10) == 0 || !t.submit(b) {
			t.hand(b, ownedByFiller, ownedByPool)
			b.Release()
		}
	}
}

// touch calls f unless the pipeline is about to be closed. No goroutine may fill or read batches during Close.
func (t *traffic) touch(f func()) {
	t.hands.RLock()
	defer t.hands.RUnlock()
	if !t.closing {
		f()
	}
}

func (t *traffic) pack(b *streams.Batch, random *rand.Rand) {
	chosen := t.chosen[b.Slot()][:0]
	for range 1 + random.IntN(6) {
		row := random.IntN(len(t.rows))
		if !b.Append(t.rows[row]) {
			t.t.Error("a small payload does not fit")
		}
		chosen = append(chosen, row)
	}
	t.chosen[b.Slot()] = chosen
}

// submit tries up to three times. It returns false if the filler still owns the batch.
func (t *traffic) submit(b *streams.Batch) bool {
	for range 3 {
		rows := b.Rows()
		t.hand(b, ownedByFiller, ownedByDevice)
		err := b.Submit(streams.ClosedByCount)
		if err == nil {
			return true
		}
		t.hand(b, ownedByDevice, ownedByFiller)
		if b.Rows() != rows {
			t.t.Errorf("a refused batch has %d rows, and had %d before", b.Rows(), rows)
		}
		if !errors.Is(err, device.ErrLaunch) && !errors.Is(err, device.ErrOutOfMemory) && !errors.Is(err, streams.ErrEmpty) {
			t.mustBeOver(err)
			return false
		}
	}
	return false
}

func (t *traffic) mustBeOver(err error) {
	if !errors.Is(err, device.ErrLost) && !errors.Is(err, streams.ErrClosed) {
		t.t.Errorf("Submit: %v", err)
	}
}

// receive checks completed batches until stop is closed.
func (t *traffic) receive(stop <-chan struct{}) {
	for {
		select {
		case b := <-t.pipe.Completed():
			t.hand(b, ownedByDevice, ownedByReceiver)
			t.touch(func() { t.check(b) })
			t.hand(b, ownedByReceiver, ownedByPool)
			b.Release()
		case <-stop:
			return
		}
	}
}

func (t *traffic) check(b *streams.Batch) {
	if err := b.Err(); err != nil {
		if !errors.Is(err, device.ErrLost) {
			t.t.Errorf("batch %d failed: %v", b.ReadRecord().Batch, err)
		}
		return
	}
	if t.good.Add(1) == t.enough {
		close(t.reached)
	}
	stages := b.ReadRecord().Stages
	for s := streams.CopyIn; s <= streams.CopyOut; s++ {
		if stages[s] == (streams.Span{}) && (b.ReadRecord().InPlace || errors.Is(t.pipe.Err(), device.ErrLost)) {
			continue // the batch had no copies, or the device was lost first
		}
		if stages[s].Start < stages[s-1].End || stages[s].End < stages[s].Start {
			t.t.Errorf("batch %d: %v at %v starts before the end of %v at %v", b.ReadRecord().Batch, s, stages[s], s-1, stages[s-1])
		}
	}
	for i, op := range t.ops {
		got, stride := b.Results(i), op.Stride()
		if len(got) != stride*b.Rows() {
			t.t.Errorf("%d bytes of results of %s for %d rows", len(got), op, b.Rows())
			continue
		}
		for n, row := range t.chosen[b.Slot()] {
			if !bytes.Equal(got[n*stride:][:stride], t.results[row][i]) {
				t.t.Errorf("batch %d, row %d: %s differs from the reference", b.ReadRecord().Batch, n, op)
			}
		}
	}
}

// run generates traffic until every batch is back. If closeAfter isn't 0, it closes the pipeline after that many
// batches came back with results.
func (t *traffic) run(seed uint64, closeAfter int64) {
	t.enough, t.reached = closeAfter, make(chan struct{})
	var fillers, receivers sync.WaitGroup
	stop := make(chan struct{})
	for i := range uint64(3) {
		fillers.Go(func() { t.fill(rand.New(rand.NewPCG(seed, i))) })
	}
	for range 2 {
		receivers.Go(func() { t.receive(stop) })
	}
	receivers.Go(func() { checkFigures(t.t, t.pipe, stop) })
	if closeAfter > 0 {
		<-t.reached
		t.hands.Lock()
		t.closing = true
		t.hands.Unlock()
		if err := t.pipe.Close(); err != nil {
			t.t.Errorf("Close: %v", err)
		}
	}
	fillers.Wait()
	if closeAfter == 0 {
		if err := t.pipe.Drain(context.Background()); err != nil {
			t.t.Errorf("Drain: %v", err)
		}
	}
	close(stop)
	receivers.Wait()
}

// settled checks the final owner of every batch.
func (t *traffic) settled(closed bool) {
	stuck := 0
	for slot := range t.owner {
		switch o := t.owner[slot].Load(); {
		case o == ownedByDevice && closed: // the batch never comes back
			stuck++
		case o != ownedByPool:
			t.t.Errorf("the batch in slot %d ends up with owner %d", slot, o)
		}
	}
	s, err := t.pipe.Stats()
	if err != nil && !closed && !errors.Is(err, device.ErrLost) {
		t.t.Error(err)
	}
	if s.InHand != stuck {
		t.t.Errorf("%d batches not released at the end, want %d", s.InHand, stuck)
	}
	if !closed && (s.Lanes.Filling != 0 || s.Lanes.InFlight != 0 || s.Scratch.Used != 0) {
		t.t.Errorf("at the end: lanes %+v, %d bytes of scratch used", s.Lanes, s.Scratch.Used)
	}
}

// uneven returns options for a simulated GPU that refuses calls and delays completions at random.
func uneven(seed uint64, more ...sim.Fault) sim.Options {
	cost := sim.Units(10 * time.Microsecond)
	cost.Jitter, cost.ComputeSlots = 1, 2
	return sim.Options{Seed: seed, Cost: cost, Faults: append(more,
		sim.Fault{Kind: sim.OutOfMemory, Probability: 0.1},
		sim.Fault{Kind: sim.LaunchFailure, Probability: 0.05},
		sim.Fault{Kind: sim.LateCompletion, Probability: 0.1, Delay: 50 * time.Microsecond},
	)}
}

// ownerSeeds returns the number of seeds that TestEveryBatchHasOneOwner runs with each schedule. The number is
// MILLRACE_OWNER_SEEDS, or by default 3, or 2 in a short run.
func ownerSeeds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("MILLRACE_OWNER_SEEDS")
	switch {
	case text == "" && testing.Short():
		return 2
	case text == "":
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("MILLRACE_OWNER_SEEDS: %v", err)
	}
	return n
}

// A batch has one owner at any time and comes back once, with the reference's results or an error. Nothing leaks. The
// test covers every schedule, every fault and every way to end.
func TestEveryBatchHasOneOwner(t *testing.T) {
	ops := operators(t, "crc32c,minhash?k=3&hashes=2")
	shared := streams.Schedule{Name: "shared", Lanes: 3, Buffers: 2, Topology: streams.StreamPerStage}
	seeds := ownerSeeds(t)
	for turn := range seeds {
		for i, s := range []streams.Schedule{streams.Serial, streams.Overlapped, streams.DoubleBuffered, shared, bySize()} {
			seed := uint64(turn + 2*i) // each schedule runs with a different set of lane counts
			o := streams.Options{Schedule: s, Lanes: 1 + int(seed%5), BatchBytes: 4 << 10, BatchPayloads: 8, Operators: ops}
			run := func(name string, d device.Device, total int, closeAfter int64) {
				t.Run(fmt.Sprintf("%s, %s, seed %d", s.Name, name, seed), func(t *testing.T) {
					p := newPipeline(t, d, o)
					tr := newTraffic(t, p, ops, total)
					tr.run(seed, closeAfter)
					tr.settled(closeAfter > 0)
				})
			}
			run("faults", openSim(t, uneven(seed)), 100, 0)
			run("loss", openSim(t, uneven(seed, sim.Fault{Kind: sim.DeviceLoss, Nth: int(40 + 7*seed)})), 100, 0)
			run("closed", openSim(t, uneven(seed)), 10000, int64(1+3*seed))
			run("host", openHost(t), 50, 0)
			run("host, copied", openCopyingHost(t), 50, 0)
		}
	}
}

// The same is true on a GPU. The stages of its batches are in order and the Stats are consistent, whatever times its
// clock returns.
func TestEveryBatchHasOneOwnerOnAGPU(t *testing.T) {
	ops := operators(t, "crc32c,minhash?k=3&hashes=2")
	shared := streams.Schedule{Name: "shared", Lanes: 3, Buffers: 2, Topology: streams.StreamPerStage}
	for _, s := range []streams.Schedule{streams.Serial, streams.Overlapped, streams.DoubleBuffered, shared, bySize()} {
		t.Run(s.Name, func(t *testing.T) {
			d := openCUDA(t)
			p := newPipeline(t, d, streams.Options{Schedule: s, Lanes: 4, BatchBytes: 4 << 10, BatchPayloads: 8, Operators: ops})
			tr := newTraffic(t, p, ops, 2000)
			tr.run(1, 0)
			tr.settled(false)
		})
	}
}
