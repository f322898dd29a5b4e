package ingest

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

func TestIDsSayWhichMessageItIs(t *testing.T) {
	t.Parallel()
	stored := time.Unix(1700000000, 123456789)
	m := pull.Stored(nil, "IN", "millrace-0", 3, &jetstream.RawStreamMsg{Subject: "0.ingest.a", Sequence: 7, Time: stored.UTC(), Header: nats.Header{}})
	d, err := inflight.NewDelivery(m, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	const id = "IN:7:1700000000123456789"
	h := results.ResultHeader(&d, "crc32c")
	wantHeaders(t, h, map[string]string{jetstream.MsgIDHeader: id, results.HeaderSequence: "7", results.HeaderStream: "IN"})
	if got := results.DeadLetterID(&d, results.TooLarge); got != id+":too_large" {
		t.Errorf("the id of the dead letter is %q", got)
	}
}

func otherDocument(i int) []byte { return append(document(i), "of the second stream"...) }

// wantBoth checks that every sequence has two results with different ids, one for each input that had this sequence.
func (r *rig) wantBoth(n int) {
	r.Helper()
	found := r.stored("results.>")
	for i := range n {
		seq := uint64(i + 1)
		if len(found[seq]) != 2 {
			r.Errorf("sequence %d has %d results, want one of each input that had it", seq, len(found[seq]))
			continue
		}
		for k, payload := range []func(int) []byte{document, otherDocument} {
			if err := r.opts.Format.Check(r.opts.Operators, payload(i), found[seq][k].Data()); err != nil {
				r.Errorf("result %d of sequence %d: %v", k+1, seq, err)
			}
		}
	}
}

// workOff runs a worker until the given number of deliveries are acknowledged in total, and ends it.
func (r *rig) workOff(acknowledged int) {
	r.Helper()
	run := r.run(hostDevice(r.TB), streams.Options{})
	r.tally.awaitAcknowledged(r.TB, acknowledged)
	if err := run.drain(); err != nil {
		r.Fatalf("Run: %v", err)
	}
}

// eachDelivery runs a test with shared delivery, and with exclusive delivery of one partition.
func eachDelivery(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	for _, exclusive := range []bool{false, true} {
		t.Run("exclusive "+strconv.FormatBool(exclusive), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive = exclusive
			if exclusive {
				r.opts.Partitions = 1
			}
			test(t, r)
		})
	}
}

// TestARecreatedStreamUnderAWorker recreates the input stream. Its first sequences already have results in the result
// stream.
func TestARecreatedStreamUnderAWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 50
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	r.Delete("INGEST")
	r.provision()
	r.publish(n, otherDocument)
	r.tally.awaitStored(t, 2*n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantBoth(n)
	if again := r.tally.count(inflight.Duplicate); again != 0 {
		t.Errorf("%d results were dropped as duplicates", again)
	}
}

func TestARecreatedStreamBetweenWorkers(t *testing.T) {
	eachDelivery(t, func(t *testing.T, r *rig) {
		r.provision()
		const n = 50
		r.publish(n, document)
		r.workOff(n)
		r.Delete("INGEST")
		r.provision()
		r.publish(n, otherDocument)
		r.workOff(2 * n)
		r.wantBoth(n)
	})
}

// TestAStreamRestoredFromAnOlderCopy restores the input stream. It then reuses sequences and keeps its creation time.
func TestAStreamRestoredFromAnOlderCopy(t *testing.T) {
	eachDelivery(t, func(t *testing.T, r *rig) {
		r.provision()
		const n = 50
		copied := filepath.Join(t.TempDir(), "copy")
		r.offline(func(stored string) { mustCopy(t, copied, stored) })
		created := r.Stream("INGEST").CachedInfo().Created
		r.publish(n, document)
		r.workOff(n)
		r.offline(func(stored string) {
			if err := os.RemoveAll(stored); err != nil {
				t.Fatal(err)
			}
			mustCopy(t, stored, copied)
		})
		if now := r.Stream("INGEST").CachedInfo().Created; !now.Equal(created) {
			t.Fatalf("the restored stream was created at %v, want the unchanged %v", now, created)
		}
		r.publish(n, otherDocument)
		r.workOff(2 * n)
		r.wantBoth(n)
	})
}

