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

// rig has a stream that may be trimmed, with the registered consumers of two partitions.
type rig struct {
	*natstest.Rig
	removed uint64
	last    State
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Rig: natstest.New(t)}
	c := jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"0.ingest", "1.ingest"}}
	c.Metadata = WithMark(c, []string{"p-0", "p-1"})
	r.Create(c)
	r.partition(0)
	r.partition(1)
	return r
}

func (r *rig) partition(p int) {
	r.Helper()
	name, subject := fmt.Sprint("p-", p), fmt.Sprint(p, ".ingest")
	r.consume(jetstream.ConsumerConfig{Durable: name, FilterSubject: subject, AckPolicy: jetstream.AckAllPolicy})
}

func (r *rig) consume(c jetstream.ConsumerConfig) {
	r.Helper()
	natstest.Must(r.JS.CreateOrUpdateConsumer(r.Ctx(), "INGEST", c))(r)
}

// store stores one input for each of the given partitions.
func (r *rig) store(partitions ...int) {
	r.Helper()
	r.Publish(0, len(partitions), func(i int) *nats.Msg { return &nats.Msg{Subject: fmt.Sprint(partitions[i], ".ingest")} })
}

func (r *rig) process(consumer string, n int) {
	r.Helper()
	for range n {
		natstest.OK(r, natstest.Must(r.Consumer("INGEST", consumer).Next())(r).DoubleAck(r.Ctx()))
	}
}

// Trim implements Observer.
func (r *rig) Trim(removed uint64, s State) {
	r.removed += removed
	r.last = s
}

func (r *rig) trimmer(policy Policy) *Trimmer {
	return New(Options{JS: r.JS, Stream: "INGEST", Policy: policy, Consumers: []string{"p-0", "p-1"}, Log: r.Log.Logger(), Observer: r})
}

// register registers consumers under a policy.
func (r *rig) register(policy Policy, consumers ...string) error {
	return New(Options{JS: r.JS, Stream: "INGEST", Policy: policy, Consumers: consumers}).Register(r.Ctx())
}

// trim runs two steps of a worker, because in the first step the worker leaves the work to other workers.
func (r *rig) trim(t *Trimmer) {
	r.Helper()
	for range 2 {
		natstest.Must(t.step(r.Ctx()))(r)
	}
}

// wantFloor checks the floor of a stream with consumers that report the given states.
func (r *rig) wantFloor(floor uint64, holder string, consumers ...*jetstream.ConsumerInfo) {
	r.Helper()
	s, err := r.trimmer(Auto).floor(r.Ctx(), State{Info: r.Stream("INGEST").CachedInfo()}, consumers)
	if err != nil || s.Floor != floor || s.Holder != holder {
		r.Errorf("floor %d, held by %q, error %v, want %d, by %q", s.Floor, s.Holder, err, floor, holder)
	}
}

// counting returns a consumer's state with another number of pending messages.
func (r *rig) counting(consumer string, pending uint64) *jetstream.ConsumerInfo {
	r.Helper()
	info := r.ConsumerInfo("INGEST", consumer)
	info.NumPending = pending
	return info
}

// wantLeft checks the first sequence of the stream, the reason why nothing is removed, and the consumer that holds the floor.
func (r *rig) wantLeft(first uint64, held Reason, holder string) {
	r.Helper()
	if got := r.Stream("INGEST").CachedInfo().State.FirstSeq; got != first || r.last.Held != held || r.last.Holder != holder {
		r.Errorf("the stream begins at %d (%q, consumer %q holds the floor), want %d (%q, %q): %s",
			got, r.last.Held, r.last.Holder, first, held, holder, r.last.Explain())
	}
}

// TestTheFloor shows that inputs are removed once all consumers have acknowledged them. A consumer without inputs
// does not delay the removal.
func TestTheFloor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	trimmer := r.trimmer(Auto)
	r.store(0, 0, 0, 1, 0, 0)
	r.trim(trimmer)
	r.wantLeft(1, None, "p-0")
	r.process("p-0", 2)
	r.trim(trimmer)
	r.wantLeft(1, None, "p-1") // its floor is its start, because it has an input
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

// TestOneInputHoldsAll shows that one unacknowledged input of a shared consumer delays the removal of later ones.
// With shared delivery, inputs are acknowledged in any order.
func TestOneInputHoldsAll(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.consume(jetstream.ConsumerConfig{Durable: "shared", AckPolicy: jetstream.AckExplicitPolicy})
	r.store(0, 0, 0)
	r.process("p-0", 3)
	r.process("shared", 1)
	natstest.Must(r.Consumer("INGEST", "shared").Next())(t)
	r.process("shared", 1)
	r.trim(r.trimmer(Auto))
	r.wantLeft(2, None, "shared")
}

// TestAConsumerThatCountsWrong uses a consumer that reports no pending messages, because its server lacks the
// stream's last messages. The stream itself has them, and is searched for messages of each filter.
func TestAConsumerThatCountsWrong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.consume(jetstream.ConsumerConfig{
		Durable: "both", FilterSubjects: []string{"0.ingest", "1.ingest"}, AckPolicy: jetstream.AckExplicitPolicy,
	})
	r.store(0, 1, 0)
	r.process("p-0", 2)
	r.process("both", 1)
	r.wantFloor(1, "p-1", r.ConsumerInfo("INGEST", "p-0"), r.counting("p-1", 0))
	r.wantFloor(1, "both", r.counting("both", 0))
}

