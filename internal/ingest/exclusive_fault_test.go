package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// poison is a payload that loses the device on which it is computed.
var poison = []byte("~POISON~")

// superviseExclusive runs workers one after another, like a supervisor, on a device that poison loses. It stops when
// n inputs are settled, and returns the number of workers that died.
func superviseExclusive(t *testing.T, r *rig, n int) (deaths int) {
	t.Helper()
	for {
		d := simDevice(t, sim.Fault{Kind: sim.DeviceLoss, Marker: poison})
		run := r.run(d, streams.Options{BatchPayloads: 128})
		err := error(nil)
		for alive := true; alive; {
			select {
			case err = <-run.done:
				run.done <- err
				alive = false
			case <-r.tally.changed:
				if r.tally.stored()+r.tally.count(inflight.DeadLettered) >= n {
					err, alive = run.drain(), false
				}
			case <-time.After(patience):
				t.Fatalf("nothing has been settled for %v: %d stored, %d dead letters of %d", patience, r.tally.stored(),
					r.tally.count(inflight.DeadLettered), n)
			}
		}
		switch {
		case errors.Is(err, device.ErrLost):
			deaths++
		case err != nil:
			t.Fatalf("Run: %v", err)
		default:
			return deaths
		}
	}
}

func TestExclusiveDeadLettersOfDeviceFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		partitions int
		poisoned   []int
	}{
		"one payload":                      {1, []int{170}},
		"three payloads, three partitions": {3, []int{3, 100, 290}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := exclusiveRig(t, c.partitions)
			const n = 300
			bad := map[int]bool{}
			for _, i := range c.poisoned {
				bad[i] = true
			}
			r.publish(n, func(i int) []byte {
				if bad[i] {
					return bytes.Clone(poison)
				}
				return document(i)
			})
			deaths := superviseExclusive(t, r, n)
			letters := r.storedIn(deadStream, "deadletter.>")
			for i := range bad {
				of := letters[uint64(i+1)]
				if len(of) != 1 || of[0].Headers().Get(results.HeaderReason) != string(results.DeviceFault) {
					t.Errorf("payload %d breaks the device: %d dead letters of it, %v", i, len(of), of)
				}
			}
			found := r.stored("results.>")
			for i := range n {
				if got := len(found[uint64(i+1)]); !bad[i] && got != 1 {
					t.Errorf("payload %d has %d results", i, got)
				}
			}
			if len(letters) != len(bad) || len(found) != n-len(bad) {
				t.Errorf("%d dead letters and %d results of %d payloads, %d of which break the device", len(letters), len(found), n, len(bad))
			}
			if maximum := 9 * len(bad); deaths > maximum || deaths == 0 {
				t.Errorf("%d workers died of it, want at most %d", deaths, maximum)
			}
			t.Logf("%d payloads that break the device took %d workers", len(bad), deaths)
		})
	}
}

// annotationOwner and annotationAlone are the keys of annotations on a partition's consumer. See
// docs/adr/0017-exclusive-delivery.md.
const (
	annotationOwner = "millrace-owner"
	annotationAlone = "millrace-alone"
)

func (r *rig) partitionConfig(p int) jetstream.ConsumerConfig {
	r.Helper()
	c := r.Consumer(r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, p))
	return c.CachedInfo().Config
}

func (r *rig) changePartition(c jetstream.ConsumerConfig) {
	r.Helper()
	if _, err := r.JS.UpdateConsumer(r.Ctx(), r.opts.Stream, c); err != nil {
		r.Fatal(err)
	}
}

// TestExclusiveAnnotationsLeaveTheRestAsItIs shows that the worker's annotations keep another client's changes to a
// partition's consumer.
func TestExclusiveAnnotationsLeaveTheRestAsItIs(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	run := r.run(hostDevice(t), streams.Options{})
	r.publish(10, document)
	r.tally.awaitStored(t, 10)
	changed := r.partitionConfig(0)
	if changed.Metadata[annotationOwner] == "" {
		t.Errorf("with a worker at it the consumer has the annotations %v, want %s among them", changed.Metadata, annotationOwner)
	}
	changed.Description = "changed meanwhile"
	r.changePartition(changed)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if after := r.partitionConfig(0); after.Description != changed.Description || after.Metadata[annotationOwner] != "" {
		t.Errorf("afterwards it is called %q and has the annotations %v; want %q, and no %s", after.Description, after.Metadata, changed.Description, annotationOwner)
	}
}

