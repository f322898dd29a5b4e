package lease

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/memory"
)

// pulling is a running source without submitters.
type pulling struct {
	*source
	nc       *nats.Conn
	stop     context.CancelFunc     // ends intake
	endDrain context.CancelFunc     // ends drainCtx
	left     chan inflight.Delivery // deliveries that the source left unread
	done     chan error
}

// pull runs a source of the given size on its own connection. Only the test receives its deliveries.
func (r *sharedRig) pull(size pull.Size, beat time.Duration) *pulling {
	r.Helper()
	size.Beat = beat
	nc := r.open("source")
	intake, stop := context.WithCancel(context.Background())
	drainCtx, endDrain := context.WithCancel(r.Ctx())
	p := &pulling{nc: nc, stop: stop, endDrain: endDrain, done: make(chan error, 1), left: make(chan inflight.Delivery, 1<<16)}
	o := Options{Topology: r.topology, JS: r.JetStream(nc), Conns: natsconn.Connections{nc}, Size: func(jetstream.Consumer) pull.Size { return size }}
	server := newConsumerServer(&o, nc, r.consumer(nc), r.Log.Logger())
	server.request = server.sharedRequest()
	p.source = &source{
		server: server, drainCtx: drainCtx, occupied: &atomic.Bool{}, out: inflight.NewQueue(0),
		log: r.Log.Logger(), observer: r.counts,
		hold:   func(context.Context, *inflight.Delivery) bool { return true },
		force:  func(*inflight.Delivery) {},
		admit:  func(*inflight.Delivery) bool { return true },
		unread: func(d inflight.Delivery) { p.left <- d },
	}
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
		d, _ := p.out.Get()
		got <- d
	}()
	select {
	case d := <-got:
		return d
	case <-time.After(patience):
		t.Fatalf("no delivery in %v", patience)
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
			r := newSharedRig(t)
			r.provision()
			const n = 300
			r.publish(0, n, c.payload)
			p := r.pull(c.size, time.Second)
			// The server answers a pull at once. When the fifth delivery has arrived, the server has counted the
			// whole pull.
			var got []inflight.Delivery
			for range 5 {
				got = append(got, p.next(t))
			}
			if pending := r.consumer(r.NC).CachedInfo().NumAckPending; pending < len(got) || pending-len(got) > c.max {
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
	r := newSharedRig(t)
	r.provision()
	const n = 100
	r.publish(0, n, document)
	p := r.pull(pull.Size{Requests: memory.Requests{Messages: n, Max: 1 << 20}}, time.Second)
	seen := map[uint64]bool{p.next(t).Sequence: true}
	r.AwaitDelivered(r.topology.Stream, n, p.nc)
	p.stop()
	for range n / 2 {
		seen[p.next(t).Sequence] = true
	}
	p.endDrain()
	for d, ok := p.out.Get(); ok; d, ok = p.out.Get() { // the source may hand on one more delivery
		seen[d.Sequence] = true
	}
	err := <-p.done
	p.done <- err
	if err != nil {
		t.Fatal(err)
	}
	close(p.left)
	if len(seen) < n/2+1 || len(seen)+len(p.left) != n {
		t.Errorf("%d of %d deliveries were handed on, and %d left", len(seen), n, len(p.left))
	}
}

// TestPullIsRenewedWhenTheServerFallsSilent loses all messages of the pull on a working connection.
func TestPullIsRenewedWhenTheServerFallsSilent(t *testing.T) {
	t.Parallel()
	r := newSharedRig(t)
	r.topology.AckWait = time.Second
	r.provision()
	proxy := r.Proxy()
	r.url = proxy.URL()
	p := r.pull(pull.Size{Requests: memory.Requests{Messages: 10, Max: 1 << 20}}, 500*time.Millisecond)
	r.publish(0, 1, document)
	if d := p.next(t); d.Sequence != 1 || d.Msg.Ack() != nil {
		t.Fatalf("input %d came first, or could not be acknowledged", d.Sequence)
	}
	proxy.Lose(func(string, []byte) bool { return true })
	r.publish(1, 2, document)
	r.Log.Await(t, "pull interrupted")
	proxy.Lose(nil)
	d := p.next(t)
	if d.Sequence != 2 || d.NumDelivered < 2 {
		t.Errorf("input %d came for the %d. time, want the second input, again", d.Sequence, d.NumDelivered)
	}
	if again, reconnected := r.counts.redelivered.Load(), r.counts.reconnected.Load(); again == 0 || reconnected != 0 {
		t.Errorf("%d redelivered and %d reconnections, want some and none", again, reconnected)
	}
}

func TestMessageFromElsewhereIsIgnored(t *testing.T) {
	t.Parallel()
	stray := pull.Stored(nil, "not.a.stream", "consumer", 1, &jetstream.RawStreamMsg{Subject: "stray"})
	if _, err := inflight.NewDelivery(stray, time.Now()); err == nil {
		t.Error("a message without metadata gave no error")
	}
}

// leaving is an isolated pull that holds one delivery and has no time to try it.
type leaving struct{ isolatedPull }

func (leaving) Begin(context.Context) {}

func (leaving) Play(context.Context) error { return nil }

func (leaving) Leave(unread func(inflight.Delivery)) { unread(inflight.Delivery{Sequence: 7}) }

// TestWhatCarefulPullingHasAtTheEndIsLeft shows that a source that ends gives back the deliveries of its isolated
// pull. They are then redelivered at once and not after AckWait.
func TestWhatCarefulPullingHasAtTheEndIsLeft(t *testing.T) {
	over, end := context.WithCancel(t.Context())
	end()
	var left []uint64
	src := &source{drainCtx: over, out: inflight.NewQueue(2), isolated: leaving{}, unread: func(d inflight.Delivery) { left = append(left, d.Sequence) }}
	if err := src.run(over); err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0] != 7 {
		t.Errorf("inputs %v were left, want 7", left)
	}
}