// offline stops the server, changes the files of the input stream, and starts it again.
func (r *rig) offline(change func(stored string)) {
	r.Helper()
	r.Stop()
	r.Until("the client has noticed that the server is gone", func() bool { return !r.NC.IsConnected() })
	found, err := filepath.Glob(filepath.Join(r.Dir, "jetstream", "*", "streams", "INGEST"))
	if err != nil || len(found) != 1 {
		r.Fatalf("the files of the input stream are in %v (%v), want one folder", found, err)
	}
	change(found[0])
	r.Restart()
	r.Until("the client is connected again", r.NC.IsConnected)
}

func mustCopy(t testing.TB, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestIDsStayWhenAWorkQueueLosesItsFirstResult uses a work queue as result stream that is older than the input
// stream. The work queue loses its first messages before a second worker receives the inputs.
func TestIDsStayWhenAWorkQueueLosesItsFirstResult(t *testing.T) {
	eachDelivery(t, func(t *testing.T, r *rig) {
		r.Create(jetstream.StreamConfig{
			Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, Retention: jetstream.WorkQueuePolicy, AllowBatchPublish: true,
		})
		r.provision()
		const n = 50
		r.publish(n, document)
		r.workOff(n)
		queue, err := r.JS.CreateConsumer(r.Ctx(), "RESULTS", jetstream.ConsumerConfig{Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy})
		if err != nil {
			t.Fatal(err)
		}
		first, err := queue.Next()
		if err == nil {
			err = first.DoubleAck(r.Ctx())
		}
		if err != nil {
			t.Fatal(err)
		}
		r.forgetConsumers()
		r.workOff(2 * n)
		s := r.Stream("RESULTS")
		if state := s.CachedInfo().State; state.LastSeq != n {
			t.Errorf("the result stream has stored %d results of %d inputs", state.LastSeq, n)
		}
	})
}

// forgetConsumers recreates the worker's consumers, so every input is delivered again.
func (r *rig) forgetConsumers() {
	r.Helper()
	s := r.Stream(r.opts.Stream)
	names := s.ConsumerNames(r.Ctx())
	for name := range names.Name() {
		if err := s.DeleteConsumer(r.Ctx(), name); err != nil {
			r.Fatal(fmt.Errorf("delete consumer %s: %w", name, err))
		}
	}
	if err := names.Err(); err != nil {
		r.Fatal(err)
	}
	r.provision()
}

// TestHeadersAreBounded shows that headers count towards a batch's limit of bytes. Empty payloads with large headers
// use no more memory than large payloads.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = partitions > 0, partitions
			r.provision()
			const n, batchBytes, headerBytes = 200, 256 << 10, 60 << 10 // a stream accepts at most 64 KiB of headers
			for range n {
				m := &nats.Msg{Subject: "ingest.web.0", Header: nats.Header{"Much": {strings.Repeat("x", headerBytes)}}}
				if _, err := r.JS.PublishMsg(r.Ctx(), m); err != nil {
					t.Fatal(err)
				}
			}
			seen := &records{}
			r.opts.Records = seen
			run := r.prepare(hostDevice(t), streams.Options{BatchBytes: batchBytes})
			run.start()
			r.tally.awaitStored(t, n)
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			payloads := 0
			for _, b := range seen.all() {
				payloads += b.Payloads
				if b.Payloads > batchBytes/headerBytes {
					t.Errorf("batch %d has %d payloads with headers of %d bytes, more than %d bytes together", b.Batch, b.Payloads, headerBytes, batchBytes)
				}
			}
			if payloads != n {
				t.Errorf("%d payloads in batches, want %d", payloads, n)
			}
		})
	}
}

// batches is a BatchObserver that keeps the headers of each batch.
type batches struct {
	mu   sync.Mutex
	seen map[uint64]string // traceparent by sequence
}

func (b *batches) BatchEnded(_ *inflight.Record, payloads iter.Seq[inflight.Payload]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range payloads {
		b.seen[p.Sequence] = p.Header["traceparent"][0]
	}
}

