package faults

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// shardNames are the input streams of the tests of this file. One worker reads all of them.
var shardNames = []string{"INGEST-1", "INGEST-2", "INGEST-3", "INGEST-4"}

// resultsOf returns the result stream of a shard.
func resultsOf(stream string) string { return "RESULTS-" + stream }

// byShards makes workers read several streams, which they create with their defaults. Each has a result stream.
func (r *rig) byShards() {
	r.byDefault()
	r.set("MILLRACE_STREAM="+strings.Join(shardNames, ","), "MILLRACE_RESULT_STREAM=RESULTS-{0}")
}

// stormOfShards starts to publish the inputs of a test at full speed, with a publisher for each stream.
func (r *rig) stormOfShards() *onslaught {
	r.t.Helper()
	return r.stormOf(loaded, func(first int) func(i int) *nats.Msg {
		small, prefix := r.smallInputs(first), strings.ToLower(shardNames[first*len(shardNames)/loaded])
		return func(i int) *nats.Msg {
			m := small(i)
			m.Subject = prefix + strings.TrimPrefix(m.Subject, "ingest")
			return m
		}
	})
}

// wantShardsFinished waits until every input is settled and removed. It checks that each input has one correct result in the result stream
// of its shard, and asks `worker audit`.
func (o *onslaught) wantShardsFinished() {
	r := o.r
	r.t.Helper()
	r.until("processed inputs are removed", func() bool {
		for _, stream := range shardNames {
			if state, ok := r.state(stream); !ok || state.Msgs > 0 {
				return false
			}
		}
		return true
	})
	r.retire()
	inputs, wrong := make([]uint8, loaded), 0
	for shard, stream := range shardNames {
		r.read(resultsOf(stream), func(_ uint64, m jetstream.Msg) {
			n, err := strconv.Atoi(m.Headers().Get("Input"))
			if err != nil || n*len(shardNames)/loaded != shard || !o.right(n, m) {
				wrong++
				return
			}
			inputs[n] = min(inputs[n]+1, 2)
		})
	}
	if lost, doubled := tallyOf(inputs); lost+doubled+wrong > 0 {
		r.t.Errorf("of %d inputs %d are lost, %d are doubled and %d are wrong", len(inputs), lost, doubled, wrong)
	}
	cmd := exec.CommandContext(r.Ctx(), r.binary, "audit")
	cmd.Env = append(r.environment(r.URL), r.env...)
	out, err := cmd.CombinedOutput()
	if got := strings.Count(string(out), "nothing is missing, double, incomplete or out of order"); err != nil || got != len(shardNames) {
		r.t.Errorf("worker audit: %v:\n%s", err, out)
	}
}

// eachSharded injects a fault while two workers of four streams are loaded, in both delivery modes.
func eachSharded(t *testing.T, inject func(r *rig, l *onslaught)) {
	need(t)
	t.Parallel()
	for _, servers := range []int{1, replicas} {
		for _, mode := range modes {
			t.Run(loadSetup{servers, mode}.String(), func(t *testing.T) {
				r := newRig(t, mode)
				r.byShards()
				r.serve(servers)
				r.work(2)
				r.until("the streams are there", func() bool {
					for _, stream := range shardNames {
						if _, ok := r.state(stream); !ok {
							return false
						}
					}
					return true
				})
				l := r.stormOfShards()
				l.await(loaded / 4)
				inject(r, l)
				l.wait()
				l.wantShardsFinished()
				r.t.Logf("R%d, %s: %d inputs in %d streams", servers, mode, l.stored(), len(shardNames))
			})
		}
	}
}

// TestLoadShardsWorkersKilled kills all workers of four streams, and starts others later.
func TestLoadShardsWorkersKilled(t *testing.T) {
	eachSharded(t, func(_ *rig, l *onslaught) { l.killWorkers() })
}

// TestLoadShardStalled makes the result stream of one shard refuse messages. The other shards must finish meanwhile.
func TestLoadShardStalled(t *testing.T) {
	eachSharded(t, func(r *rig, l *onslaught) {
		stalled := shardNames[0]
		before := r.Change(resultsOf(stalled), func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1000, jetstream.DiscardNew })
		began := time.Now()
		l.wait()
		r.until("the other shards have finished", func() bool {
			for _, stream := range shardNames[1:] {
				if state, ok := r.state(stream); !ok || state.Msgs > 0 {
					return false
				}
			}
			return true
		})
		state, ok := r.state(stalled)
		if !ok || state.Msgs == 0 {
			r.t.Errorf("the stalled shard has %d inputs left, so the test shows nothing", state.Msgs)
		}
		r.t.Logf("the others finished after %v, with %d inputs of the stalled shard left", time.Since(began).Round(time.Second), state.Msgs)
		r.Change(resultsOf(stalled), func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = before.MaxMsgs, before.Discard })
	})
}

// TestShardsTakenOver kills one of two workers that share 128 partitions of 16 streams, and logs the time until the other one owns all.
func TestShardsTakenOver(t *testing.T) {
	need(t)
	t.Parallel()
	const streams, partitions = 16, 8
	r := newRig(t, "exclusive")
	r.byDefault()
	var names []string
	for i := range streams {
		names = append(names, fmt.Sprintf("INGEST-%d", i))
	}
	r.set("MILLRACE_STREAM="+strings.Join(names, ","), "MILLRACE_RESULT_STREAM=RESULTS-{0}", fmt.Sprintf("MILLRACE_PARTITIONS=%d", partitions))
	r.serve(1)
	r.work(2)
	r.lead = endless // a partition without new inputs has no owner
	small := r.smallInputs(0)
	f := r.feed(endless, func(i int) *nats.Msg {
		m := small(i)
		m.Subject = fmt.Sprintf("ingest-%d.load.%d", i%streams, i/streams%loadSubjects)
		return m
	})
	owned := func(w *worker) int {
		n, _ := w.metric("millrace_partitions_owned") // the caller asks again after an error
		return int(n)
	}
	r.until("both workers own half of the partitions", func() bool {
		return owned(r.workers[0]) == streams*partitions/2 && owned(r.workers[1]) == streams*partitions/2
	})
	killed := time.Now()
	r.workers[0].kill()
	r.workers = r.workers[1:]
	r.until("the other worker owns all partitions", func() bool { return owned(r.workers[0]) == streams*partitions })
	t.Logf("%d partitions of a killed worker were taken over after %v", streams*partitions/2, time.Since(killed).Round(100*time.Millisecond))
	f.finish()
	r.retire()
}
