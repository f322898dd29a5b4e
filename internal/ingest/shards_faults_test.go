package ingest

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// stall lets a shard's result stream accept only n messages.
func (r *rig) stall(shard int, n int64) (undo func()) {
	r.Helper()
	name := fmt.Sprintf("RESULTS-%d", shard)
	full := r.Change(name, func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardNew, n })
	return func() { r.Change(name, func(c *jetstream.StreamConfig) { c.MaxMsgs = full.MaxMsgs }) }
}

// TestFramesOfAStalledShardStallNoOther is like TestAStalledShardStallsAlone, with compressed frames.
func TestFramesOfAStalledShardStallNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Split = frame.Splitter{Framing: frame.NewlineDelimited, MaxRecords: 16384, MaxBytes: 512 << 10}
	r.opts.Decompress = compression.Auto
	r.opts.Memory = 64 << 20
	r.opts.Stream, r.opts.Many = "", true
	d, err := host.Open(host.Options{Cores: 2, Kernels: operator.HostKernels()})
	check(t, err)
	r.Cleanup(func() { check(t, d.Close()) })
	run := r.prepare(d, streams.Options{BatchBytes: 512 << 10, BatchPayloads: 16384})
	for i := range 2 {
		check(t, run.worker.Add(r.Ctx(), r.shardOf(i)))
	}
	undo := r.stall(0, 1)
	in := lines(bytes.Split(bytes.Repeat([]byte("a line of text, again\n"), 12000), []byte("\n"))...).compressed(compression.Zstd)
	t.Logf("a frame has %d bytes", len(in.body))
	r.Publish(0, 200, func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("ingest-0.%d", i%7), Data: in.body, Header: in.header}
	})
	run.start()
	r.Until("the stalled shard holds memory", func() bool { return run.worker.Memory().Used > 8<<20 })
	r.publishTo(1, 100)
	r.wantResults(1, 100)
	undo()
	run.finish()
}

// TestADroppedShardLeavesNothing shows that a shard whose results can't be stored leaves no batch and no memory behind when it is dropped.
func TestADroppedShardLeavesNothing(t *testing.T) {
	eachMode(t, 4, func(t *testing.T, r *rig) {
		const shards = 3
		r.opts.DrainTimeout = time.Second
		run := r.manyShards(shards)
		for i := range shards {
			r.stall(i, 1)
			r.publishTo(i, 20000)
		}
		run.start()
		r.Until("batches wait for room", func() bool { return run.worker.Status().InHand > 2*shards })
		for i := range shards {
			run.worker.Drop(fmt.Sprintf("INGEST-%d", i))
		}
		r.Until("the shards have ended", func() bool { return len(run.worker.Shards()) == 0 })
		r.Until("nothing is left of them", func() bool { return run.worker.Status().InHand == 0 && run.worker.Memory().Used == 0 })
	})
}

// TestShardsLeaveNoSubscriptions shows that subscriptions don't pile up when shards come and go.
func TestShardsLeaveNoSubscriptions(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, r *rig) {
		run := r.manyShards(1)
		run.start()
		topology := r.shardOf(1)
		var counts []int
		for range 5 {
			check(t, run.worker.Add(r.Ctx(), topology))
			r.publishTo(1, 10)
			run.worker.Drop("INGEST-1")
			r.Until("the shard has ended", func() bool { return len(run.worker.Shards()) == 1 })
			counts = append(counts, run.nc.NumSubscriptions())
		}
		if counts[4] > counts[1] {
			t.Errorf("subscriptions after each end of a shard: %v; %d batches", counts, run.worker.Status().InHand)
		}
		run.finish()
	})
}

// TestASuspectRunsAloneOnTheDevice shows that no input of another shard is on the device while a suspect is tried alone. Otherwise an input of
// another shard that breaks the device makes an innocent one a dead letter. An earlier process died in the same way, as its note says.
func TestASuspectRunsAloneOnTheDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Stream, r.opts.Many = "", true
	const suspect = 777
	started := make(chan struct{})
	var once sync.Once
	var together atomic.Bool // whether the poison was on the device together with the suspect
	kernels := operator.HostKernels()
	var d *ailing
	kernels[0] = kernel{
		HostKernel: kernels[0],
		run: func(b device.BoundHostKernel, rows []byte, offsets []uint32, scratch, result []byte, p device.Parallel) error {
			if len(offsets) == 2 && offsets[1]-offsets[0] == suspect {
				once.Do(func() { close(started) })
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				for range 100 {
					<-tick.C
					if d.Err() != nil {
						together.Store(true)
						break
					}
				}
			}
			return b.Run(rows, offsets, scratch, result, p)
		},
	}
	d = &ailing{Device: openAiling(t, kernels), fails: fmt.Errorf("%w: a poison of shard 1", device.ErrKernelFault), from: 1, with: []byte("poison")}
	run := r.prepare(d, streams.Options{})
	for i := range 2 {
		check(t, run.worker.Add(r.Ctx(), r.shardOf(i)))
	}
	r.Publish(0, 1, func(int) *nats.Msg { return &nats.Msg{Subject: "ingest-0.a", Data: make([]byte, suspect)} })
	c := r.Consumer("INGEST-0", "millrace")
	for range 4 {
		batch, err := c.Fetch(1, jetstream.FetchMaxWait(patience))
		check(t, err)
		for m := range batch.Messages() {
			check(t, m.Nak())
		}
	}
	m, err := r.Stream("INGEST-0").GetMsg(r.Ctx(), 1)
	check(t, err)
	config := r.ConsumerInfo("INGEST-0", "millrace").Config
	config.Metadata["millrace-alone-1"] = fmt.Sprintf("1 %d", m.Time.UnixNano())
	_, err = r.JS.UpdateConsumer(r.Ctx(), "INGEST-0", config)
	check(t, err)
	run.start()
	select {
	case <-started:
	case <-time.After(20 * time.Second):
		t.Fatal("the suspect isn't tried")
	}
	r.Publish(0, 1, func(int) *nats.Msg { return &nats.Msg{Subject: "ingest-1.a", Data: []byte("a poison")} })
	run.wantLost() // by the poison, once the suspect has left the device
	if together.Load() {
		t.Error("an input of shard 1 was on the device while the suspect of shard 0 was tried alone")
	}
	for _, name := range []string{"RESULTS-0", "RESULTS-0_DEADLETTER"} {
		for _, m := range r.Stored(name) {
			t.Logf("%s: %s %v %v", name, m.Subject, m.Header.Get("Millrace-Reason"), m.Header.Get("Millrace-Error"))
			if m.Header.Get("Millrace-Reason") != "" {
				t.Errorf("the innocent input is a dead letter: %s", m.Header.Get("Millrace-Error"))
			}
		}
	}
}

// TestShardsUseAllDevices shows that exclusive delivery spreads shards with fewer partitions than devices over the devices.
func TestShardsUseAllDevices(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Stream, r.opts.Many, r.opts.Exclusive, r.opts.Partitions = "", true, true, 1
	run := r.prepareOn(streams.Options{}, named{hostDevice(t), "a"}, named{hostDevice(t), "b"})
	const shards = 4
	for i := range shards {
		check(t, run.worker.Add(r.Ctx(), r.shardOf(i)))
		r.publishTo(i, 50)
	}
	run.start()
	for i := range shards {
		r.wantResults(i, 50)
	}
	for _, p := range run.worker.pipes {
		if run.worker.judge.Batches(p) == 0 {
			t.Errorf("device %s has computed nothing", p.Device().ID)
		}
	}
	run.finish()
}
