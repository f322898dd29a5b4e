package trim

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// rig has a stream that may be trimmed, and the consumers of two partitions, which are registered.
type rig struct {
	*natstest.Rig
	removed uint64
	last    State
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return rigOn(natstest.New(t))
}

func rigOn(at *natstest.Rig) *rig {
	at.Helper()
	r := &rig{Rig: at}
	c := jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"0.ingest", "1.ingest"}}
	c.Metadata = WithMark(c, []string{"p-0", "p-1"})
	r.Create(c)
	r.partition(0)
	r.partition(1)
	return r
}

func (r *rig) partition(p int) {
	r.Helper()
	r.consume(jetstream.ConsumerConfig{Durable: fmt.Sprint("p-", p), FilterSubject: fmt.Sprint(p, ".ingest"), AckPolicy: jetstream.AckAllPolicy})
}

func (r *rig) consume(c jetstream.ConsumerConfig) {
	r.Helper()
	if _, err := r.JS.CreateOrUpdateConsumer(r.Ctx(), "INGEST", c); err != nil {
		r.Fatal(err)
	}
}

// store stores inputs of these partitions.
func (r *rig) store(partitions ...int) {
	r.Helper()
	r.Publish(0, len(partitions), func(i int) *nats.Msg { return &nats.Msg{Subject: fmt.Sprint(partitions[i], ".ingest")} })
}

// process acknowledges the next n messages of a consumer.
func (r *rig) process(consumer string, n int) {
	r.Helper()
	for range n {
		m, err := r.Consumer("INGEST", consumer).Next()
		if err != nil {
			r.Fatal(err)
		}
		if err := m.DoubleAck(r.Ctx()); err != nil {
			r.Fatal(err)
		}
	}
}

// Trim implements Observer.
func (r *rig) Trim(removed uint64, s State) {
	r.removed += removed
	r.last = s
}

func (r *rig) trimmer(policy Policy) *Trimmer {
	return New(Settings{JS: r.JS, Stream: "INGEST", Policy: policy, Consumers: []string{"p-0", "p-1"}, Log: r.Log.Logger(), Observer: r})
}

// trim has a worker look twice, because it leaves the work to others at the first time.
func (r *rig) trim(t *Trimmer) {
	r.Helper()
	for range 2 {
		if _, err := t.step(r.Ctx()); err != nil {
			r.Fatal(err)
		}
	}
}

// wantLeft checks the first sequence of the stream, why nothing is removed, and which consumer holds the floor.
func (r *rig) wantLeft(first uint64, held Reason, holder string) {
	r.Helper()
	if got := r.Stream("INGEST").CachedInfo().State.FirstSeq; got != first || r.last.Held != held || r.last.Holder != holder {
		r.Errorf("the stream begins at %d (%q, consumer %q holds the floor), want %d (%q, %q): %s",
			got, r.last.Held, r.last.Holder, first, held, holder, r.last.Explain())
	}
}

// TestTheFloor: inputs go when all consumers have acknowledged them. A consumer without inputs holds nothing.
func TestTheFloor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	trimmer := r.trimmer(Auto)
	r.store(0, 0, 0, 1, 0, 0)
	r.trim(trimmer)
	r.wantLeft(1, None, "p-0")
	r.process("p-0", 2)
	r.trim(trimmer)
	r.wantLeft(1, None, "p-1") // its floor is where it began, because it has an input
	r.process("p-1", 1)
	r.trim(trimmer)
	r.wantLeft(3, None, "p-0")
	r.process("p-0", 3)
	r.trim(trimmer)
	r.wantLeft(7, None, "")
	if state := r.Stream("INGEST").CachedInfo().State; state.Msgs != 0 || r.removed != 6 {
		t.Errorf("%d inputs are left, and %d removed, want 0 and 6", state.Msgs, r.removed)
	}
	r.store(1)
	r.trim(trimmer)
	r.wantLeft(7, None, "p-1")
}

