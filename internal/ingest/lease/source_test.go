package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
)

// pulling is a running source without submitters.
type pulling struct {
	*source
	nc       *nats.Conn
	stop     context.CancelFunc // ends intake
	endDrain context.CancelFunc // ends drainCtx
	done     chan error
}

// sharedOf returns a Shared with pull requests of the given size.
func (r *rig) sharedOf(nc *nats.Conn, size pull.Size) *Shared {
	r.Helper()
	m := r.shared(nc)
	server := m.server.(*consumerServer)
	server.size = func(jetstream.Consumer) pull.Size { return size }
	server.request = server.sharedRequest()
	return m
}

// pull runs a source of the given size on its own connection to the server. Only the test receives its deliveries.
func (r *rig) pull(url string, size pull.Size, beat time.Duration) *pulling {
	r.Helper()
	size.Beat = beat
	intake, stop := context.WithCancel(context.Background())
	drainCtx, endDrain := context.WithCancel(r.Ctx())
	p := &pulling{nc: r.open(url), stop: stop, endDrain: endDrain, done: make(chan error, 1)}
	p.source = r.sharedOf(p.nc, size).newSource(drainCtx)
	p.source.out = p.o.Pool.NewQueue(p.Shared, 1, nil)
	go func() { p.done <- p.run(intake) }()
	r.Cleanup(func() {
		stop()
		endDrain()
		if err := <-p.done; err != nil {
			r.Errorf("the source ended with %v", err)
		}
	})
	return p
}

func (p *pulling) next(t *testing.T) inflight.Delivery {
	t.Helper()
	got := make(chan inflight.Delivery, 1)
	go func() {
		p.out.Await(t.Context())
		d, _ := p.out.Get()
		got <- d
	}()
	select {
	case d := <-got:
		return d
	case <-time.After(natstest.Patience):
		t.Fatalf("no delivery in %v", natstest.Patience)
		return inflight.Delivery{}
	}
}

func TestPullIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		payload func(int) []byte
		size    pull.Size
		max     int // maximum number of deliveries that the test has not received
	}{
		{"by messages", someBytes(10), pull.Size{Requests: memory.Requests{Messages: 25, Max: 1 << 20}}, 50},
		{"by bytes", someBytes(10000), pull.Size{Requests: memory.Requests{Messages: 4096, Max: 100000}}, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 0)
			const n = 300
			r.publish(n, c.payload)
			p := r.pull(r.URL, c.size, time.Second)
			// The server answers a pull at once. When the fifth delivery has arrived, the server has counted the
			// whole pull.
			var got []inflight.Delivery
			for range 5 {
				got = append(got, p.next(t))
			}
			if pending := r.consumer(0).CachedInfo().NumAckPending; pending < len(got) || pending-len(got) > c.max {
				t.Errorf("%d delivered and %d of them taken, want at most %d more", pending, len(got), c.max)
			}
			for len(got) < n {
				got = append(got, p.next(t))
			}
			for i, d := range got {
				if d.Sequence != uint64(i+1) || d.NumDelivered != 1 {
					t.Fatalf("delivery %d is input %d for the %d. time", i, d.Sequence, d.NumDelivered)
				}
			}
		})
	}
}

// TestStoppedSourceHandsOnWhatTheClientHolds receives half of the deliveries in time. The remaining ones are left
// unread when the drain ends.
func TestStoppedSourceHandsOnWhatTheClientHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	const n = 100
	r.publish(n, document)
	p := r.pull(r.URL, pull.Size{Requests: memory.Requests{Messages: n, Max: 1 << 20}}, time.Second)
	seen := map[uint64]bool{p.next(t).Sequence: true}
	r.AwaitDelivered(r.topology.Stream, n, p.nc)
	p.stop()
	for range n / 2 {
		seen[p.next(t).Sequence] = true
	}
	p.endDrain()
	err := <-p.done
	p.done <- err
	for d, ok := p.out.Get(); ok; d, ok = p.out.Get() { // the source may hand on one more delivery
		seen[d.Sequence] = true
	}
	if err != nil {
		t.Fatal(err)
	}
	if left := len(p.ends.unread.takeAll()); len(seen) < n/2+1 || len(seen)+left != n {
		t.Errorf("%d of %d deliveries were handed on, and %d left", len(seen), n, left)
	}
}