// TestTraceContextIsCarriedThrough shows that a result has the trace context of its payload, and batch observers
// receive it.
func TestTraceContextIsCarriedThrough(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = partitions > 0, partitions
			observer := &batches{seen: map[uint64]string{}}
			r.opts.Batches = observer
			r.provision()
			const n = 50
			parent := func(i int) string { return fmt.Sprintf("00-%032x-%016x-01", i+1, i+1) }
			for i := range n {
				m := &nats.Msg{Subject: "ingest.web.0", Header: nats.Header{"traceparent": {parent(i)}, "tracestate": {"vendor=value"}}}
				if _, err := r.JS.PublishMsg(r.Ctx(), m); err != nil {
					t.Fatal(err)
				}
			}
			run := r.run(hostDevice(t), streams.Options{})
			r.tally.awaitStored(t, n)
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			found := r.stored("results.>")
			for i := range n {
				seq := uint64(i + 1)
				if h := found[seq][0].Headers(); len(h["traceparent"]) != 1 || h.Get("traceparent") != parent(i) || h.Get("tracestate") != "vendor=value" {
					t.Errorf("the result of %d has %v", seq, h)
				}
				if got := observer.seen[seq]; got != parent(i) {
					t.Errorf("who observes batches sees %q with input %d, want %q", got, seq, parent(i))
				}
			}
		})
	}
}

// TestSubjectTooLongForAResult publishes an input on the longest subject that a server accepts. A result on that
// subject would break the connection of every worker that tries to store it.
func TestSubjectTooLongForAResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	subject := "ingest." + strings.Repeat("long.", 800) + strings.Repeat("x", 70)
	if err := r.NC.Publish(subject, []byte("payload")); err != nil {
		t.Fatal(err)
	}
	r.publish(1, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.await(t, inflight.DeadLettered, 1)
	r.tally.await(t, inflight.Published, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	m := r.deadLetter(deadStream, 1)
	if string(m.Data()) != "payload" || len(m.Subject()) > publisher.MaxSubject || !strings.HasPrefix(m.Subject(), "deadletter.long.") {
		t.Errorf("the dead letter has %q and is on a subject of %d bytes", m.Data(), len(m.Subject()))
	}
	wantHeaders(t, m.Headers(), map[string]string{results.HeaderReason: "too_large", results.HeaderSubject: subject})
	r.wantSettled(2)
}

// TestDeleteMarkersAreNoInputs shows that the server's marker in place of an expired message has no result and is
// acknowledged.
func TestDeleteMarkersAreNoInputs(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = partitions > 0, partitions
			r.opts.Kept.AskedEverything = true // a second worker must find the last marker
			r.provision()
			marker := nats.Header{"Nats-Marker-Reason": {"MaxAge"}}
			r.publishMsg(marker, nil)
			r.publishMsg(nil, nil)
			r.publishMsg(marker, []byte("a publisher's header"))
			r.publishMsg(marker, nil)
			consumer := r.opts.Consumer
			if partitions > 0 {
				consumer = topology.PartitionConsumer(consumer, 0)
			}
			acknowledged := func() bool { return r.ConsumerInfo(r.opts.Stream, consumer).AckFloor.Stream == 4 }
			run := r.run(hostDevice(t), streams.Options{})
			r.tally.awaitStored(t, 2)
			r.Until("the markers are acknowledged", acknowledged)
			if err := run.drain(); err != nil {
				t.Fatal(err)
			}
			if got := r.stored("results.>"); len(got) != 2 || len(got[2]) != 1 || len(got[3]) != 1 {
				t.Errorf("results of the inputs %v, want 2 and 3", got)
			}
			run = r.run(hostDevice(t), streams.Options{})
			r.publishMsg(nil, []byte("more"))
			r.tally.awaitStored(t, 3)
			if err := run.drain(); err != nil {
				t.Fatal(err)
			}
			if r.Log.Has("more inputs are acknowledged than the last commit marker covers") {
				t.Error("the acknowledgement of a delete marker counts as that of an input without a result")
			}
		})
	}
}
