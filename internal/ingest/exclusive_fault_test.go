package ingest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// poison is a payload that loses the device on which it is computed.
var poison = []byte("~POISON~")

// superviseExclusive runs workers one after another, like a supervisor, on a device that poison loses. It stops when
// n inputs are settled, and returns the number of workers that died.
func superviseExclusive(t *testing.T, r *rig, n int) (deaths int) {
	t.Helper()
	for {
		d := simDevice(t, sim.Fault{Kind: sim.DeviceLoss, Marker: poison})
		run := r.run(d, streams.Options{BatchPayloads: 128})
		err := error(nil)
		for alive := true; alive; {
			select {
			case err = <-run.done:
				run.done <- err
				alive = false
			case <-r.tally.changed:
				if r.tally.stored()+r.tally.count(inflight.DeadLettered) >= n {
					err, alive = run.drain(), false
				}
			case <-time.After(patience):
				t.Fatalf("nothing has been settled for %v: %d stored, %d dead letters of %d", patience, r.tally.stored(),
					r.tally.count(inflight.DeadLettered), n)
			}
		}
		switch {
		case errors.Is(err, device.ErrLost):
			deaths++
		case err != nil:
			t.Fatalf("Run: %v", err)
		default:
			return deaths
		}
	}
}

func TestExclusiveDeadLettersOfDeviceFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		partitions int
		poisoned   []int
	}{
		"one payload":                      {1, []int{170}},
		"three payloads, three partitions": {3, []int{3, 100, 290}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := exclusiveRig(t, c.partitions)
			const n = 300
			bad := map[int]bool{}
			for _, i := range c.poisoned {
				bad[i] = true
			}
			r.publish(n, func(i int) []byte {
				if bad[i] {
					return bytes.Clone(poison)
				}
				return document(i)
			})
			deaths := superviseExclusive(t, r, n)
			letters := r.storedIn(deadStream, "deadletter.>")
			for i := range bad {
				of := letters[uint64(i+1)]
				if len(of) != 1 || of[0].Headers().Get(results.HeaderReason) != string(results.DeviceFault) {
					t.Errorf("payload %d breaks the device: %d dead letters of it, %v", i, len(of), of)
				}
			}
			found := r.stored("results.>")
			for i := range n {
				if got := len(found[uint64(i+1)]); !bad[i] && got != 1 {
					t.Errorf("payload %d has %d results", i, got)
				}
			}
			if len(letters) != len(bad) || len(found) != n-len(bad) {
				t.Errorf("%d dead letters and %d results of %d payloads, %d of which break the device", len(letters), len(found), n, len(bad))
			}
			if maximum := 9 * len(bad); deaths > maximum || deaths == 0 {
				t.Errorf("%d workers died of it, want at most %d", deaths, maximum)
			}
			t.Logf("%d payloads that break the device took %d workers", len(bad), deaths)
		})
	}
}
