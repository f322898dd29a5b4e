package ingest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// shortWindow is the shortest duplicate window that the server accepts. Exactly-once delivery must not depend on the
// window.
const shortWindow = 100 * time.Millisecond

// commitRig returns a rig with a partitioned stream whose results are stored in fast batches.
func commitRig(t *testing.T, partitions int) *rig {
	t.Helper()
	r := exclusiveRig(t, partitions)
	for _, name := range []string{"RESULTS", deadStream} {
		r.Change(name, func(c *jetstream.StreamConfig) { c.Duplicates = shortWindow })
	}
	return r
}

// eachCommit runs test with results in fast batches, and with results in atomic batches unless -short is set. Dead
// letters always are in atomic batches.
func eachCommit(t *testing.T, partitions int, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	for _, way := range []string{"fast", "atomic"} {
		if testing.Short() && way == "atomic" {
			continue
		}
		t.Run(way, func(t *testing.T) {
			r := commitRig(t, partitions)
			r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.AllowBatchPublish = way == "fast" })
			test(t, r)
		})
	}
}

// deliverAgain makes the server deliver all inputs again, acknowledged or not, once the streams have forgotten the
// ids of stored messages.
func (r *rig) deliverAgain() {
	r.Helper()
	r.forgotten("RESULTS", deadStream)
	r.rewind()
}

// rewind makes the server deliver all inputs again.
func (r *rig) rewind() {
	r.Helper()
	for p := range r.opts.Partitions {
		_, err := r.JS.ResetConsumerToSequence(r.Ctx(), r.opts.Stream, r.consumerOf(p), 1)
		check(r.TB, err)
	}
}

// TestExactlyOnceAfterTheWindow delivers inputs again when the server has forgotten the ids of their results, and
// then once more after the results are removed.
func TestExactlyOnceAfterTheWindow(t *testing.T) {
	eachCommit(t, 3, func(t *testing.T, r *rig) {
		const n = 400
		r.publish(n, document)
		r.process(hostDevice(t), streams.Options{BatchPayloads: 25})
		r.deliverAgain()
		r.process(hostDevice(t), streams.Options{BatchPayloads: 25})
		r.wantAll(n, document)
		r.wantInOrder()
		r.purge("results.>")
		r.deliverAgain()
		r.process(hostDevice(t), streams.Options{})
		if stored, again := r.tally.count(inflight.Published), r.tally.count(inflight.Duplicate); stored != n || again != 2*n {
			t.Errorf("%d results were published and %d inputs were found to have one, want %d and %d", stored, again, n, 2*n)
		}
		r.publishFrom(n, n+100, document)
		r.process(hostDevice(t), streams.Options{})
		if left := len(r.stored("results.>")); left != 100 {
			t.Errorf("results of %d inputs, want those of the last 100", left)
		}
	})
}

// TestExactlyOnceWhileConnectionsBreak cuts connections during batches, so the outcome of these batches is unknown.
func TestExactlyOnceWhileConnectionsBreak(t *testing.T) {
	eachCommit(t, 2, func(t *testing.T, r *rig) {
		cutAfter := r.behindCutter()
		const rounds, each = 8, 60
		run := r.run(hostDevice(t), streams.Options{BatchPayloads: 16})
		for round := range rounds {
			r.publishFrom(round*each, (round+1)*each, document)
			cutAfter(4 + 5*round)
		}
		r.awaitSettled()
		run.finish()
		r.wantAll(rounds*each, document)
		r.wantInOrder()
	})
}

// TestExactlyOnceFromAWorkQueue stores results in a work queue, which removes each result once a reader has
// acknowledged it.
func TestExactlyOnceFromAWorkQueue(t *testing.T) {
	r := exclusiveRig(t, 2)
	c := r.StreamConfig("RESULTS")
	c.Retention, c.Duplicates, c.AllowRollup = jetstream.WorkQueuePolicy, shortWindow, true
	r.Delete("RESULTS")
	s := r.Create(c)
	reader, err := s.CreateConsumer(r.Ctx(), jetstream.ConsumerConfig{
		Durable: "reader", FilterSubject: "results.>", AckPolicy: jetstream.AckExplicitPolicy,
	})
	check(r.TB, err)
	stored := func(subject string) map[string]uint64 {
		info, err := s.Info(r.Ctx(), jetstream.WithSubjectFilter(subject))
		check(r.TB, err)
		return info.State.Subjects
	}
	const n = 200
	r.publish(n, document)
	r.process(hostDevice(t), streams.Options{BatchPayloads: 32})
	inputs := map[string]bool{}
	batch, err := reader.Fetch(n, jetstream.FetchMaxWait(patience))
	check(r.TB, err)
	for m := range batch.Messages() {
		inputs[m.Headers().Get(results.HeaderSequence)] = true
		check(r.TB, m.Ack())
	}
	if len(inputs) != n {
		t.Errorf("results of %d inputs, want %d", len(inputs), n)
	}
	r.Until("the results that were read are removed", func() bool { return len(stored("results.>")) == 0 })
	for range 2 {
		r.forgotten("RESULTS")
		r.rewind()
		r.process(hostDevice(t), streams.Options{BatchPayloads: 32})
		if again := stored("results.>"); len(again) > 0 {
			t.Errorf("there are second results: %v", again)
		}
	}
	for subject, markers := range stored("commits.>") {
		if markers != 1 {
			t.Errorf("%d markers on %s, and rollups leave one", markers, subject)
		}
	}
}