// TestWhatHoldsEverything has one row for each reason why no processed input is removed.
func TestWhatHoldsEverything(t *testing.T) {
	t.Parallel()
	metadata := func(metadata map[string]string) func(r *rig) {
		return func(r *rig) { r.Change("INGEST", func(c *jetstream.StreamConfig) { c.Metadata = metadata }) }
	}
	source := &jetstream.StreamSource{Name: "INGEST"}
	for name, row := range map[string]struct {
		spoil func(r *rig)
		want  Reason
	}{
		"a consumer is deleted": {func(r *rig) { r.deleteConsumer("p-1") }, Missing},
		"a consumer is still to be made": {func(r *rig) {
			natstest.OK(r, r.register(Auto, "p-2"))
		}, Missing},
		"no consumers": {func(r *rig) {
			metadata(map[string]string{MarkKey: "INGEST"})(r)
			r.deleteConsumer("p-0")
			r.deleteConsumer("p-1")
		}, NoConsumers},
		"no mark": {metadata(nil), NotTrimmed},
		"the mark of a copy": {func(r *rig) {
			r.Change("INGEST", func(c *jetstream.StreamConfig) { c.Metadata[MarkKey] = "ORIGINAL" })
		}, NotTrimmed},
		"a mirror": {func(r *rig) { r.Create(jetstream.StreamConfig{Name: "MIRROR", Mirror: source}) }, Mirrored},
		"a stream that sources": {func(r *rig) {
			r.Create(jetstream.StreamConfig{Name: "SOURCING", Sources: []*jetstream.StreamSource{source}})
		}, Mirrored},
		"consumers that aren't registered": {metadata(map[string]string{MarkKey: "INGEST"}), Unregistered},
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

// TestOtherRetentions shows that a Trimmer ignores streams whose server itself removes inputs, even with the policy Always.
func TestOtherRetentions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store(0)
	r.Change("INGEST", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy })
	if r.trim(r.trimmer(Always)); r.last.Held != Retention {
		t.Errorf("held by %q, want %q", r.last.Held, Retention)
	}
}

// TestACopyThatMayMiss shows that the policy Always removes inputs even if another stream copies them, and needs no
// mark.
func TestACopyThatMayMiss(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "MIRROR", Mirror: &jetstream.StreamSource{Name: "INGEST"}})
	r.Change("INGEST", func(c *jetstream.StreamConfig) { delete(c.Metadata, MarkKey) })
	r.store(0)
	r.process("p-0", 1)
	r.trim(r.trimmer(Never))
	r.wantLeft(1, NotTrimmed, "")
	r.trim(r.trimmer(Always))
	r.wantLeft(2, None, "")
}

func (r *rig) deleteConsumer(name string) {
	r.Helper()
	natstest.OK(r, r.JS.DeleteConsumer(r.Ctx(), "INGEST", name))
}

// TestAConsumerIsMadeAgain shows that no input is removed while a registered consumer is missing. The recreated
// consumer gets all inputs.
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

// TestRegisterWithOthers lets deployments register at the same time. They overwrite each other's metadata, and each
// deployment notices the overwriting.
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
			if err := r.register(Auto, name); err != nil {
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

// TestOneWorkerTrims shows that a worker removes no inputs while another worker does, unless the stream is nearly full.
func TestOneWorkerTrims(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one, two := r.trimmer(Auto), r.trimmer(Auto)
	r.store(0, 0)
	r.process("p-0", 1)
	r.trim(one)
	for range maxYields {
		r.process("p-0", 1)
		r.store(0)
		natstest.Must(two.step(r.Ctx()))(t)
		if r.last.Info != nil {
			t.Error("two workers look for inputs to remove")
		}
		r.trim(one)
	}
	r.Change("INGEST", func(c *jetstream.StreamConfig) { c.MaxBytes = 1000 })
	before := r.removed
	r.Put(&nats.Msg{Subject: "0.ingest", Data: make([]byte, 600)})
	r.process("p-0", 2)
	two.first, two.yields = 1, 0
	if _, err := two.step(r.Ctx()); err != nil || r.removed != before+2 {
		t.Errorf("%d inputs were removed from a stream that is nearly full, want 2: %v", r.removed-before, err)
	}
}

// TestAServerThatRestarts shows that a state that was read before a restart causes no purge after it. The restarted
// server may have reused the sequences.
func TestAServerThatRestarts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store(0)
	r.process("p-0", 1)
	trimmer := r.trimmer(Auto)
	s := r.Stream("INGEST")
	state := natstest.Must(trimmer.lookRegistered(r.Ctx(), s.CachedInfo()))(t)
	server := r.NC.ConnectedServerId()
	r.Restart()
	r.Until("the client is connected again", func() bool { return r.NC.IsConnected() && r.NC.ConnectedServerId() != server })
	if err := trimmer.purge(r.Ctx(), s, state, server); err == nil {
		t.Error("the stream was purged")
	}
	r.wantLeft(1, None, "")
}

// TestMay shows that the requests for checking permissions change nothing.
func TestMay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store(0, 1)
	before := r.StreamConfig("INGEST")
	natstest.OK(t, New(Options{JS: r.JS, Consumers: []string{"p-0", "other"}}).May(r.Ctx(), before))
	s := r.Stream("INGEST").CachedInfo()
	if s.State.Msgs != 2 || !maps.Equal(s.Config.Metadata, before.Metadata) {
		t.Errorf("the stream has %d messages and metadata %v", s.State.Msgs, s.Config.Metadata)
	}
}
