package ingest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// shortWindow is the shortest duplicate window that the server accepts. Exactly once must hold without one.
const shortWindow = 100 * time.Millisecond

// eachCommit runs test with a partitioned stream whose results are stored in fast batches, and with one whose results are stored in atomic
// batches. With -short it leaves the latter out; dead letters always are in atomic batches.
func eachCommit(t *testing.T, partitions int, test func(t *testing.T, r *rig)) {
	for name, change := range map[string]func(c *jetstream.StreamConfig){
		"fast":   func(*jetstream.StreamConfig) {},
		"atomic": func(c *jetstream.StreamConfig) { c.AllowBatchPublish = false },
	} {
		if testing.Short() && name == "atomic" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := exclusiveRig(t, partitions)
			r.update("RESULTS", func(c *jetstream.StreamConfig) { c.Duplicates = shortWindow; change(c) })
			r.update("RESULTS_DEADLETTER", func(c *jetstream.StreamConfig) { c.Duplicates = shortWindow })
			test(t, r)
		})
	}
}

// update changes the settings of a stream.
func (r *rig) update(name string, change func(c *jetstream.StreamConfig)) {
	r.t.Helper()
	s, err := r.js.Stream(r.ctx(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	c := s.CachedInfo().Config
	change(&c)
	if _, err := r.js.UpdateStream(r.ctx(), c); err != nil {
		r.t.Fatal(err)
	}
}

// pass waits until time has passed at the server.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	began := time.Now()
	until(t, "time has passed", func() bool { return time.Since(began) >= d })
}

// deliverAgain makes the server deliver all inputs again, acknowledged or not, after the duplicate window.
func (r *rig) deliverAgain() {
	r.t.Helper()
	pass(r.t, 2*shortWindow)
	for p := range r.opts.Partitions {
		if _, err := r.js.ResetConsumerToSequence(r.ctx(), r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, p), 1); err != nil {
			r.t.Fatal(err)
		}
	}
}

