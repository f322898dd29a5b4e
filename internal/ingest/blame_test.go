package ingest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// ailing is a device on which batches fail, starting with number from.
type ailing struct {
	device.Device
	fails error // error of a refused batch; an error that wraps ErrLost loses the device
	from  int   // number of the first batch that fails, from 1
	times int   // number of batches that fail; 0 means all
	lies  *atomic.Bool
	with  []byte // text in the payloads whose batches fail; nil means all batches

	mu      sync.Mutex
	batches int
	lost    error
}

func (d *ailing) Enqueue(commands []device.Command) error {
	if d.concerns(commands) {
		if err := d.next(); err != nil {
			return err
		}
	}
	return d.Device.Enqueue(commands)
}

func (d *ailing) concerns(commands []device.Command) bool {
	for _, c := range commands {
		if c.Kind == device.DoCopyIn && bytes.Contains(c.Host.Bytes(), d.with) {
			return true
		}
	}
	return d.with == nil
}

func (d *ailing) next() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost != nil {
		return d.lost
	}
	d.batches++
	if d.batches < d.from || d.times > 0 && d.batches >= d.from+d.times {
		return nil
	}
	if d.lies != nil {
		d.lies.Store(true)
	}
	if errors.Is(d.fails, device.ErrLost) {
		d.lost = d.fails
	}
	return d.fails
}

func (d *ailing) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost != nil {
		return d.lost
	}
	return d.Device.Err()
}

func (d *ailing) Check(ctx context.Context) error {
	if err := d.Err(); err != nil {
		return err
	}
	return d.Device.Check(ctx)
}

// liar is an operator that computes wrong results once lies is set.
type liar struct {
	device.HostKernel
	lies *atomic.Bool
}

func (l liar) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := l.HostKernel.Bind(params)
	return liarBound{b, l.lies}, err
}

type liarBound struct {
	device.BoundHostKernel
	lies *atomic.Bool
}

func (l liarBound) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	err := l.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
	if l.lies.Load() {
		result[0] ^= 1
	}
	return err
}

// eachBlame runs a test in both delivery modes, with streams and quick redeliveries.
func eachBlame(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Split = frame.Splitter{}
		// Messages in transit to an ended worker are redelivered after AckWait.
		r.opts.AckWait = 3 * time.Second
		r.provision()
		test(t, r)
	})
}

// openAiling opens a host device for use in an ailing one. It ignores the error of Close, because a pipeline may
// leave resources open there.
func openAiling(t testing.TB, kernels []device.HostKernel) device.Device {
	t.Helper()
	d, err := host.Open(host.Options{Cores: 2, Kernels: kernels})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.Close()
		d = nil // as in openHost
	})
	return d
}

// TestAnAilingDeviceBlamesNoPayload makes a device fail on good payloads in every known or conceivable way.
func TestAnAilingDeviceBlamesNoPayload(t *testing.T) {
	t.Parallel()
	invalid := device.Errorf("launch", "ailing", device.ErrInvalid, "injected")
	refused, unknown := device.Errorf("launch", "ailing", device.ErrLaunch, "injected"), errors.New("injected")
	for _, c := range []struct {
		name  string
		fails error
		times int  // number of batches that fail; 0 means all
		lies  bool // whether the device computes wrong results from its first failure on
		lost  bool // whether the failure ends the worker
	}{
		{"invalid argument, once", invalid, 1, false, false},
		{"invalid argument, for ever", invalid, 0, false, true},
		{"invalid argument, and wrong results", invalid, 1, true, true},
		{"refused launch, once", refused, 1, false, false},
		{"an error that nobody knows, for ever", unknown, 0, false, true},
		{"loss by no kernel", device.Errorf("launch", "ailing", device.ErrLost, "injected"), 0, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachBlame(t, func(t *testing.T, r *rig) {
				const n = 240
				r.publish(n, document)
				kernels := operator.HostKernels()
				d := &ailing{fails: c.fails, from: 3, times: c.times}
				if c.lies {
					d.lies = &atomic.Bool{}
					kernels[0] = liar{kernels[0], d.lies}
				}
				d.Device = openAiling(t, kernels)
				first := r.run(d, streams.Options{BatchPayloads: 40})
				if c.lost {
					if err := first.wait(); !errors.Is(err, device.ErrLost) {
						t.Fatalf("Run = %v, want a lost device", err)
					}
					first = r.run(openAiling(t, operator.HostKernels()), streams.Options{BatchPayloads: 40})
				}
				r.awaitAllStored(t, n)
				if err := first.drain(); err != nil {
					t.Fatalf("Run: %v", err)
				}
				// The stream has the results that the device computed before its failure was detected.
				if found := r.stored("results.>"); c.lies {
					r.wantOnce(n, found)
				} else {
					r.wantAll(n, document)
				}
				if dead := len(r.storedIn(deadStream, "deadletter.>")); dead > 0 {
					t.Errorf("%d good payloads were given up", dead)
				}
			})
		})
	}
}

