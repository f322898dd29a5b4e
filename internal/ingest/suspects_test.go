package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// marker is in each payload that breaks a device.
var marker = []byte("\x00breaks the device\x00")

// poisoned makes small payloads. Those at the indices in at break the device.
func poisoned(at ...int) func(i int) []byte {
	return func(i int) []byte {
		b := fmt.Appendf(nil, "payload %d", i)
		if slices.Contains(at, i) {
			b = append(b, marker...)
		}
		return b
	}
}

// supervise runs workers, one after another, as a supervisor does, until all n inputs are settled. It returns the number of
// workers that lost their device.
func (r *rig) supervise(n int, start func() *running) (losses int) {
	r.t.Helper()
	const most = 100 // far more than are allowed
	for ; losses < most; losses++ {
		run := start()
		finished := r.awaitEnd(run, n)
		switch err := run.drain(); {
		case finished && err == nil:
			return losses
		case !errors.Is(err, device.ErrLost):
			r.t.Fatalf("Run = %v, want a lost device", err)
		case finished: // the worker was lost with the last unsettled input
			return losses + 1
		}
	}
	r.t.Fatalf("%d workers were lost, and the inputs are not settled", losses)
	return losses
}

// awaitEnd returns true once all n inputs are settled, or false once the worker has ended.
func (r *rig) awaitEnd(run *running, n int) (finished bool) {
	r.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(4 * patience)
	for {
		select {
		case err := <-run.done:
			run.done <- err
			return false
		case <-look.C:
			info := r.consumerInfo()
			if info.NumPending == 0 && info.NumAckPending == 0 && info.AckFloor.Stream == uint64(n) {
				return true
			}
		case <-deadline:
			r.t.Fatalf("after %v neither is every input settled nor the device lost", 4*patience)
		}
	}
}

// wantPoisonApart checks that every good payload of n has one result, and each of the others a dead letter that states the cause.
func (r *rig) wantPoisonApart(n int, payload func(i int) []byte, poison ...int) {
	r.t.Helper()
	found, dead := r.stored("results.>"), r.storedIn(deadStream, "deadletter.>")
	for i := range n {
		seq := uint64(i + 1)
		want := 1
		if slices.Contains(poison, i) {
			want = 0
		}
		if len(found[seq]) != want || len(dead[seq]) != 1-want {
			r.t.Fatalf("input %d has %d results and %d dead letters, want %d and %d", seq, len(found[seq]), len(dead[seq]), want, 1-want)
		}
	}
	if len(found) != n-len(poison) || len(dead) != len(poison) {
		r.t.Errorf("results of %d inputs and dead letters of %d, want %d and %d", len(found), len(dead), n-len(poison), len(poison))
	}
	for _, i := range poison {
		m := dead[uint64(i+1)][0]
		wantHeaders(r.t, m.Headers(), map[string]string{results.HeaderReason: string(results.DeviceFault)})
		if !bytes.Equal(m.Data(), payload(i)) {
			r.t.Errorf("the dead letter of input %d is not its payload", i+1)
		}
	}
}

// TestPoisonIsFoundAndAllElseProcessed has devices that are lost with every batch that contains a poisonous payload, and that
// report the loss before the process ends. With -short they have three such payloads, not one.
func TestPoisonIsFoundAndAllElseProcessed(t *testing.T) {
	t.Parallel()
	const n = 10000
	for _, c := range []struct {
		name   string
		open   func(*rig) device.Device
		poison []int
	}{
		{"one on a simulated device", poisonedSim, []int{5000}},
		{"three on a simulated device", poisonedSim, []int{700, 701, 9000}},
		{"one on the host", poisonedHost, []int{5000}},
		{"three on the host", poisonedHost, []int{0, 4000, n - 1}},
	} {
		if testing.Short() && len(c.poison) == 1 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.MaxDeliver = 10
			r.provision()
			payload := poisoned(c.poison...)
			r.publish(n, payload)
			losses := r.supervise(n, func() *running { return r.run(c.open(r), streams.Config{}) })
			r.wantPoisonApart(n, payload, c.poison...)
			one := quarantine.Levels{Full: 1024, Limit: 10}.Alone() + quarantine.LoneRuns // losses for one payload: as a new payload, at each level, and alone again
			t.Logf("%d losses for %d payloads", losses, len(c.poison))
			if losses < quarantine.LoneRuns+1 || losses > one*len(c.poison) {
				t.Errorf("%d devices were lost, want %d to %d", losses, quarantine.LoneRuns+1, one*len(c.poison))
			}
		})
	}
}

// poisonedSim opens a simulated device that the marker breaks.
func poisonedSim(r *rig) device.Device {
	return simDevice(r.t, sim.Fault{Kind: sim.DeviceLoss, Marker: marker})
}

// poisonedHost opens a host device with an operator that fails on the marker, so that the device is lost.
func poisonedHost(r *rig) device.Device {
	kernels := operator.HostKernels()
	kernels[0] = poisonable{kernels[0]}
	d, err := host.Open(host.Options{Cores: 2, Kernels: kernels})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := d.Close(); err != nil && d.Err() == nil { // a lost device cannot be closed without an error
			r.t.Errorf("closing the device: %v", err)
		}
	})
	return d
}

// poisonable is an operator that fails on the marker.
type poisonable struct{ device.HostKernel }

func (p poisonable) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := p.HostKernel.Bind(params)
	return poisonableBound{b}, err
}

type poisonableBound struct{ device.BoundHostKernel }

func (p poisonableBound) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	if bytes.Contains(rows, marker) {
		return errors.New("a row holds the marker")
	}
	return p.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
}