// work runs a worker until all inputs are acknowledged.
func (r *rig) work(cfg streams.Config) {
	r.t.Helper()
	run := r.run(hostDevice(r.t), cfg)
	until(r.t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
	if err := run.drain(); err != nil {
		r.t.Fatal(err)
	}
}

// TestExactlyOnceAfterTheWindow: inputs are delivered again when no id of their results is known any more.
func TestExactlyOnceAfterTheWindow(t *testing.T) {
	t.Parallel()
	eachCommit(t, 3, func(t *testing.T, r *rig) {
		const n = 2000
		r.publish(n, document)
		r.work(streams.Config{BatchPayloads: 100})
		for range 2 {
			r.deliverAgain()
			r.work(streams.Config{BatchPayloads: 100})
		}
		r.wantAll(n, document)
		r.wantInOrder()
		if again := r.tally.count(inflight.Duplicate); again != 2*n {
			t.Errorf("%d inputs were found to have a result, want %d", again, 2*n)
		}
		r.publishFrom(n, n+100, document)
		r.work(streams.Config{})
		r.wantAll(n+100, document)
	})
}

// TestExactlyOnceWhileConnectionsBreak: batches are cut, and their outcome is not known.
func TestExactlyOnceWhileConnectionsBreak(t *testing.T) {
	t.Parallel()
	eachCommit(t, 2, func(t *testing.T, r *rig) {
		proxy := natstest.NewProxy(t, "127.0.0.1:0", strings.TrimPrefix(r.url, "nats://"))
		r.url = proxy.URL()
		const rounds, each = 25, 200
		run := r.run(hostDevice(t), streams.Config{BatchPayloads: 64})
		for round := range rounds {
			r.publishFrom(round*each, (round+1)*each, document)
			pass(t, time.Duration(round)*3*time.Millisecond)
			proxy.Cut()
		}
		until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
		if err := run.drain(); err != nil {
			t.Fatal(err)
		}
		r.wantAll(rounds*each, document)
		r.wantInOrder()
	})
}

// TestExactlyOnceFromAWorkQueue: results are removed as soon as a reader has acknowledged them.
func TestExactlyOnceFromAWorkQueue(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 2)
	s, err := r.js.Stream(r.ctx(), "RESULTS")
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.Retention, c.Duplicates, c.AllowRollup = jetstream.WorkQueuePolicy, shortWindow, true
	if err := r.js.DeleteStream(r.ctx(), "RESULTS"); err != nil {
		t.Fatal(err)
	}
	if s, err = r.js.CreateStream(r.ctx(), c); err != nil {
		t.Fatal(err)
	}
	reader, err := s.CreateConsumer(r.ctx(), jetstream.ConsumerConfig{Durable: "reader", FilterSubject: "results.>", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	seen := map[string]int{}
	for round := range 3 {
		if round == 0 {
			r.publish(n, document)
		} else {
			r.deliverAgain()
		}
		r.work(streams.Config{})
		for {
			batch, err := reader.Fetch(500, jetstream.FetchMaxWait(200*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			came := 0
			for m := range batch.Messages() {
				came++
				seen[m.Headers().Get("Millrace-Sequence")]++
				if err := m.DoubleAck(r.ctx()); err != nil {
					t.Fatal(err)
				}
			}
			if came == 0 {
				break
			}
		}
	}
	for input, times := range seen {
		if times != 1 {
			t.Errorf("input %s has %d results", input, times)
		}
	}
	if len(seen) != n {
		t.Errorf("%d inputs have results, want %d", len(seen), n)
	}
	info, err := s.Info(r.ctx(), jetstream.WithSubjectFilter("commits.>"))
	if err != nil {
		t.Fatal(err)
	}
	for subject, markers := range info.State.Subjects {
		if markers != 1 {
			t.Errorf("%d markers on %s, and rollups leave one", markers, subject)
		}
	}
}

// TestExactlyOnceWhenOldResultsAreRemoved: the stream keeps only the last results.
func TestExactlyOnceWhenOldResultsAreRemoved(t *testing.T) {
	t.Parallel()
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		r.update("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgs, c.MaxBytes, c.Discard = 400, -1, jetstream.DiscardOld })
		const n = 2000
		r.publish(n, document)
		r.work(streams.Config{BatchPayloads: 100})
		published := r.tally.count(inflight.Published)
		r.deliverAgain()
		r.work(streams.Config{})
		if again := r.tally.count(inflight.Published); published != n || again != published {
			t.Errorf("%d results were published, and after the redelivery %d", published, again)
		}
	})
}

// TestExactlyOnceAfterAPurge: the partition continues after the last acknowledgement, and the log says so.
func TestExactlyOnceAfterAPurge(t *testing.T) {
	t.Parallel()
	purge := func(r *rig) {
		s, err := r.js.Stream(r.ctx(), "RESULTS")
		if err != nil {
			r.t.Fatal(err)
		}
		if err := s.Purge(r.ctx()); err != nil {
			r.t.Fatal(err)
		}
	}
	t.Run("purged", func(t *testing.T) { withoutResults(t, purge) })
	t.Run("made anew", func(t *testing.T) {
		withoutResults(t, func(r *rig) {
			c := r.streamConfig("RESULTS")
			if err := r.js.DeleteStream(r.ctx(), "RESULTS"); err != nil {
				r.t.Fatal(err)
			}
			if _, err := r.js.CreateStream(r.ctx(), c); err != nil {
				r.t.Fatal(err)
			}
		})
	})
}

// withoutResults takes the results away from a running worker.
func withoutResults(t *testing.T, remove func(r *rig)) {
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		const n = 300
		run := r.run(hostDevice(t), streams.Config{})
		r.publish(n, document)
		until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
		remove(r)
		r.publishFrom(n, 2*n, document)
		until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
		if err := run.drain(); err != nil {
			t.Fatal(err)
		}
		got := r.stored("results.>")
		for seq := range uint64(2 * n) {
			if want := seq+1 > n; len(got[seq+1]) > 1 || (len(got[seq+1]) == 1) != want {
				t.Fatalf("input %d has %d results, want one: %v", seq+1, len(got[seq+1]), want)
			}
		}
		for _, text := range []string{"the last commit marker is gone", "has no commit marker of this partition"} {
			if !r.log.Has(text) {
				t.Errorf("the log does not say that %s", text)
			}
		}
	})
}

// TestExactlyOnceAndBackAgain: without markers for a while, and with another number of partitions.
func TestExactlyOnceAndBackAgain(t *testing.T) {
	t.Parallel()
	eachCommit(t, 3, func(t *testing.T, r *rig) {
		r.update("RESULTS", func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute })
		published := 0
		more := func() {
			r.publishFrom(published, published+300, document)
			published += 300
		}
		leave := func() { // with work in hand
			run := r.run(hostDevice(t), streams.Config{BatchPayloads: 16})
			r.tally.awaitStored(t, published-200)
			run.stop()
			_ = run.wait()
		}
		for _, once := range []topology.ExactlyOnce{topology.Auto, topology.Off, topology.Auto} {
			r.opts.ExactlyOnce = once
			more()
			leave()
		}
		r.work(streams.Config{})
		r.wantAll(published, document)

		r.opts.Partitions = 5
		r.update("INGEST", func(c *jetstream.StreamConfig) { c.SubjectTransform.Destination = "{{partition(5)}}.>" })
		r.provision()
		more()
		leave()
		r.deliverAgain()
		r.work(streams.Config{})
		r.wantAll(published, document)
	})
}

// TestExactlyOnceForDeadLetters: operators fail on some payloads.
func TestExactlyOnceForDeadLetters(t *testing.T) {
	t.Parallel()
	eachCommit(t, 2, func(t *testing.T, r *rig) {
		const n = 600
		var bad []int
		for i := 7; i < n; i += 100 {
			bad = append(bad, i)
		}
		r.publish(n, unfitAt(bad...))
		for range 2 {
			run := r.run(openHost(t, pickyKernels()), streams.Config{BatchPayloads: 50})
			until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
			if err := run.drain(); err != nil {
				t.Fatal(err)
			}
			r.deliverAgain()
		}
		r.wantOnlyDead(n, unfitAt(bad...), bad)
		var order []uint64
		for input, messages := range r.storedIn("RESULTS_DEADLETTER", "deadletter.>") {
			if len(messages) != 1 {
				t.Errorf("input %d has %d dead letters", input, len(messages))
			}
			order = append(order, input)
		}
		if slices.Sort(order); len(order) != len(bad) {
			t.Errorf("the dead letters are those of %v", fmt.Sprint(order))
		}
	})
}
