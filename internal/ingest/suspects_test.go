package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// marker is part of each payload that breaks a device.
var marker = []byte("\x00breaks the device\x00")

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

// supervise runs workers one after another, like a supervisor, until all n inputs are settled. It returns the number
// of workers that lost their device.
func (r *rig) supervise(n int, start func() *running) (losses int) {
	r.Helper()
	const limit = 100 // far more than allowed
	for ; losses < limit; losses++ {
		run := start()
		finished := r.awaitEnd(run, n)
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

// awaitEnd returns true once all n inputs are settled, or false if the worker ends before.
func (r *rig) awaitEnd(run *running, n int) (finished bool) {
	r.Helper()
	r.Until("every input is settled, or the worker has ended", func() bool {
		if len(run.done) > 0 {
			return true
		}
		info := r.consumerInfo()
		finished = info.NumPending == 0 && info.NumAckPending == 0 && info.AckFloor.Stream == uint64(n)
		return finished
	})
	return finished
}

// wantPoisonApart checks that every good payload of n has one result. Each payload in poison must have a dead letter
// that states the cause.
func (r *rig) wantPoisonApart(n int, payload func(i int) []byte, poison ...int) {
	r.Helper()
	found, dead := r.stored("results.>"), r.storedIn(deadStream, "deadletter.>")
	for i := range n {
		seq := uint64(i + 1)
		want := 1
		if slices.Contains(poison, i) {
			want = 0
		}
		if len(found[seq]) != want || len(dead[seq]) != 1-want {
			r.Fatalf("input %d has %d results and %d dead letters, want %d and %d", seq, len(found[seq]), len(dead[seq]), want, 1-want)
		}
	}
	if len(found) != n-len(poison) || len(dead) != len(poison) {
		r.Errorf("results of %d inputs and dead letters of %d, want %d and %d", len(found), len(dead), n-len(poison), len(poison))
	}
	for _, i := range poison {
		m := dead[uint64(i+1)][0]
		wantHeaders(r.TB, m.Headers(), map[string]string{results.HeaderReason: string(results.DeviceFault)})
		if !bytes.Equal(m.Data(), payload(i)) {
			r.Errorf("the dead letter of input %d is not its payload", i+1)
		}
	}
}

// TestPoisonIsFoundAndAllElseProcessed uses a device that any batch with a poisonous payload breaks. The device
// reports its loss before the process ends.
func TestPoisonIsFoundAndAllElseProcessed(t *testing.T) {
	t.Parallel()
	const n, batch = 1500, 128
	r := newRig(t)
	r.opts.MaxDeliver = 10
	r.provision()
	poison := []int{100, 101, 1400}
	payload := poisoned(poison...)
	r.publish(n, payload)
	losses := r.supervise(n, func() *running { return r.run(poisonedSim(r), streams.Options{BatchPayloads: batch}) })
	r.wantPoisonApart(n, payload, poison...)
	// one is the number of losses for one payload: when it is new, at each level, and alone again.
	one := quarantine.Levels{Full: batch, Limit: 10}.AloneLevel() + quarantine.LoneRuns
	t.Logf("%d losses for %d payloads", losses, len(poison))
	if losses < quarantine.LoneRuns+1 || losses > one*len(poison) {
		t.Errorf("%d devices were lost, want %d to %d", losses, quarantine.LoneRuns+1, one*len(poison))
	}
}

func poisonedSim(r *rig) device.Device {
	return simDevice(r.TB, sim.Fault{Kind: sim.DeviceLoss, Marker: marker})
}