// TestExactlyOnceAfterAPurge removes all results and markers. The partition continues after the last acknowledgement,
// and the worker logs that.
func TestExactlyOnceAfterAPurge(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(r *rig){
		"purged":    func(r *rig) { r.purge(">") },
		"made anew": func(r *rig) { r.remove("RESULTS")() },
	} {
		t.Run(name, func(t *testing.T) {
			eachCommit(t, 1, func(t *testing.T, r *rig) {
				const n = 60
				run := r.run(hostDevice(t), streams.Options{})
				r.publish(n, document)
				r.awaitSettled()
				remove(r)
				r.publishFrom(n, 2*n, document)
				r.awaitSettled()
				run.finish()
				got := r.stored("results.>")
				for seq := range uint64(2 * n) {
					if want := seq+1 > n; len(got[seq+1]) > 1 || (len(got[seq+1]) == 1) != want {
						t.Fatalf("input %d has %d results, want one: %v", seq+1, len(got[seq+1]), want)
					}
				}
				for _, text := range []string{"the last commit marker is gone", "has no commit marker of this partition"} {
					if !r.Log.Has(text) {
						t.Errorf("the log does not say that %s", text)
					}
				}
			})
		})
	}
}

// TestALostEndOfTheResultStreamIsReported removes the last messages and markers, as if a server without replicas had
// lost its disk. An input stream that was purged up to its end proves no loss.
func TestALostEndOfTheResultStreamIsReported(t *testing.T) {
	t.Parallel()
	const report = "more inputs are acknowledged than the last commit marker covers"
	for name, c := range map[string]struct {
		spoil func(r *rig, middle uint64)
		want  bool
	}{
		"the end is lost": {func(r *rig, middle uint64) {
			s := r.Stream("RESULTS")
			for at := middle + 1; at <= s.CachedInfo().State.LastSeq; at++ {
				check(r.TB, s.DeleteMsg(r.Ctx(), at))
			}
		}, true},
		"the input stream is purged": {func(r *rig, _ uint64) {
			if _, err := r.JS.Publish(r.Ctx(), "elsewhere", nil); err != nil { // reaches no consumer
				r.Fatal(err)
			}
			check(r.TB, r.Stream("INGEST").Purge(r.Ctx()))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := commitRig(t, 1)
			r.Change("INGEST", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "elsewhere") })
			r.publish(30, document)
			r.process(hostDevice(t), streams.Options{})
			middle := r.Stream("RESULTS").CachedInfo().State.LastSeq
			r.publishFrom(30, 60, document)
			r.process(hostDevice(t), streams.Options{})
			c.spoil(r, middle)
			r.publishFrom(60, 61, document)
			r.process(hostDevice(t), streams.Options{})
			if got := r.Log.Has(report); got != c.want {
				t.Errorf("reported: %v, want %v", got, c.want)
			}
		})
	}
}

// leaveWork publishes the inputs from first to end-1 and runs a worker. It stops the worker once n results are stored in total. The worker
// then holds other inputs.
func (r *rig) leaveWork(first, end, n int) {
	r.Helper()
	r.publishFrom(first, end, document)
	run := r.run(hostDevice(r.TB), streams.Options{BatchPayloads: 8})
	r.tally.awaitStored(r.TB, n)
	run.stop()
	_ = run.wait()
}

// TestExactlyOnceAndBackAgain runs without markers for some time, and then with another number of partitions.
func TestExactlyOnceAndBackAgain(t *testing.T) {
	r := commitRig(t, 3)
	r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute })
	const each = 120
	for n, once := range []topology.ExactlyOnce{topology.Auto, topology.Off, topology.Auto} {
		r.opts.ExactlyOnce = once
		r.leaveWork(n*each, (n+1)*each, n*each+40)
	}
	r.process(hostDevice(t), streams.Options{})
	r.wantAll(3*each, document)

	r.opts.Partitions = 5
	r.Change("INGEST", func(c *jetstream.StreamConfig) { c.SubjectTransform.Destination = "{{partition(5)}}.>" })
	r.provision()
	r.leaveWork(3*each, 4*each, 3*each+40)
	r.rewind()
	r.process(hostDevice(t), streams.Options{})
	r.wantAll(4*each, document)
}

// TestExactlyOnceBetweenModes stops workers with exclusive delivery while they hold inputs. Workers with shared
// delivery process new inputs, and then exclusive workers return. Each input has one result. The shared workers
// process no input that exclusive workers left.
func TestExactlyOnceBetweenModes(t *testing.T) {
	r := commitRig(t, 2)
	exclusive := r.opts.Topology
	r.leaveWork(0, 1000, 25)
	if r.allSettled() {
		t.Error("no work was left in hand")
	}

	transform := r.Change("INGEST", func(c *jetstream.StreamConfig) { c.SubjectTransform = nil }).SubjectTransform
	r.opts.Exclusive = false
	r.provision()
	r.publishFrom(1000, 1200, document)
	before := r.tally.stored()
	r.run(hostDevice(t), streams.Options{}).finishAfter(before + 200)

	r.Change("INGEST", func(c *jetstream.StreamConfig) { c.SubjectTransform = transform })
	r.opts.Topology = exclusive
	r.leaveWork(1200, 2200, before+200+25)
	r.process(hostDevice(t), streams.Options{})
	r.deliverAgain()
	r.process(hostDevice(t), streams.Options{})
	r.wantAll(2200, document)
}
