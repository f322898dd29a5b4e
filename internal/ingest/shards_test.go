package ingest

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device/host"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// shardOf provisions and returns the topology of one of several pairs of streams.
func (r *rig) shardOf(i int) topology.Topology {
	r.Helper()
	t := r.opts.Topology
	t.Stream, t.Subjects = fmt.Sprintf("INGEST-%d", i), []string{fmt.Sprintf("ingest-%d.>", i)}
	t.ResultStream, t.ResultPrefix, t.DeadLetterPrefix = fmt.Sprintf("RESULTS-%d", i), fmt.Sprintf("results-%d", i), fmt.Sprintf("deadletter-%d", i)
	check(r.TB, topology.Provision(r.Ctx(), r.JS, t, r.opts.Logger))
	return t
}

// manyShards returns a worker of n shards that is not started yet.
func (r *rig) manyShards(n int) *running {
	r.Helper()
	r.opts.Stream, r.opts.Many = "", true
	d, err := host.Open(host.Options{Cores: 2, Kernels: operator.HostKernels()})
	check(r.TB, err)
	r.Cleanup(func() { check(r.TB, d.Close()) })
	run := r.prepare(d, streams.Options{})
	for i := range n {
		check(r.TB, run.worker.Add(r.Ctx(), r.shardOf(i)))
	}
	return run
}

// publishTo publishes n inputs to a shard's input stream.
func (r *rig) publishTo(shard, n int) {
	r.Helper()
	r.Publish(0, n, func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("ingest-%d.web.%d", shard, i%7), Data: document(i)}
	})
}

// resultsOf returns the number of results in a shard's result stream, without commit markers.
func (r *rig) resultsOf(shard int) int {
	r.Helper()
	info, err := r.Stream(fmt.Sprintf("RESULTS-%d", shard)).Info(r.Ctx(), jetstream.WithSubjectFilter(fmt.Sprintf("results-%d.>", shard)))
	check(r.TB, err)
	n := uint64(0)
	for _, count := range info.State.Subjects {
		n += count
	}
	return int(n)
}

// wantResults waits until a shard's result stream has n results, and checks that each input has one.
func (r *rig) wantResults(shard, n int) {
	r.Helper()
	r.Until(fmt.Sprintf("shard %d has %d results", shard, n), func() bool { return r.resultsOf(shard) >= n })
	inputs := map[string]int{}
	for _, m := range r.Stored(fmt.Sprintf("RESULTS-%d", shard)) {
		if of := m.Header.Get("Millrace-Sequence"); of != "" {
			inputs[of]++
		}
	}
	if len(inputs) != n {
		r.Errorf("shard %d: %d of %d inputs have a result", shard, len(inputs), n)
	}
	for of, times := range inputs {
		if times != 1 {
			r.Errorf("shard %d: input %s has %d results", shard, of, times)
		}
	}
}

// TestOneWorkerHasManyShards shows that each shard's results go to its own stream, each once, in both modes.
func TestOneWorkerHasManyShards(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, r *rig) {
		const shards, inputs = 4, 1500
		run := r.manyShards(shards)
		for i := range shards {
			r.publishTo(i, inputs)
		}
		run.start()
		for i := range shards {
			r.wantResults(i, inputs)
		}
		if got := len(run.worker.Shards()); got != shards {
			t.Errorf("the worker reports %d shards, want %d", got, shards)
		}
		run.finish()
	})
}

// TestShardsComeAndGo shows that a shard can be added to a running worker, and that the end of a shard doesn't affect the others.
func TestShardsComeAndGo(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, r *rig) {
		const inputs = 300
		run := r.manyShards(1)
		run.start()
		for i := 1; i <= 2; i++ {
			check(t, run.worker.Add(r.Ctx(), r.shardOf(i)))
			r.publishTo(i, inputs)
			r.wantResults(i, inputs)
		}
		run.worker.Drop("INGEST-1")
		r.Until("the shard has ended", func() bool { return len(run.worker.Shards()) == 2 })
		r.publishTo(0, inputs)
		r.wantResults(0, inputs)
		check(t, run.worker.Add(r.Ctx(), r.shardOf(1)))
		r.Publish(0, inputs, func(i int) *nats.Msg {
			return &nats.Msg{Subject: "ingest-1.more", Data: document(i)}
		})
		r.wantResults(1, 2*inputs)
		run.finish()
	})
}

// TestAStalledShardStallsAlone shows that the other shards go on while the results of a shard can't be stored, although the shard has
// enough inputs to take all of the memory. Nothing of the stalled shard is lost.
func TestAStalledShardStallsAlone(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, r *rig) {
		const shards, inputs, stalled = 3, 4000, 6000
		r.opts.Memory = 96 << 20
		run := r.manyShards(shards)
		full := r.Change("RESULTS-0", func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardNew, 100 })
		r.Publish(0, stalled, func(i int) *nats.Msg {
			return &nats.Msg{Subject: fmt.Sprintf("ingest-0.%d", i%7), Data: append(make([]byte, 16<<10), byte(i), byte(i>>8))}
		})
		run.start()
		r.Until("the shard holds much memory", func() bool { return run.worker.Memory().Used > 12<<20 })
		began := time.Now()
		for i := 1; i < shards; i++ {
			r.publishTo(i, inputs)
		}
		for i := 1; i < shards; i++ {
			r.wantResults(i, inputs)
		}
		t.Logf("the others needed %v", time.Since(began).Round(time.Millisecond))
		if got := r.resultsOf(0); got > 100 {
			t.Errorf("the stalled shard has %d results", got)
		}
		r.Change("RESULTS-0", func(c *jetstream.StreamConfig) { c.MaxMsgs = full.MaxMsgs })
		r.wantResults(0, stalled)
		run.finish()
	})
}