// TestPullIsRenewedWhenTheServerFallsSilent loses all messages of the pull on a working connection.
func TestPullIsRenewedWhenTheServerFallsSilent(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, func(o *topology.Topology) { o.AckWait = time.Second })
	proxy := r.Proxy()
	nc := r.open(proxy.URL())
	m := r.sharedOf(nc, pull.Size{Requests: memory.Requests{Messages: 10, Max: 1 << 20}, Beat: 500 * time.Millisecond})
	run := r.start(m, m.o)
	r.publish(1, document)
	r.events.awaitStored(t, 1)
	proxy.Lose(func(string, []byte) bool { return true })
	r.publish(1, document)
	r.Log.Await(t, "pull interrupted")
	proxy.Lose(nil)
	r.events.awaitStored(t, 2)
	run.drain()
	if _, again := r.events.disturbances(); again == 0 || nc.Stats().Reconnects > 0 {
		t.Errorf("%d redelivered and %d reconnections, want some and none", again, nc.Stats().Reconnects)
	}
}

func TestMessageFromElsewhereIsIgnored(t *testing.T) {
	t.Parallel()
	stray := pull.Stored(nil, "not.a.stream", "consumer", 1, &jetstream.RawStreamMsg{Subject: "stray"})
	if _, err := inflight.NewDelivery(stray, time.Now()); err == nil {
		t.Error("a message without metadata gave no error")
	}
}

// TestWhatCarefulPullingHasAtTheEndIsLeft shows that a source that ends gives back the deliveries of its isolated
// pull. They are then redelivered at once and not after AckWait.
func TestWhatCarefulPullingHasAtTheEndIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	over, end := context.WithCancel(t.Context())
	end()
	src := r.shared(r.NC).newSource(over)
	src.isolated.SetAside(inflight.Delivery{Msg: &paperMsg{}, Sequence: 7, NumDelivered: 2, Level: 1})
	if err := src.run(over); err != nil {
		t.Fatal(err)
	}
	if left := src.ends.unread.takeAll(); len(left) != 1 || left[0].Sequence != 7 {
		t.Errorf("the inputs %v were left, want 7", left)
	}
}

// flushed is a server that has processed all acknowledgements.
type flushed struct{ leaseServer }

func (flushed) flush(context.Context) error { return nil }

// TestQuietIsWhenNothingElseIsInFlight shows that a quarantined payload is tried while no other payload is in flight.
// No other payload can then be to blame.
func TestQuietIsWhenNothingElseIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := newLedger(0)
		src := &source{Shared: &Shared{inputs: inputs{server: flushed{}}, ends: &each{ledger: ledger}}}
		suspect, other := &inflight.Delivery{Sequence: 1}, &inflight.Delivery{Sequence: 2}
		ledger.take(suspect)
		ledger.take(other)
		quiet := make(chan error, 1)
		go func() { quiet <- src.AwaitQuiet(t.Context(), 1) }()
		synctest.Wait()
		select {
		case err := <-quiet:
			t.Fatalf("it was quiet (%v) with another input in hand", err)
		default:
		}
		ledger.done(other)
		if err := <-quiet; err != nil {
			t.Error(err)
		}
	})
}

// TestADisconnectionDoesNotEndASource cuts the connection while the source waits until the server has processed its acknowledgements.
func TestADisconnectionDoesNotEndASource(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	proxy := r.Proxy()
	p := r.pull(proxy.URL(), pull.Size{Requests: memory.Requests{Messages: 1, Max: 1 << 20}}, time.Second)
	proxy.Up.Close()
	time.AfterFunc(100*time.Millisecond, proxy.Cut)
	if err := p.AwaitQuiet(t.Context(), 0); err != nil {
		t.Errorf("AwaitQuiet = %v, want nil because the client connects again", err)
	}
	proxy.Up.Open()
}

// TestASourcePassesMessagesOnWhileItStops shows that a source hands on new payloads until drainCtx ends, even after
// the end of intake.
func TestASourcePassesMessagesOnWhileItStops(t *testing.T) {
	t.Parallel()
	const n = 100
	src := &source{Shared: &Shared{ends: &each{}, out: new(inflight.Pool).NewQueue(nil, n, nil)}, drainCtx: t.Context()}
	for i := range uint64(n) {
		src.HandOn(inflight.Delivery{Msg: &paperMsg{}, Sequence: i + 1})
	}
	src.out.Close()
	handed := 0
	for _, ok := src.out.Get(); ok; _, ok = src.out.Get() {
		handed++
	}
	if left := len(src.ends.unread.takeAll()); handed != n || left > 0 {
		t.Errorf("%d of %d payloads were handed on, and %d were left", handed, n, left)
	}
}