// flushed is a server that has processed all acknowledgements.
type flushed struct{ leaseServer }

func (flushed) flush(context.Context) error { return nil }

// TestQuietIsWhenNothingElseIsInFlight shows that a quarantined payload is tried while no other payload is in flight.
// No other payload can then be to blame.
func TestQuietIsWhenNothingElseIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &source{ledger: newLedger(), server: flushed{}}
		suspect, other := &inflight.Delivery{Sequence: 1}, &inflight.Delivery{Sequence: 2}
		src.ledger.take(suspect)
		src.ledger.take(other)
		quiet := make(chan error, 1)
		go func() { quiet <- src.AwaitQuiet(t.Context(), 1) }()
		synctest.Wait()
		select {
		case err := <-quiet:
			t.Fatalf("it was quiet (%v) with another input in hand", err)
		default:
		}
		src.ledger.settle(other)
		if err := <-quiet; err != nil {
			t.Error(err)
		}
	})
}

// TestADisconnectionDoesNotEndASource cuts the connection while the source waits until the server has processed its acknowledgements.
func TestADisconnectionDoesNotEndASource(t *testing.T) {
	t.Parallel()
	r := newSharedRig(t)
	r.provision()
	proxy := r.Proxy()
	r.url = proxy.URL()
	p := r.pull(pull.Size{Requests: memory.Requests{Messages: 1, Max: 1 << 20}}, time.Second)
	p.ledger = newLedger()
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
	src := &source{out: inflight.NewQueue(n), drainCtx: t.Context(), unread: func(d inflight.Delivery) { t.Errorf("sequence %d was given back", d.Sequence) }}
	for i := range uint64(n) {
		src.HandOn(inflight.Delivery{Msg: &paperMsg{}, Sequence: i + 1})
	}
	src.out.Close()
	handed := 0
	for _, ok := src.out.Get(); ok; _, ok = src.out.Get() {
		handed++
	}
	if handed != n {
		t.Errorf("%d of %d payloads were handed on", handed, n)
	}
}