// TestOneInputHoldsAll: with shared delivery inputs are acknowledged in any order.
func TestOneInputHoldsAll(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.consume(jetstream.ConsumerConfig{Durable: "shared", AckPolicy: jetstream.AckExplicitPolicy})
	r.store(0, 0, 0)
	r.process("p-0", 3)
	r.process("shared", 1)
	if _, err := r.Consumer("INGEST", "shared").Next(); err != nil {
		t.Fatal(err)
	}
	r.process("shared", 1)
	r.trim(r.trimmer(Auto))
	r.wantLeft(2, None, "shared")
}

// TestAConsumerThatCountsWrong: a consumer's own counts say that it has nothing, because the server on which it is doesn't have the last
// messages of the stream yet. The stream does.
func TestAConsumerThatCountsWrong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store(0, 1, 0)
	r.process("p-0", 2)
	stale := r.ConsumerInfo("INGEST", "p-1")
	stale.NumPending = 0
	reader := r.trimmer(Auto).reader
	s, err := reader.floor(r.Ctx(), State{Info: r.Stream("INGEST").CachedInfo()}, []*jetstream.ConsumerInfo{r.ConsumerInfo("INGEST", "p-0"), stale})
	if err != nil || s.Floor != 1 || s.Holder != "p-1" {
		t.Errorf("floor %d, held by %q, error %v, want 1, by p-1", s.Floor, s.Holder, err)
	}
}

// TestWhatHoldsEverything: each row is a reason for which nothing is removed, although all inputs are processed.
func TestWhatHoldsEverything(t *testing.T) {
	t.Parallel()
	change := func(r *rig, change func(*jetstream.StreamConfig)) {
		c := r.StreamConfig("INGEST")
		change(&c)
		r.Create(c)
	}
	for name, row := range map[string]struct {
		spoil func(r *rig)
		want  Reason
	}{
		"a consumer is deleted": {func(r *rig) { r.deleteConsumer("p-1") }, Missing},
		"a consumer is still to be made": {func(r *rig) {
			if err := Register(r.Ctx(), r.JS, "INGEST", Auto, []string{"p-2"}); err != nil {
				r.Fatal(err)
			}
		}, Missing},
		"no consumers": {func(r *rig) {
			change(r, func(c *jetstream.StreamConfig) { c.Metadata = map[string]string{MarkKey: "INGEST"} })
			r.deleteConsumer("p-0")
			r.deleteConsumer("p-1")
		}, NoConsumers},
		"no mark":            {func(r *rig) { change(r, func(c *jetstream.StreamConfig) { c.Metadata = nil }) }, NotTrimmed},
		"the mark of a copy": {func(r *rig) { change(r, func(c *jetstream.StreamConfig) { c.Metadata[MarkKey] = "ORIGINAL" }) }, NotTrimmed},
		"a mirror": {func(r *rig) {
			r.Create(jetstream.StreamConfig{Name: "MIRROR", Mirror: &jetstream.StreamSource{Name: "INGEST"}})
		}, Mirrored},
		"a stream that sources": {func(r *rig) {
			r.Create(jetstream.StreamConfig{Name: "SOURCING", Sources: []*jetstream.StreamSource{{Name: "INGEST"}}})
		}, Mirrored},
		"consumers that aren't registered": {func(r *rig) {
			change(r, func(c *jetstream.StreamConfig) { c.Metadata = map[string]string{MarkKey: "INGEST"} })
		}, Unregistered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.store(0, 1, 0)
			r.process("p-0", 2)
			r.process("p-1", 1)
			row.spoil(r)
			r.trim(r.trimmer(Auto))
			r.wantLeft(1, row.want, "")
			if r.last.Explain() == "" {
				t.Error("there is no explanation")
			}
		})
	}
}

// TestOtherRetentions: the server itself removes inputs from such streams. With the policy Always, nothing else keeps a Trimmer from them.
func TestOtherRetentions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store(0)
	c := r.StreamConfig("INGEST")
	c.Retention = jetstream.InterestPolicy
	r.Create(c)
	if r.trim(r.trimmer(Always)); r.last.Held != Retention {
		t.Errorf("held by %q, want %q", r.last.Held, Retention)
	}
}