// awaitAllStored returns once n inputs are acknowledged because their results are stored. It waits as long as there
// is progress, because the worker after a lost device retries quarantined payloads one by one.
func (r *rig) awaitAllStored(t *testing.T, n int) {
	t.Helper()
	for r.tally.stored() < n {
		select {
		case <-r.tally.changed:
		case <-time.After(patience):
			t.Fatalf("%d of %d stored, and nothing more for %v", r.tally.stored(), n, patience)
		}
	}
}

func (r *rig) wantOnce(n int, found map[uint64][]jetstream.Msg) {
	r.Helper()
	for i := range n {
		if of := found[uint64(i+1)]; len(of) != 1 {
			r.Errorf("input %d has %d results, want 1", i+1, len(of))
		}
	}
}

// TestALossThatNoKernelCausedBlamesNoPayload loses the device whenever it holds a certain payload, even alone, but
// not in a kernel. The losses outnumber the allowed deliveries. They may be chance, so the worker keeps the payload
// for a working device.
func TestALossThatNoKernelCausedBlamesNoPayload(t *testing.T) {
	t.Parallel()
	eachBlame(t, func(t *testing.T, r *rig) {
		r.opts.MaxDeliver = 3
		const n = 100
		payload := poisoned(44)
		r.publish(n, payload)
		for life := range 2 * r.opts.MaxDeliver {
			d := &ailing{Device: openAiling(t, operator.HostKernels()), fails: device.Errorf("launch", "ailing", device.ErrLost, "injected"), from: 1, with: marker}
			run := r.run(d, streams.Options{BatchPayloads: 32})
			if err := run.wait(); !errors.Is(err, device.ErrLost) {
				t.Fatalf("life %d: Run = %v, want a lost device", life, err)
			}
		}
		run := r.run(openAiling(t, operator.HostKernels()), streams.Options{BatchPayloads: 32})
		r.awaitAllStored(t, n)
		if err := run.drain(); err != nil {
			t.Fatalf("Run: %v", err)
		}
		r.wantAll(n, payload)
		if dead := len(r.storedIn(deadStream, "deadletter.>")); dead > 0 {
			t.Errorf("%d payloads were given up", dead)
		}
	})
}

// TestPoisonOneByOne uses batches of one payload, so no batch has a second payload for comparison.
func TestPoisonOneByOne(t *testing.T) {
	t.Parallel()
	const few, many = 3, 4 * quarantine.MaxInRow
	t.Run("few", func(t *testing.T) {
		t.Parallel()
		eachBlame(t, func(t *testing.T, r *rig) {
			r.opts.MaxDeliver = 3
			payload := unfitAt(0, 1, 2)
			r.publish(few, payload)
			run := r.run(openAiling(t, pickyKernels()), streams.Options{BatchPayloads: 1})
			r.tally.await(t, inflight.DeadLettered, few)
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			r.wantOnlyDead(few, payload, []int{0, 1, 2})
			if held := run.worker.Status().HeldBack; held != 0 {
				t.Errorf("%d payloads are held back, and all were given up", held)
			}
		})
	})
	t.Run("many", func(t *testing.T) {
		t.Parallel()
		eachBlame(t, func(t *testing.T, r *rig) {
			all := make([]int, many)
			for i := range all {
				all[i] = i
			}
			r.publish(many, unfitAt(all...))
			run := r.run(openAiling(t, pickyKernels()), streams.Options{BatchPayloads: 1})
			if err := run.wait(); !errors.Is(err, device.ErrLost) {
				t.Fatalf("Run = %v, want a lost device", err)
			}
			if dead := r.tally.count(inflight.DeadLettered); dead > 0 {
				t.Errorf("%d payloads were given up", dead)
			}
			if held := run.worker.Status().HeldBack; held == 0 {
				t.Error("no payload counts as held back")
			}
		})
	})
}

// TestPoisonAmongGoodPayloadsIsFoundWithoutARestart uses payloads on which an operator fails. They are apart,
// adjacent, or in rows longer than a broken device may fail on. Batches are planned once the worker has every input,
// so they are full. A batch without a good payload would end the worker.
func TestPoisonAmongGoodPayloadsIsFoundWithoutARestart(t *testing.T) {
	t.Parallel()
	row := make([]int, 3*quarantine.MaxInRow)
	for i := range row {
		row[i] = 100 + i
	}
	for name, bad := range map[string][]int{"apart": {0, 100, 101, 239}, "in a row": row} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachBlame(t, func(t *testing.T, r *rig) {
				const n = 240 // fits in the queue
				payload := unfitAt(bad...)
				r.publish(n, payload)
				kernels, w := watchKernels(pickyKernels())
				r.opts.Linger = 2 * time.Second
				run := r.prepare(openAiling(t, kernels), streams.Options{Lanes: 1, BatchPayloads: 80})
				open := w.holdPlans(t)
				run.start()
				minimum := n * run.worker.pool.DeliveryCost(0, 0, nil)
				for i := range n {
					minimum += int64(len(payload(i)))
				}
				until(t, "the worker has every input", func() bool { return run.worker.Memory().Used >= minimum })
				open()
				r.tally.await(t, inflight.DeadLettered, len(bad))
				r.tally.awaitStored(t, n-len(bad))
				if err := run.drain(); err != nil {
					t.Fatalf("Run: %v", err)
				}
				r.wantOnlyDead(n, payload, bad)
				if !r.opts.Exclusive {
					r.wantSettled(n)
				}
				if s := run.worker.Status(); s.InHand != 0 {
					t.Errorf("%d batches in hand after the end", s.InHand)
				}
			})
		})
	}
}

