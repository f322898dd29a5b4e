package ingest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// abandon receives n inputs, like a worker that then dies, and passes each input to keep.
func (r *rig) abandon(n int, keep func(d *inflight.Delivery)) {
	r.Helper()
	request := pull.Request{
		Stream: "INGEST", Consumer: r.consumer(), Messages: n, Bytes: 1 << 20, Expires: time.Second, Heartbeat: time.Second / 2,
	}
	if r.opts.Exclusive {
		request.Group = topology.PriorityGroup
	}
	p, err := pull.Open(r.Connect(r.URL), request)
	check(r.TB, err)
	defer p.Stop()
	for range n {
		m, err := p.Next(r.Ctx())
		check(r.TB, err)
		d, err := inflight.NewDelivery(m, time.Now())
		check(r.TB, err)
		if r.opts.Exclusive {
			d.Subject = inflight.PartitionSubject(d.Subject)
		}
		keep(&d)
	}
}

// forgotten returns once streams have forgotten the ids of their earlier messages.
func (r *rig) forgotten(streams ...string) {
	r.Helper()
	for _, name := range streams {
		s, subject := r.Stream(name), "results.probe"
		if name == deadStream {
			subject = "deadletter.ingest.probe"
		}
		probe := &nats.Msg{Subject: subject, Header: nats.Header{jetstream.MsgIDHeader: {nuid.Next()}}}
		r.Until("the stream has forgotten an id", func() bool {
			first := probe.Data == nil
			probe.Data = []byte("published before")
			ack, err := r.JS.PublishMsg(r.Ctx(), probe)
			if err != nil || first && ack.Duplicate {
				r.Fatalf("publish a probe: %v", err)
			}
			return !first && !ack.Duplicate
		})
		check(r.TB, s.Purge(r.Ctx(), jetstream.WithPurgeSubject(subject)))
	}
}

// forgetful creates the streams, with a result stream that forgets ids after two seconds.
func (r *rig) forgetful() {
	r.Helper()
	r.opts.AckWait = time.Second
	r.Create(jetstream.StreamConfig{
		Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, Duplicates: 2 * time.Second, AllowBatchPublish: true,
	})
	r.provision()
}

// storeFor stores the result of an abandoned input, or its dead letter if it exceeds a batch of maxBytes.
func (r *rig) storeFor(d *inflight.Delivery, maxBytes int) {
	r.Helper()
	data := d.Msg.Data()
	m := &nats.Msg{Subject: store.MapSubject("results", d.Subject)}
	m.Header = results.ResultHeader(d, results.OperatorNames(r.opts.Operators))
	m.Header[jetstream.MsgIDHeader] = []string{results.MessageID(d)}
	computed := make([][]byte, len(r.opts.Operators))
	for i, op := range r.opts.Operators {
		computed[i] = op.AppendReference(nil, data)
	}
	m.Data = r.opts.Format.Append(nil, r.opts.Operators, len(data), computed)
	if len(data) > maxBytes {
		m.Subject, m.Data = store.MapSubject("deadletter", d.Subject), data
		m.Header = results.DeadLetterHeader(d, results.TooLarge, results.ErrExceedsBatch(len(data), maxBytes), true)
		m.Header[jetstream.MsgIDHeader] = []string{results.DeadLetterID(d, results.TooLarge)}
	}
	_, err := r.JS.PublishMsg(r.Ctx(), m)
	check(r.TB, err)
}

// TestWhatIsOlderThanTheWindowIsLookedUp lets a worker die after it has stored half of the results and dead letters.
// The next worker starts after the result stream has forgotten their ids.
func TestWhatIsOlderThanTheWindowIsLookedUp(t *testing.T) {
	eachMode(t, 1, func(t *testing.T, r *rig) {
		r.forgetful()
		const n, maxBytes = 60, 1000
		large := []int{7, 14}
		payload := func(i int) []byte {
			if slices.Contains(large, i) {
				return someBytes(2 * maxBytes)(i)
			}
			return document(i)
		}
		r.publish(n, payload)
		r.abandon(n, func(d *inflight.Delivery) {
			if d.Sequence%2 == 0 {
				r.storeFor(d, maxBytes)
			}
		})
		r.forgotten("RESULTS")
		run := r.run(hostDevice(t), streams.Options{BatchBytes: maxBytes})
		r.tally.awaitAcknowledged(t, n-len(large))
		r.tally.await(t, inflight.DeadLettered, len(large))
		run.finish()
		r.wantApart(n, payload, map[string]string{results.HeaderReason: string(results.TooLarge)}, large...)
		if known := r.tally.count(inflight.Duplicate); known != n/2-1 {
			t.Errorf("%d results were found, want the %d that were stored", known, n/2-1)
		}
		for sequence, found := range r.stored("results.>") {
			_, marked := found[0].Headers()[results.HeaderDeliveries]
			if late := sequence%2 == 1; marked != late {
				t.Errorf("the result of input %d has the header %s: %v, want %v", sequence, results.HeaderDeliveries, marked, late)
			}
		}
	})
}

