package ingest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

func (run *running) wanted() int { return run.worker.shards[0].mode.(*lease.Exclusive).Wanted() }

// partitionsInUse returns the number of partitions with inputs.
func (r *rig) partitionsInUse() (n int) {
	r.Helper()
	for p := range r.opts.Partitions {
		if r.ConsumerInfo(r.opts.Stream, r.consumerOf(p)).Delivered.Consumer > 0 {
			n++
		}
	}
	return n
}

// TestExclusivePartitionsMoveToWorkersThatCome shows that results are stored once while workers join and leave, and
// that every partition finds an owner. A worker announces its partitions until it gives them up. Otherwise the next
// owner would wait for it.
func TestExclusivePartitionsMoveToWorkersThatCome(t *testing.T) {
	r := exclusiveRig(t, 4)
	announced := r.hear("millrace.members.>")
	claims := map[string]int{} // number of partitions by worker
	published := 0
	more := func(n int) {
		t.Helper()
		r.publishFrom(published, published+n, document)
		published += n
		r.tally.awaitStored(t, published)
		for len(announced) > 0 {
			var said struct {
				ID   string `json:"id"`
				Owns []int  `json:"owns"`
			}
			check(r.TB, json.Unmarshal((<-announced).Data, &said))
			claims[said.ID] = len(said.Owns)
		}
	}
	first := r.run(hostDevice(t), streams.Options{})
	more(400)
	inUse := r.partitionsInUse()
	if inUse <= 2 {
		t.Fatalf("%d partitions have inputs, which is as many as one of two workers has", inUse)
	}
	second := r.run(hostDevice(t), streams.Options{})
	until(t, "two workers claim two partitions each at most, and together what is in use", func() bool {
		more(40)
		all := 0
		for _, n := range claims {
			if n > 2 {
				return false
			}
			all += n
		}
		return len(claims) == 2 && all == inUse && first.wanted() == 2 && second.wanted() == 2
	})
	first.finish()
	more(400)
	second.finish()
	if !r.allSettled() {
		t.Error("inputs are not acknowledged after the worker's end")
	}
	r.wantAll(published, document)
}

// TestExclusiveTakesOverWhatADeadWorkerHad cuts a worker's connection permanently. The server can't distinguish this
// worker from a dead one.
func TestExclusiveTakesOverWhatADeadWorkerHad(t *testing.T) {
	r := exclusiveRig(t, 2)
	const n = 400
	r.publish(n, document)
	slow, err := sim.Open(sim.Options{Kernels: operator.HostKernels()})
	check(r.TB, err)
	t.Cleanup(func() { _ = slow.Close() }) // the worker on this device dies with work in flight
	release := slow.Hold()
	t.Cleanup(release)
	dying := r.run(slow, streams.Options{})
	until(t, "the worker that is to die has deliveries", func() bool { return r.consumerInfo().NumAckPending > 0 })
	dying.nc.Close()
	r.run(hostDevice(t), streams.Options{}).finishAfter(n)
	if !r.allSettled() {
		t.Error("inputs are not acknowledged after the worker's end")
	}
	r.wantAll(n, document)
	release()
}

// TestExclusiveKeepsItsPinWhileTheDeviceIsBehind shows that a worker keeps its partition while a slow device stops
// its pulls for longer than the server pins an idle client.
func TestExclusiveKeepsItsPinWhileTheDeviceIsBehind(t *testing.T) {
	r := exclusiveRig(t, 1)
	const n = 3 * inflight.QueueMax // more than the queue and the pulled messages can hold
	large := someBytes(4 * memory.RequestBytes / n)
	r.publish(n, large)
	behind := simDevice(t)
	release := behind.Hold()
	run := r.run(behind, streams.Options{BatchPayloads: 1})
	until(t, "a payload waits for memory", func() bool { return run.worker.pool.Memory().Waits > 0 })
	<-time.After(2 * topology.PinnedFor) // no event may occur in that time
	release()
	run.finishAfter(n)
	r.wantAll(n, large)
	if r.Log.Has("the server gave the partition to another worker") {
		t.Error("the worker lost its partition")
	}
}