// TestACopyThatMayMiss: with the policy Always inputs go although another stream copies them, and without a mark.
func TestACopyThatMayMiss(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "MIRROR", Mirror: &jetstream.StreamSource{Name: "INGEST"}})
	c := r.StreamConfig("INGEST")
	delete(c.Metadata, MarkKey)
	r.Create(c)
	r.store(0)
	r.process("p-0", 1)
	r.trim(r.trimmer(Never))
	r.wantLeft(1, NotTrimmed, "")
	r.trim(r.trimmer(Always))
	r.wantLeft(2, None, "")
}

func (r *rig) deleteConsumer(name string) {
	r.Helper()
	if err := r.JS.DeleteConsumer(r.Ctx(), "INGEST", name); err != nil {
		r.Fatal(err)
	}
}

// TestAConsumerIsMadeAgain: nothing is removed while a registered consumer is missing, and it gets everything when it is back.
func TestAConsumerIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	trimmer := r.trimmer(Auto)
	r.store(0, 1, 0)
	r.process("p-0", 2)
	r.deleteConsumer("p-1")
	r.trim(trimmer)
	r.wantLeft(1, Missing, "")
	r.partition(1)
	r.process("p-1", 1)
	r.trim(trimmer)
	r.wantLeft(4, None, "")
}

// TestRegisterWithOthers: deployments that register at the same moment overwrite each other's metadata, and each notices.
func TestRegisterWithOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const deployments = 4
	var all sync.WaitGroup
	want := []string{"p-0", "p-1"}
	for i := range deployments {
		name := fmt.Sprint("other-", i)
		want = append(want, name)
		all.Go(func() {
			if err := Register(r.Ctx(), r.JS, "INGEST", Auto, []string{name}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	slices.Sort(want)
	if got := Registered(r.StreamConfig("INGEST")); !slices.Equal(got, want) {
		t.Errorf("registered are %v, want %v", got, want)
	}
}

// TestOneWorkerTrims: a worker that sees that another one removes inputs doesn't, unless the stream is filling up.
func TestOneWorkerTrims(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one, two := r.trimmer(Auto), r.trimmer(Auto)
	r.store(0, 0)
	r.process("p-0", 1)
	r.trim(one)
	for range mostYields {
		r.process("p-0", 1)
		r.store(0)
		if _, err := two.step(r.Ctx()); err != nil {
			t.Fatal(err)
		}
		if r.last.Info != nil {
			t.Error("two workers look for inputs to remove")
		}
		r.trim(one)
	}
	c := r.StreamConfig("INGEST")
	c.MaxBytes = 1000
	r.Create(c)
	before := r.removed
	r.Publish(0, 1, func(int) *nats.Msg { return &nats.Msg{Subject: "0.ingest", Data: make([]byte, 600)} })
	r.process("p-0", 2)
	two.first, two.yields = 1, 0
	if _, err := two.step(r.Ctx()); err != nil || r.removed != before+2 {
		t.Errorf("%d inputs were removed from a stream that is nearly full, want 2: %v", r.removed-before, err)
	}
}

// TestAServerThatRestarts: what was read from a server isn't purged at the next one, which may have given the sequences to other messages.
func TestAServerThatRestarts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store(0)
	r.process("p-0", 1)
	trimmer := r.trimmer(Auto)
	s := r.Stream("INGEST")
	state, err := trimmer.look(r.Ctx(), s.CachedInfo())
	if err != nil {
		t.Fatal(err)
	}
	server := r.NC.ConnectedServerId()
	r.Restart()
	r.Until("the client is connected again", func() bool { return r.NC.IsConnected() && r.NC.ConnectedServerId() != server })
	if err := trimmer.purge(r.Ctx(), s, state, server); err == nil {
		t.Error("the stream was purged")
	}
	r.wantLeft(1, None, "")
}

// TestMay: the requests that ask for permissions change nothing.
func TestMay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store(0, 1)
	before := r.StreamConfig("INGEST")
	if err := May(r.Ctx(), r.JS, before, []string{"p-0", "other"}); err != nil {
		t.Error(err)
	}
	s := r.Stream("INGEST").CachedInfo()
	if s.State.Msgs != 2 || !maps.Equal(s.Config.Metadata, before.Metadata) {
		t.Errorf("the stream has %d messages and metadata %v", s.State.Msgs, s.Config.Metadata)
	}
}
