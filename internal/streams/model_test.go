package streams_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"millrace/internal/device/sim"
	"millrace/internal/history"
	"millrace/internal/streams"
)

type modelState int

const (
	modelFree modelState = iota
	modelFilling
	modelInFlight // the batch is on a stalled stream
	modelDone     // the batch is in Completed, or was received
)

// modelBatch is the model's data about a batch that the caller owns or that is in flight.
type modelBatch struct {
	batch    *streams.Batch
	state    modelState
	rows     [][]byte
	received bool
}

// model predicts each step of a pipeline with one stream per lane. A batch on a stalled lane stays there. Any other
// batch is done once everything is idle.
type model struct {
	t       *testing.T
	random  *rand.Rand
	pipe    *streams.Pipeline
	dev     *spy
	lanes   int
	out     []*modelBatch // acquired and not released
	stalled map[int]func()
}

func TestPipelineAgreesWithAModelOfOwnership(t *testing.T) {
	history.Run(t, history.Bounds{Min: 40}, func(h *history.History) map[string]int {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(h)
			d := spyOn(openSim(t, sim.Options{Seed: h.Seed, Cost: sim.Units(unit)}))
			m := &model{t: t, random: random, dev: d, lanes: 1 + random.IntN(4), stalled: map[int]func(){}}
			m.pipe = newPipeline(t, d, streams.Options{
				Lanes: m.lanes, Schedule: streams.Schedule{Name: "model", Buffers: 1 + random.IntN(2)}, Operators: operators(t, "crc32c"),
			})
			for range 150 {
				m.step()
			}
			m.finish()
		})
		return nil
	})
}

// step performs one possible action, waits until everything is idle, and compares the pipeline with the model.
func (m *model) step() {
	switch m.random.IntN(6) {
	case 0, 1:
		if len(m.out) < m.pipe.Slots() {
			m.acquire()
		}
	case 2:
		if b := m.pick(modelFilling); b != nil {
			m.submit(b)
		}
	case 3:
		if b := m.pick(modelFilling); b != nil && m.random.IntN(3) == 0 {
			m.release(b)
		}
	case 4:
		m.receive()
		if b := m.pick(modelDone); b != nil && b.received {
			m.release(b)
		}
	case 5:
		m.turn(m.random.IntN(m.lanes))
	}
	synctest.Wait()
	m.compare()
}

func (m *model) pick(s modelState) *modelBatch {
	for _, i := range m.random.Perm(len(m.out)) {
		if m.out[i].state == s {
			return m.out[i]
		}
	}
	return nil
}

func (m *model) acquire() {
	busy := m.busy() // number of acquired batches per lane before the step
	b := acquire(m.t, m.pipe, nil)
	for lane, n := range busy {
		if n < m.pipe.Slots()/m.lanes && n < busy[b.ReadRecord().Lane] {
			m.t.Errorf("Acquire chose lane %d with %d batches out, although lane %d has %d", b.ReadRecord().Lane, busy[b.ReadRecord().Lane], lane, n)
		}
	}
	rows := someRows(m.random.Uint64(), 1+m.random.IntN(5), m.random.IntN(200))
	for _, row := range rows {
		if !b.Append(row) {
			m.t.Fatal("a small payload does not fit")
		}
	}
	m.out = append(m.out, &modelBatch{batch: b, state: modelFilling, rows: rows})
}

func (m *model) busy() []int {
	n := make([]int, m.lanes)
	for _, b := range m.out {
		n[b.batch.ReadRecord().Lane]++
	}
	return n
}

func (m *model) submit(b *modelBatch) {
	if err := b.batch.Submit(streams.ClosedByLinger); err != nil {
		m.t.Fatal(err)
	}
	b.state = modelDone
	if m.stalled[b.batch.ReadRecord().Lane] != nil {
		b.state = modelInFlight
	}
}

// receive takes one completed batch if the model predicts one, and checks its results.
func (m *model) receive() {
	waiting := 0
	for _, b := range m.out {
		if b.state == modelDone && !b.received {
			waiting++
		}
	}
	select {
	case got := <-m.pipe.Completed():
		for _, b := range m.out {
			if b.batch == got && b.state == modelDone && !b.received {
				wantResults(m.t, got, operators(m.t, "crc32c"), b.rows)
				b.received = true
				return
			}
		}
		m.t.Fatalf("batch %d on lane %d came back, which was not submitted or is stalled", got.ReadRecord().Batch, got.ReadRecord().Lane)
	default:
		if waiting > 0 {
			m.t.Fatalf("%d batches are done, but none came back", waiting)
		}
	}
}

func (m *model) release(b *modelBatch) {
	b.batch.Release()
	for i := range m.out {
		if m.out[i] == b {
			m.out = append(m.out[:i], m.out[i+1:]...)
			return
		}
	}
}

// turn opens the gate of a lane's stream if it is closed, and closes it otherwise.
func (m *model) turn(lane int) {
	if open := m.stalled[lane]; open != nil {
		open()
		delete(m.stalled, lane)
		for _, b := range m.out {
			if b.batch.ReadRecord().Lane == lane && b.state == modelInFlight {
				b.state = modelDone
			}
		}
		return
	}
	m.stalled[lane] = m.dev.gate(m.t, fmt.Sprintf("lane-%d", lane))
}

func (m *model) compare() {
	want := streams.LaneCounts{}
	for lane := range m.lanes {
		filling, inFlight := false, false
		for _, b := range m.out {
			if b.batch.ReadRecord().Lane == lane {
				filling = filling || b.state == modelFilling
				inFlight = inFlight || b.state == modelInFlight
			}
		}
		switch {
		case inFlight:
			want.InFlight++
		case filling:
			want.Filling++
		default:
			want.Free++
		}
		for _, b := range m.out {
			if b.batch.ReadRecord().Lane == lane && b.batch.LaneIdle() == inFlight {
				m.t.Fatalf("lane %d idle: %v, with a batch in flight: %v", lane, b.batch.LaneIdle(), inFlight)
			}
		}
	}
	got := stats(m.t, m.pipe)
	if got.Lanes != want || got.InHand != len(m.out) {
		m.t.Fatalf("lanes %+v with %d batches not released, the model says %+v and %d", got.Lanes, got.InHand, want, len(m.out))
	}
	if err := plausible(got, m.pipe.Slots()); err != nil {
		m.t.Fatal(err)
	}
}

// finish resumes every stream and releases every batch.
func (m *model) finish() {
	for lane := range m.stalled {
		m.turn(lane)
	}
	synctest.Wait()
	for range m.out {
		m.receive()
	}
	for len(m.out) > 0 {
		if b := m.out[0]; b.state == modelDone && !b.received {
			m.t.Fatalf("batch %d never came back", b.batch.ReadRecord().Batch)
		}
		m.release(m.out[0])
	}
	m.compare()
	if err := m.pipe.Drain(context.Background()); err != nil {
		m.t.Error(err)
	}
}