// TestExclusiveHasMorePartitionsThanBatches shows that idle partitions leave the batches to active partitions.
func TestExclusiveHasMorePartitionsThanBatches(t *testing.T) {
	r := exclusiveRig(t, 16)
	const n = 500
	run := r.run(hostDevice(t), streams.Options{Lanes: 1})
	if slots := run.worker.pipes[0].Slots(); slots >= 16 {
		t.Fatalf("there are %d batches, which shows nothing", slots)
	}
	until(t, "it has all partitions", func() bool { return run.wanted() == 16 })
	r.publish(n, document)
	run.finishAfter(n)
	r.wantAll(n, document)
}

// annotationOwner and annotationAlone are the keys of annotations on a partition's consumer. See
// docs/adr/0017-exclusive-delivery.md.
const (
	annotationOwner = "millrace-owner"
	annotationAlone = "millrace-alone"
)

// TestExclusiveAnnotationsLeaveTheRestAsItIs changes a partition's consumer while it has a worker. The worker removes
// only its own annotations. After another worker has begun a lease, the worker changes none of the annotations.
func TestExclusiveAnnotationsLeaveTheRestAsItIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change       map[string]string // annotations
		owner, alone string            // annotations after the end
	}{
		"a description":      {nil, "", ""},
		"of another's lease": {map[string]string{annotationOwner: "another", annotationAlone: "11"}, "another", "11"},
	} {
		t.Run(name, func(t *testing.T) {
			r := exclusiveRig(t, 1)
			run := r.run(hostDevice(t), streams.Options{})
			r.publish(10, document)
			r.tally.awaitStored(t, 10)
			r.updateConsumer(func(of *jetstream.ConsumerConfig) {
				if of.Metadata[annotationOwner] == "" {
					t.Errorf("with a worker at it the consumer has the annotations %v, want %s among them", of.Metadata, annotationOwner)
				}
				of.Description = "changed meanwhile"
				for key, value := range c.change {
					of.Metadata[key] = value
				}
			})
			run.finish()
			after := r.consumerInfo().Config
			if after.Description != "changed meanwhile" {
				t.Errorf("the consumer's description is %q, want the changed one", after.Description)
			}
			if after.Metadata[annotationOwner] != c.owner || after.Metadata[annotationAlone] != c.alone {
				t.Errorf("the annotations are %v, want the owner %q and alone %q", after.Metadata, c.owner, c.alone)
			}
		})
	}
}

// TestAWorkerOwnsAPartitionFromItsFirstInputOn shows that a worker without inputs owns none of its assigned
// partitions. The server pins a consumer to a worker with its first message. The metric's help text must explain
// that.
func TestAWorkerOwnsAPartitionFromItsFirstInputOn(t *testing.T) {
	r := exclusiveRig(t, 2)
	run := r.run(hostDevice(t), streams.Options{})
	r.Until("the worker waits for inputs of both partitions", func() bool {
		waiting := 0
		for p := range r.opts.Partitions {
			waiting += r.ConsumerInfo(r.opts.Stream, r.consumerOf(p)).NumWaiting
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
	run.finish()
}

// TestTheLastAcknowledgementComesBeforeTheHandover shows that a worker acknowledges its last inputs before it unpins
// itself. Otherwise they would be redelivered to the next worker.
func TestTheLastAcknowledgementComesBeforeTheHandover(t *testing.T) {
	r := exclusiveRig(t, 1)
	heard := r.hear("$JS.ACK.INGEST.>", "$JS.API.CONSUMER.UNPIN.>")
	const n = 20
	run := r.run(hostDevice(t), streams.Options{})
	r.publish(n, document)
	run.finishAfter(n)
	confirmed := false
	for deadline := time.After(patience); ; {
		var m *nats.Msg
		select {
		case m = <-heard:
		case <-deadline:
			t.Fatal("the partition was not handed over")
		}
		switch {
		case string(m.Data) == "-NAK":
			t.Error("an input is handed over: its acknowledgement was not there yet")
		case strings.HasPrefix(m.Subject, "$JS.ACK."):
			// The last acknowledgement requests an answer.
			confirmed = confirmed || m.Reply != "" && strings.Split(m.Subject, ".")[5] == "20"
		case !confirmed:
			t.Fatal("the partition was handed over before the server had confirmed the last acknowledgement")
		default:
			return
		}
	}
}
