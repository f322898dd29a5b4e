package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// operatorError has the headers of the dead letter of a payload on which an operator fails.
var operatorError = map[string]string{results.HeaderReason: string(results.OperatorError)}

// eachBlame runs a test in both delivery modes, with quick redeliveries. Messages in transit to an ended worker are
// redelivered after AckWait.
func eachBlame(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	eachMode(t, 2, func(t *testing.T, r *rig) {
		r.opts.AckWait, r.opts.MaxDeliver = 3*time.Second, 3
		r.provision()
		test(t, r)
	})
}

// upTo returns the numbers from 0 to n-1.
func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
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
			eachBlame(t, func(t *testing.T, r *rig) {
				r.opts.MaxDeliver = 5
				const n = 240
				r.publish(n, document)
				kernels := operator.HostKernels()
				d := &ailing{fails: c.fails, from: 3, times: c.times}
				if c.lies {
					d.lies = &atomic.Bool{}
					kernels[0] = liar(kernels[0], d.lies)
				}
				d.Device = openAiling(t, kernels)
				run := r.run(d, streams.Options{BatchPayloads: 40})
				if c.lost {
					run.wantLost()
					run = r.run(openAiling(t, operator.HostKernels()), streams.Options{BatchPayloads: 40})
				}
				r.awaitAllStored(n)
				run.finish()
				if !c.lies {
					r.wantAll(n, document)
					return
				}
				// The stream has the results that the device computed before its failure was detected.
				found, dead := r.stored("results.>"), r.deadLetters()
				for i := range n {
					if of := found[uint64(i+1)]; len(of) != 1 {
						t.Errorf("input %d has %d results, want 1", i+1, len(of))
					}
				}
				if len(dead) > 0 {
					t.Errorf("%d good payloads were given up", len(dead))
				}
			})
		})
	}
}

// awaitAllStored returns once n inputs are acknowledged because their results are stored. It waits as long as there
// is progress, because the worker after a lost device retries quarantined payloads one by one.
func (r *rig) awaitAllStored(n int) {
	r.Helper()
	for r.tally.stored() < n {
		select {
		case <-r.tally.changed:
		case <-time.After(patience):
			r.Fatalf("%d of %d stored, and nothing more for %v", r.tally.stored(), n, patience)
		}
	}
}

// TestALossThatNoKernelCausedBlamesNoPayload loses the device whenever it holds a certain payload, even alone, but
// not in a kernel. The losses outnumber the allowed deliveries. They may be chance, so the worker keeps the payload
// for a working device.
func TestALossThatNoKernelCausedBlamesNoPayload(t *testing.T) {
	eachBlame(t, func(t *testing.T, r *rig) {
		const n = 100
		payload := poisoned(44)
		r.publish(n, payload)
		for range 2 * r.opts.MaxDeliver {
			loss := device.Errorf("launch", "ailing", device.ErrLost, "injected")
			d := &ailing{Device: openAiling(t, operator.HostKernels()), fails: loss, from: 1, with: marker}
			r.run(d, streams.Options{BatchPayloads: 32}).wantLost()
		}
		run := r.run(openAiling(t, operator.HostKernels()), streams.Options{BatchPayloads: 32})
		r.awaitAllStored(n)
		run.finish()
		r.wantAll(n, payload)
	})
}

// TestPoisonIsFoundWithoutARestart uses payloads on which an operator fails. They are apart, adjacent, in rows longer
// than a broken device may fail on, or the only payloads. The worker compares a lone payload only with the probe.
// Batches are planned once the worker has every input, so they are full. A batch without a good payload would end the
// worker.
func TestPoisonIsFoundWithoutARestart(t *testing.T) {
	t.Parallel()
	row := upTo(100 + 3*quarantine.MaxInRow)[100:]
	for _, c := range []struct {
		name     string
		n, batch int
		bad      []int
	}{
		{"apart", 240, 80, []int{0, 100, 101, 239}}, // fits in the queue
		{"in a row", 240, 80, row},
		{"a lone payload", 1, 80, []int{0}},
		{"one by one", 3, 1, upTo(3)},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachBlame(t, func(t *testing.T, r *rig) {
				payload := unfitAt(c.bad...)
				r.publish(c.n, payload)
				kernels, w := watchKernels(pickyKernels())
				r.opts.Linger = 2 * time.Second
				run := r.prepare(openAiling(t, kernels), streams.Options{Lanes: 1, BatchPayloads: c.batch})
				open := w.holdPlans(t)
				run.start()
				minimum := int64(c.n) * run.worker.pool.DeliveryCost(0, 0, nil)
				for i := range c.n {
					minimum += int64(len(payload(i)))
				}
				until(t, "the worker has every input", func() bool { return run.worker.Memory().Used >= minimum })
				open()
				r.tally.await(t, inflight.DeadLettered, len(c.bad))
				r.publishFrom(c.n, c.n+1, payload)
				run.finishAfter(c.n + 1 - len(c.bad))
				r.wantApart(c.n+1, payload, operatorError, c.bad...)
				if held := run.worker.Status().HeldBack; held != 0 {
					t.Errorf("%d payloads are held back, and all were given up", held)
				}
				if !r.opts.Exclusive && c.batch > 1 { // a payload that failed alone is given back until another succeeds
					r.wantSettled(c.n + 1)
				}
			})
		})
	}
}

