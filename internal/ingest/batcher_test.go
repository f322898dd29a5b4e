package ingest

import (
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// someBytes returns a function that makes payloads whose sizes cycle through sizes.
func someBytes(sizes ...int) func(i int) []byte {
	return func(i int) []byte {
		b := make([]byte, sizes[i%len(sizes)])
		for k := range b {
			b[k] = byte(i + k)
		}
		return b
	}
}

func TestLonePayloadDoesNotWaitForTheLinger(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.opts.Linger = 2 * patience
	seen := &records{}
	r.opts.Records = seen
	run := r.run(hostDevice(t), streams.Options{})
	r.publish(1, document)
	r.tally.await(t, inflight.Published, 1) // fails after half the linger time
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(1, document)
	if b := seen.batch(t, 1); b.Payloads != 1 || b.Closed != streams.ClosedByLinger {
		t.Errorf("the batch has %d payloads, closed by %v, want 1 and linger", b.Payloads, b.Closed)
	}
}

// TestBusyLaneFillsItsBatch holds one payload on the only lane, so the next batch waits for more payloads. It checks
// which limit ends the wait.
func TestBusyLaneFillsItsBatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		sizes  []int // sizes of the payloads after the first
		rows   int   // payloads in the second batch
		bytes  int   // bytes in the second batch
		linger time.Duration
		want   streams.CloseReason
	}{
		{"count", []int{1, 0, 3, 4, 5, 6, 7}, 5, 13, 2 * patience, streams.ClosedByCount},
		{"bytes reached", []int{400, 600, 1}, 2, 1000, 2 * patience, streams.ClosedByBytes},
		{"bytes exceeded", []int{400, 601, 1}, 1, 400, 2 * patience, streams.ClosedByBytes},
		{"one payload of the whole batch", []int{1000, 1000}, 1, 1000, 2 * patience, streams.ClosedByBytes},
		{"linger", []int{400}, 1, 400, 20 * time.Millisecond, streams.ClosedByLinger},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.provision()
			r.opts.Linger = c.linger
			sizes := append([]int{10}, c.sizes...)
			seen := &records{}
			d, w := watchedDevice(t)
			r.opts.Records = seen
			run := r.prepare(d, streams.Options{Lanes: 1, BatchBytes: 1000, BatchPayloads: 5})
			open := w.hold(t)
			r.publish(1, someBytes(sizes...))
			run.start()
			w.await(t, 1, 10)
			r.publishFrom(1, len(sizes), someBytes(sizes...))
			w.await(t, c.rows, c.bytes)
			open()
			r.tally.await(t, inflight.Published, len(sizes))
			if err := run.drain(); err != nil {
				t.Fatal(err)
			}
			if b := seen.batch(t, 2); b.Payloads != c.rows || b.Closed != c.want {
				t.Errorf("the second batch has %d payloads, closed by %v, want %d and %v", b.Payloads, b.Closed, c.rows, c.want)
			}
			r.wantAll(len(sizes), someBytes(sizes...))
			r.wantSettled(len(sizes))
		})
	}
}

func TestDrainClosesTheFillingBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.opts.Linger = 2 * patience
	seen := &records{}
	d, w := watchedDevice(t)
	r.opts.Records = seen
	run := r.prepare(d, streams.Options{Lanes: 1})
	open := w.hold(t)
	payload := someBytes(10, 20)
	r.publish(1, payload)
	run.start()
	w.await(t, 1, 10)
	r.publishFrom(1, 2, payload)
	until(t, "the second batch is begun", func() bool { return run.worker.Status().InHand == 2 })
	run.stop()
	w.await(t, 1, 20)
	open()
	if err := run.wait(); err != nil {
		t.Fatal(err)
	}
	if b := seen.batch(t, 2); b.Payloads != 1 || b.Closed != streams.ClosedByDrain {
		t.Errorf("the second batch has %d payloads, closed by %v, want 1 and drain", b.Payloads, b.Closed)
	}
	r.wantAll(2, payload)
	r.wantSettled(2)
}

func TestEmptyPayloads(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(200, someBytes(0))
	run := r.run(hostDevice(t), streams.Options{BatchBytes: 1, BatchPayloads: 64})
	r.tally.await(t, inflight.Published, 200)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(200, someBytes(0))
	r.wantSettled(200)
}