// wantOnlyDead checks that each payload in bad has a dead letter for an operator failure, and every other payload a result.
func (r *rig) wantOnlyDead(n int, payload func(int) []byte, bad []int) {
	r.Helper()
	found, dead := r.stored("results.>"), r.storedIn(deadStream, "deadletter.>")
	for _, i := range bad {
		if of := dead[uint64(i+1)]; len(of) != 1 || of[0].Headers().Get(results.HeaderReason) != string(results.OperatorError) {
			r.Errorf("payload %d: %d dead letters, want one for an operator's failure", i, len(of))
		}
		if len(found[uint64(i+1)]) > 0 {
			r.Errorf("payload %d has a result", i)
		}
	}
	if len(dead) != len(bad) || len(found) != n-len(bad) {
		r.Errorf("%d dead letters and %d results, want %d and %d", len(dead), len(found), len(bad), n-len(bad))
	}
	for seq, of := range found {
		if len(of) != 1 {
			r.Errorf("input %d has %d results", seq, len(of))
		}
		if err := r.opts.Format.Check(r.opts.Operators, payload(int(seq)-1), of[0].Data()); err != nil {
			r.Errorf("result of input %d: %v", seq, err)
		}
	}
}

// TestALonePoisonousPayloadIsGivenUp publishes a single payload. The worker can compare it only with the probe.
func TestALonePoisonousPayloadIsGivenUp(t *testing.T) {
	t.Parallel()
	eachBlame(t, func(t *testing.T, r *rig) {
		payload := unfitAt(0)
		run := r.run(openAiling(t, pickyKernels()), streams.Options{})
		r.publish(1, payload)
		r.tally.await(t, inflight.DeadLettered, 1)
		r.publishFrom(1, 50, payload)
		r.tally.awaitStored(t, 49)
		if err := run.drain(); err != nil {
			t.Fatalf("Run: %v", err)
		}
		r.wantOnlyDead(50, payload, []int{0})
	})
}

// TestAStreamOfPoisonStopsWorkersAndLosesNothing makes an operator fail on every payload except the probe's. More
// workers end than MaxDeliver allows deliveries, but no worker publishes a dead letter. The next worker processes all
// payloads.
func TestAStreamOfPoisonStopsWorkersAndLosesNothing(t *testing.T) {
	t.Parallel()
	eachBlame(t, func(t *testing.T, r *rig) {
		r.opts.MaxDeliver = 3
		const n = 32
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		payload := unfitAt(all...)
		r.publish(n, payload)
		for life := range 5 {
			run := r.run(openAiling(t, pickyKernels()), streams.Options{Lanes: 1, BatchPayloads: 16})
			if err := run.wait(); !errors.Is(err, device.ErrLost) {
				t.Fatalf("life %d: Run = %v, want a lost device", life, err)
			}
			if dead := r.tally.count(inflight.DeadLettered); dead > 0 {
				t.Fatalf("life %d: %d payloads were given up", life, dead)
			}
		}
		run := r.run(openAiling(t, operator.HostKernels()), streams.Options{})
		r.awaitAllStored(t, n)
		if err := run.drain(); err != nil {
			t.Fatalf("Run: %v", err)
		}
		r.wantAll(n, payload)
	})
}

// TestDeadLettersAreNoProgress shows that publishing only dead letters is not progress. Payloads that are refused on
// receipt are never in flight.
func TestDeadLettersAreNoProgress(t *testing.T) {
	t.Parallel()
	eachBlame(t, func(t *testing.T, r *rig) {
		run := r.run(openAiling(t, pickyKernels()), streams.Options{BatchBytes: 2 * unfit})
		payload := func(i int) []byte {
			return bytes.Repeat([]byte{'x'}, []int{10, unfit, 2*unfit + 1, 20}[i])
		}
		r.publishFrom(0, 1, payload)
		r.tally.awaitStored(t, 1)
		before := run.worker.Status().Progress
		for i := 1; i <= 2; i++ {
			r.publishFrom(i, i+1, payload)
			r.tally.await(t, inflight.DeadLettered, i)
			until(t, "nothing is in hand", func() bool { return run.worker.Status().InHand == 0 })
		}
		if after := run.worker.Status().Progress; !after.Equal(before) {
			t.Errorf("two dead letters moved progress by %v", after.Sub(before))
		}
		r.publishFrom(3, 4, payload)
		r.tally.awaitStored(t, 2)
		if after := run.worker.Status().Progress; !after.After(before) {
			t.Error("a result did not move progress")
		}
		if err := run.drain(); err != nil {
			t.Fatalf("Run: %v", err)
		}
	})
}