// TestAStreamOfPoisonStopsWorkersAndLosesNothing makes an operator fail on every payload except the probe's. More
// workers end than MaxDeliver allows deliveries, but no worker publishes a dead letter. The next worker processes all
// payloads. In batches of one payload, no batch has a second payload for comparison.
func TestAStreamOfPoisonStopsWorkersAndLosesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ batch, maxDeliver, lives int }{
		{1, 5, 1}, // payloads that failed alone too often would be given up in a later life
		{16, 3, 5},
	} {
		t.Run(fmt.Sprintf("batches of %d", c.batch), func(t *testing.T) {
			eachBlame(t, func(t *testing.T, r *rig) {
				r.opts.MaxDeliver = c.maxDeliver
				const n = 4 * quarantine.MaxInRow
				payload := unfitAt(upTo(n)...)
				r.publish(n, payload)
				for life := range c.lives {
					run := r.run(openAiling(t, pickyKernels()), streams.Options{Lanes: 1, BatchPayloads: c.batch})
					run.wantLost()
					if dead := r.tally.count(inflight.DeadLettered); dead > 0 {
						t.Fatalf("life %d: %d payloads were given up", life, dead)
					}
					if held := run.worker.Status().HeldBack; c.batch == 1 && held == 0 {
						t.Error("no payload counts as held back")
					}
				}
				run := r.run(openAiling(t, operator.HostKernels()), streams.Options{})
				r.awaitAllStored(n)
				run.finish()
				r.wantAll(n, payload)
			})
		})
	}
}

// TestWantOfMemoryIsNoPayloadsFault makes the device refuse scratch repeatedly while the worker bisects a failed
// batch.
func TestWantOfMemoryIsNoPayloadsFault(t *testing.T) {
	r := provisioned(t, func(o *Options) { o.MaxDeliver = 1000 })
	const n, bad = 300, 100
	payload := unfitAt(bad)
	r.publish(n, payload)
	d := openSim(t, pickyKernels(), sim.Fault{Kind: sim.OutOfMemory, Probability: 0.4})
	r.process(d, streams.Options{Lanes: 1, BatchPayloads: 30})
	r.wantApart(n, payload, operatorError, bad)
	if r.tally.count(inflight.Nacked) == 0 {
		t.Error("no batch was refused for want of memory: nothing was shown")
	}
}

// failing are operators that fail on records of unfit bytes. One fails for a whole batch, which is then bisected.
var failing = map[string]struct {
	open  func(r *rig, t testing.TB) device.Device
	error string // header of the dead letter
	fault string // reported for each record; empty for none
}{
	"that the device refuses":   {func(_ *rig, t testing.TB) device.Device { return openHost(t, pickyKernels()) }, "", ""},
	"that the operator refuses": {(*rig).refuse, "operator crc32c: " + notFitting, ""},
	"that spoil a batch":        {(*rig).spoil, "operator crc32c: a pass failed", "crc32c out_of_bounds"},
}

// TestAPayloadThatFailsIsADeadLetter shows that no other payload of its batch is lost, with and without commit markers.
func TestAPayloadThatFailsIsADeadLetter(t *testing.T) {
	t.Parallel()
	for name, c := range failing {
		for _, batch := range []int{1, 16, 1024} {
			t.Run(fmt.Sprintf("payloads %s, in batches of %d", name, batch), func(t *testing.T) {
				eachMode(t, 2, func(t *testing.T, r *rig) {
					d := c.open(r, t)
					if batch == 16 {
						r.opts.ExactlyOnce = topology.Off // which matters only to exclusive delivery
					}
					r.provision()
					const n = 60
					bad := []int{0, 17, 18, 59}
					payload := unfitAt(bad...)
					r.publish(n, payload)
					r.process(d, streams.Options{BatchPayloads: batch})
					headers := map[string]string{results.HeaderReason: string(results.OperatorError)}
					if c.error != "" {
						headers[results.HeaderError], headers[results.HeaderOperator] = c.error, "crc32c"
					}
					r.wantApart(n, payload, headers, bad...)
					if r.opts.Exclusive {
						r.wantInOrder()
					}
					if got := r.tally.count(inflight.DeadLettered); got != len(bad) {
						t.Errorf("%d dead letters are reported, want %d", got, len(bad))
					}
					if got, want := r.tally.operatorFaults(), slices.Repeat([]string{c.fault}, len(bad)); c.fault != "" && !slices.Equal(got, want) {
						t.Errorf("faults %v, want %v", got, want)
					}
				})
			})
		}
	}
}