// TestWithoutALookupResultsArePublished shows that inputs are not held forever if results cannot be read. They get a
// result, and the log states the consequences.
func TestWithoutALookupResultsArePublished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.AckWait = time.Second
	r.Create(jetstream.StreamConfig{
		Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, Duplicates: 2 * time.Second, Retention: jetstream.WorkQueuePolicy,
	})
	r.provision()
	const n = 10
	r.publish(n, document)
	_, err := r.JS.CreateConsumer(r.Ctx(), "RESULTS", jetstream.ConsumerConfig{Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy})
	check(r.TB, err)
	r.abandon(n, func(*inflight.Delivery) {})
	r.forgotten("RESULTS")
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	r.Log.Await(t, "published without looking")
	run.finish()
	if stored := r.messages("RESULTS"); stored != n {
		t.Errorf("%d results are stored, want %d", stored, n)
	}
}

// TestADeliveryCountsFromBeforeItCame shows that the start time of a delivery that waited in the client is not after
// its publication.
func TestADeliveryCountsFromBeforeItCame(t *testing.T) {
	r := provisioned(t)
	nc := r.Connect(r.URL)
	p, err := pull.Open(nc, pull.Request{
		Stream: "INGEST", Consumer: "millrace", Messages: 10, Bytes: 1 << 20, Expires: 6 * time.Second, Heartbeat: 2 * time.Second,
	})
	check(r.TB, err)
	defer p.Stop()
	ctx, cancel := context.WithTimeout(r.Ctx(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Next(ctx); err == nil {
		t.Fatal("a message came before any was published")
	}
	before := time.Now()
	r.publish(4, document)
	published := time.Now()
	r.AwaitDelivered(r.opts.Stream, 4, nc)
	for i := range 4 {
		m, err := p.Next(r.Ctx())
		check(r.TB, err)
		if since := m.Since(); since.IsZero() || since.After(published) {
			t.Errorf("message %d counts from %v after it was published", i, since.Sub(published))
		} else if i == 0 && before.Sub(since) > time.Second {
			t.Errorf("the first message counts from %v before it was published", before.Sub(since))
		}
	}
}

// TestNothingOfABatchStays shows that the worker frees all messages after it has settled its inputs, although it
// keeps memory for later batches. A result shares its input's headers, so the headers show whether either is still in
// memory.
func TestNothingOfABatchStays(t *testing.T) {
	r := provisioned(t)
	const n = 500
	r.publish(n, document)
	var seen []weak.Pointer[string] // headers of inputs
	r.observePayloads(func(_ int, p inflight.Payload) { seen = append(seen, weak.Make(&p.Header["Trace"][0])) })
	run := r.run(hostDevice(t), streams.Options{})
	run.finishAfter(n)
	run.nc.Close()
	if len(seen) != n {
		t.Errorf("%d headers were seen, want %d", len(seen), n)
	}
	until(t, "no header is in memory", func() bool {
		runtime.GC()
		return !slices.ContainsFunc(seen, func(w weak.Pointer[string]) bool { return w.Value() != nil })
	})
	runtime.KeepAlive(run.worker)
}

// haunt makes ghosts (fake members) claim every partition on the members' subject, once per second, until the test
// ends. If fresh is set, each ghost has its own name. Otherwise all use one name. It returns the number of claims.
func (r *rig) haunt(fresh bool) (claims *atomic.Int64) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	r.Cleanup(func() { cancel(); <-ended })
	all := ""
	for p := range r.opts.Partitions {
		all += fmt.Sprintf(",%d", p)
	}
	claims = &atomic.Int64{}
	claim := func() error {
		i := claims.Add(1)
		if !fresh {
			i = 0
		}
		return r.NC.Publish("millrace.members."+r.opts.Stream+"."+r.opts.Consumer, fmt.Appendf(nil, `{"id":"ghost-%d","owns":[%s]}`, i, all[1:]))
	}
	check(r.TB, claim())
	go func() {
		defer close(ended)
		for retry.Sleep(ctx, time.Second) {
			if claim() != nil {
				return
			}
		}
	}()
	return claims
}

// enoughClaims exceeds the number of claims in which the members agree and adopt the remaining partitions.
const enoughClaims = 7

// TestForgedMembersStarveNoWorker shows that all inputs are processed despite fake members. The fake members have one
// name or many, and start before or after the workers.
func TestForgedMembersStarveNoWorker(t *testing.T) {
	t.Parallel()
	const partitions, n = 4, 100
	for name, c := range map[string]struct {
		workers int
		fresh   bool
		before  bool
	}{
		"one ghost before the worker": {1, false, true},
		"fresh ghosts while two work": {2, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := exclusiveRig(t, partitions)
			published := 0
			more := func() {
				r.publishFrom(published, published+n, document)
				published += n
				r.tally.awaitStored(t, published)
			}
			var claims *atomic.Int64
			if c.before {
				claims = r.haunt(c.fresh)
			}
			var workers []*running
			for range c.workers {
				workers = append(workers, r.run(hostDevice(t), streams.Options{}))
			}
			more()
			if !c.before {
				claims = r.haunt(c.fresh)
			}
			for claim := int64(1); claim <= enoughClaims; claim++ {
				until(t, "the ghosts have claimed the partitions again", func() bool { return claims.Load() >= claim })
				more()
			}
			for _, w := range workers {
				w.finish()
			}
			r.wantAll(published, document)
			if !r.allSettled() {
				t.Error("inputs are not acknowledged after the workers' end")
			}
		})
	}
}