// TestExclusiveAnnotationsOfAnotherStay shows that a disconnected worker ends its lease after another worker begins
// one. It does not change the new owner's annotations.
func TestExclusiveAnnotationsOfAnotherStay(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	run := r.run(hostDevice(t), streams.Options{})
	r.publish(10, document)
	r.tally.awaitStored(t, 10)
	taken := r.partitionConfig(0)
	taken.Metadata[annotationOwner], taken.Metadata[annotationAlone] = "another", "11"
	r.changePartition(taken)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if annotations := r.partitionConfig(0).Metadata; annotations[annotationOwner] != "another" || annotations[annotationAlone] != "11" {
		t.Errorf("afterwards the annotations are %v, want those of the other worker", annotations)
	}
}

func (r *rig) partitionsInUse() (n int) {
	r.Helper()
	for p := range r.opts.Partitions {
		c := r.Consumer(r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, p))
		if c.CachedInfo().Delivered.Consumer > 0 {
			n++
		}
	}
	return n
}

// TestAWorkerOwnsAPartitionFromItsFirstInputOn shows that a worker without inputs owns none of its assigned
// partitions. The server pins a consumer to a worker with its first message. The metric's help text must explain
// that.
func TestAWorkerOwnsAPartitionFromItsFirstInputOn(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 2)
	run := r.run(hostDevice(t), streams.Options{})
	r.Until("the worker waits for inputs of both partitions", func() bool {
		waiting := 0
		for p := range r.opts.Partitions {
			waiting += r.ConsumerInfo(r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, p)).NumWaiting
		}
		return waiting == 2
	})
	if n := run.worker.Status().Partitions; n != 0 {
		t.Errorf("it owns %d partitions before it has an input", n)
	}
	r.publish(1, document)
	r.tally.awaitStored(t, 1)
	if n := run.worker.Status().Partitions; n != 1 {
		t.Errorf("it owns %d partitions after an input of one", n)
	}
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
}

// TestExclusiveWorkersAnnounceTheirPartitions shows that a worker announces its partitions until it gives them up.
// Otherwise the next owner would wait for it.
func TestExclusiveWorkersAnnounceTheirPartitions(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 4)
	words := make(chan *nats.Msg, 1000)
	if _, err := r.NC.ChanSubscribe("millrace.members.>", words); err != nil {
		t.Fatal(err)
	}
	claims := map[string]int{} // number of partitions by worker
	hear := func() {
		var said struct {
			ID   string `json:"id"`
			Owns []int  `json:"owns"`
		}
		for {
			select {
			case m := <-words:
				if err := json.Unmarshal(m.Data, &said); err != nil {
					t.Fatal(err)
				}
				claims[said.ID] = len(said.Owns)
			default:
				return
			}
		}
	}
	published := 0
	more := func() {
		r.publishFrom(published, published+40, document)
		published += 40
		r.tally.awaitStored(t, published)
		hear()
	}
	first := r.run(hostDevice(t), streams.Options{})
	more()
	inUse := r.partitionsInUse()
	if inUse <= 2 {
		t.Fatalf("%d partitions have inputs, which is as many as one of two workers has", inUse)
	}
	second := r.run(hostDevice(t), streams.Options{})
	until(t, "two workers claim two partitions each at most, and together what is in use", func() bool {
		more()
		all := 0
		for _, n := range claims {
			if n > 2 {
				return false
			}
			all += n
		}
		return len(claims) == 2 && all == inUse
	})
	for _, w := range []*running{first, second} {
		if err := w.drain(); err != nil {
			t.Fatalf("Run: %v", err)
		}
	}
	r.wantAll(published, document)
}