// TestARefusedPayloadBesideOneThatFails computes a batch again in parts. Each part must keep the refusals.
func TestARefusedPayloadBesideOneThatFails(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, r *rig) {
		kernels := r.refuseAlso(noOther)
		kernels[1] = picky(kernels[1], false)
		r.provision()
		const n, fails = 40, 11
		refuses := []int{3, 12, 30}
		payload := func(i int) []byte {
			if slices.Contains(refuses, i) {
				return make([]byte, refused)
			}
			return unfitAt(fails)(i)
		}
		r.publish(n, payload)
		r.process(openHost(t, kernels), streams.Options{BatchPayloads: 16})
		r.wantApart(n, payload, operatorError, append(refuses, fails)...)
		for input, letters := range r.deadLetters() {
			h, want := letters[0].Headers(), "operator crc32c: "+notFitting
			if input == fails+1 {
				want = "the results need"
			}
			if h.Get(results.HeaderOperator) == "" || !strings.Contains(h.Get(results.HeaderError), want) {
				t.Errorf("the dead letter of input %d says %q of operator %q, want %q", input,
					h.Get(results.HeaderError), h.Get(results.HeaderOperator), want)
			}
		}
	})
}

// poisoned returns a function that makes small payloads. The payloads at the indices in at break the device.
func poisoned(at ...int) func(i int) []byte {
	return func(i int) []byte {
		b := fmt.Appendf(nil, "payload %d", i)
		if slices.Contains(at, i) {
			b = append(b, marker...)
		}
		return b
	}
}

// deviceFault has the headers of the dead letter of a payload that breaks a device.
var deviceFault = map[string]string{results.HeaderReason: string(results.DeviceFault)}

// supervise runs workers one after another, like a supervisor, until all inputs are settled. It returns the number of
// workers that lost their device.
func (r *rig) supervise(start func() *running) (losses int) {
	r.Helper()
	const limit = 100 // far more than allowed
	for ; losses < limit; losses++ {
		run := start()
		finished := r.awaitEnd(run)
		switch err := run.drain(); {
		case finished && err == nil:
			return losses
		case !errors.Is(err, device.ErrLost):
			r.Fatalf("Run = %v, want a lost device", err)
		case finished: // the worker died with the last unsettled input
			return losses + 1
		}
	}
	r.Fatalf("%d workers were lost, and the inputs are not settled", losses)
	return losses
}

// awaitEnd returns true once all inputs are settled, or false if the worker ends before.
func (r *rig) awaitEnd(run *running) (finished bool) {
	r.Helper()
	r.Until("every input is settled, or the worker has ended", func() bool {
		if len(run.done) > 0 {
			return true
		}
		finished = r.allSettled()
		return finished
	})
	return finished
}

// TestPoisonIsFoundAndAllElseProcessed uses a device that any batch with a poisonous payload breaks. The device
// reports its loss before the process ends.
func TestPoisonIsFoundAndAllElseProcessed(t *testing.T) {
	eachMode(t, 3, func(t *testing.T, r *rig) {
		const n, batch = 900, 128
		r.opts.MaxDeliver = 10
		r.provision()
		poison := []int{100, 101, 800}
		payload := poisoned(poison...)
		r.publish(n, payload)
		losses := r.supervise(func() *running { return r.run(poisonedSim(t), streams.Options{BatchPayloads: batch}) })
		r.wantApart(n, payload, deviceFault, poison...)
		// one is the number of losses for one payload: when it is new, at each level, and alone again.
		one := quarantine.Levels{Full: batch, Limit: 10}.AloneLevel() + quarantine.LoneRuns
		if r.opts.Exclusive {
			one = 9 // a lease halves the batches that follow the last acknowledgement
		}
		if losses < quarantine.LoneRuns || losses > one*len(poison) {
			t.Errorf("%d devices were lost for %d payloads, want %d to %d", losses, len(poison), quarantine.LoneRuns, one*len(poison))
		}
	})
}

// TestARecordThatLosesTheDeviceFailsAlone lets workers lose their devices one after another, until exactly the
// records to blame are given up.
func TestARecordThatLosesTheDeviceFailsAlone(t *testing.T) {
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
		r.opts.MaxDeliver = 10
		var inputs []framed
		for seed := range uint64(6) {
			inputs = append(inputs, manyLines(seed, 3*int(seed)))
		}
		for n, lethal := range map[int][]int{2: {5, 19}, 4: {0}} {
			in := lines(slices.Repeat([][]byte{[]byte("record")}, 20)...)
			in.statuses = make([]record.Status, len(in.records))
			for _, at := range lethal {
				in.records[at], in.statuses[at] = bytes.Clone(marker), record.DeviceFault
			}
			in.body = lines(in.records...).body
			inputs[n] = in
		}
		r.provision()
		r.publishFrames(inputs)
		losses := r.supervise(func() *running { return r.run(poisonedSim(t), streams.Options{BatchPayloads: 32}) })
		t.Logf("%d devices were lost", losses)
		r.wantFrames(inputs)
	})
}
