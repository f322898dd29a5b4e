package ingest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/streams"
)

// pulling is a source at work with nothing behind it.
type pulling struct {
	*source
	nc   *nats.Conn
	base uint64             // messages that came before those of the pull
	stop context.CancelFunc // of the pull

	giveUp context.CancelFunc // ends the time for what has come
	done   chan error
	left   chan inflight.Delivery // what it could not hand on
}

// pull runs a source within that limit, on a connection of its own. Nobody takes what it hands on but the test.
func (r *rig) pull(size pull.Size, beat time.Duration) *pulling {
	r.t.Helper()
	size.Beat = beat
	nc, err := natsconn.Open(natsconn.Server{URL: r.url}, "source", r.opts.Logger, r.tally.Reconnected)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	consumer, err := js.Consumer(r.ctx(), r.opts.Stream, r.opts.Consumer)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	hard, giveUp := context.WithCancel(r.ctx())
	p := &pulling{nc: nc, stop: stop, giveUp: giveUp, done: make(chan error, 1), left: make(chan inflight.Delivery, 1<<16)}
	p.source = &source{
		nc: nc, consumer: consumer, size: size, limit: size.Limit(nc), handing: &atomic.Bool{}, out: inflight.NewQueue(0), log: r.opts.Logger, observer: r.tally,
		hold: func(context.Context, *inflight.Delivery) bool { return true }, force: func(*inflight.Delivery) {}, admit: func(*inflight.Delivery) bool { return true },
		unread: func(d inflight.Delivery) { p.left <- d },
	}
	p.base = nc.Stats().InMsgs
	go func() { p.done <- p.run(ctx, hard) }()
	r.t.Cleanup(func() {
		stop()
		giveUp()
		if err := <-p.done; err != nil {
			r.t.Errorf("the source ended with %v", err)
		}
	})
	return p
}

// next is the next delivery.
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
		most    int // deliveries while nobody reads
	}{
		{"by messages", someBytes(10), pull.Size{Messages: 25, Most: 1 << 20}, 50},
		{"by bytes", someBytes(10000), pull.Size{Messages: 4096, Most: 100000}, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.provision()
			const n = 300
			r.publish(n, c.payload)
			p := r.pull(c.size, time.Second)
			// The server answers a pull in one go, so when the fifth delivery is there it has counted all.
			var got []inflight.Delivery
			for range 5 {
				got = append(got, p.next(t))
			}
			if pending := r.consumerInfo().NumAckPending; pending < 5 || pending > c.most {
				t.Errorf("%d delivered while nobody reads, want 5 to %d", pending, c.most)
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

// The server refuses a pull that asks for more than the consumer allows, without a word to the client.
func TestConsumersOwnBoundsAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	c, err := r.js.Consumer(r.ctx(), r.opts.Stream, r.opts.Consumer)
	if err != nil {
		t.Fatal(err)
	}
	settings := c.CachedInfo().Config
	settings.MaxRequestBatch, settings.MaxRequestMaxBytes, settings.MaxRequestExpires = 7, 64<<10, 3*time.Second
	if _, err := r.js.UpdateConsumer(r.ctx(), r.opts.Stream, settings); err != nil {
		t.Fatal(err)
	}
	const n = 50
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Config{})
	r.tally.await(t, inflight.Published, n)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(n, document)
}

// TestStoppedSourceHandsOnWhatTheClientHolds takes half of it in time. The rest is left when the time is over.
func TestStoppedSourceHandsOnWhatTheClientHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 100
	r.publish(n, document)
	p := r.pull(pull.Size{Messages: n, Most: 1 << 20}, time.Second)
	seen := map[uint64]bool{p.next(t).Sequence: true}
	until(t, "all are in the client", func() bool { return p.nc.Stats().InMsgs-p.base >= n })
	p.stop()
	for range n / 2 {
		seen[p.next(t).Sequence] = true
	}
	p.giveUp()
	for d, ok := p.out.Get(); ok; d, ok = p.out.Get() { // the source may choose to hand on one more
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

func TestPullGoesOnWhenTheConsumerIsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(10, document)
	run := r.run(hostDevice(t), streams.Config{})
	r.tally.awaitStored(t, 10)
	r.awaitFinished(10)
	if err := r.js.DeleteConsumer(r.ctx(), r.opts.Stream, r.opts.Consumer); err != nil {
		t.Fatal(err)
	}
	r.log.Await(t, "the consumer is gone")
	r.publishFrom(10, 20, document)
	r.provision() // a new consumer, which begins at the beginning
	r.tally.awaitAcknowledged(t, 30)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(20, document) // the first ten were there already
}

// TestPullIsMadeAnewWhenTheServerFallsSilent loses everything that belongs to the pull, while the connection stays.
func TestPullIsMadeAnewWhenTheServerFallsSilent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.AckWait = time.Second
	r.provision()
	proxy := r.behindProxy()
	p := r.pull(pull.Size{Messages: 10, Most: 1 << 20}, 500*time.Millisecond)
	r.publish(1, document)
	if d := p.next(t); d.Sequence != 1 || d.Msg.Ack() != nil {
		t.Fatalf("input %d came first, or could not be acknowledged", d.Sequence)
	}
	proxy.Lose(func(string, []byte) bool { return true })
	r.publishFrom(1, 2, document)
	r.log.Await(t, "pull interrupted")
	proxy.Lose(nil)
	d := p.next(t)
	if d.Sequence != 2 || d.NumDelivered < 2 {
		t.Errorf("input %d came for the %d. time, want the second input, again", d.Sequence, d.NumDelivered)
	}
	if r.tally.redelivered() == 0 || r.tally.reconnects() != 0 {
		t.Errorf("%d redelivered and %d reconnections, want some and none", r.tally.redelivered(), r.tally.reconnects())
	}
}

func TestMessageFromElsewhereIsIgnored(t *testing.T) {
	t.Parallel()
	stray := pull.Stored(nil, "not.a.stream", "consumer", 1, &jetstream.RawStreamMsg{Subject: "stray"})
	if _, err := inflight.NewDelivery(stray, time.Now()); err == nil {
		t.Error("a message without metadata gave no error")
	}
}
