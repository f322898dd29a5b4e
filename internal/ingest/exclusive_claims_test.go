package ingest

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

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
