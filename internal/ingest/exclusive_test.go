package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

func exclusiveRig(t *testing.T, partitions int) *rig {
	t.Helper()
	r := newRig(t)
	r.opts.Exclusive, r.opts.Partitions = true, partitions
	r.provision()
	return r
}

// unacknowledged returns the number of unacknowledged inputs in all partitions. A consumer counts an input shortly
// after the stream stores it. Therefore a partition also counts if its last input was not delivered.
func (r *rig) unacknowledged() (n int) {
	r.Helper()
	s := r.Stream(r.opts.Stream)
	for p := range r.opts.Partitions {
		c := r.Consumer(r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, p))
		info := c.CachedInfo()
		n += info.NumAckPending + int(info.NumPending)
		last, err := s.GetLastMsgForSubject(r.Ctx(), fmt.Sprint(p, ".>"))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			r.Fatal(err)
		case last.Sequence > info.Delivered.Stream:
			n++
		}
	}
	return n
}

func (run *running) wanted() int { return run.worker.mode.(*lease.Exclusive).Wanted() }

func TestExclusiveBringsEveryPayloadBackOnceAndInOrder(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 3)
	const n = 900
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	if left := r.unacknowledged(); left != 0 {
		t.Errorf("%d inputs are not acknowledged", left)
	}
	if d := r.tally.redelivered(); d != 0 {
		t.Errorf("%d redeliveries", d)
	}
	r.wantInOrder()
}

// wantInOrder checks that the results of each subject are stored in the order of their inputs.
func (r *rig) wantInOrder() {
	r.Helper()
	last := map[string]uint64{}
	type place struct{ result, input uint64 }
	bySubject := map[string][]place{}
	for input, messages := range r.stored("results.>") {
		meta, err := messages[0].Metadata()
		if err != nil {
			r.Fatal(err)
		}
		bySubject[messages[0].Subject()] = append(bySubject[messages[0].Subject()], place{meta.Sequence.Stream, input})
	}
	for subject, places := range bySubject {
		slices.SortFunc(places, func(a, b place) int { return int(a.result) - int(b.result) })
		for _, p := range places {
			if p.input < last[subject] {
				r.Fatalf("on %s the result of input %d comes behind that of %d", subject, p.input, last[subject])
			}
			last[subject] = p.input
		}
	}
}

// TestExclusivePartitionsMoveToWorkersThatCome shows that results are stored once while workers join and leave, and
// that every partition finds an owner.
func TestExclusivePartitionsMoveToWorkersThatCome(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 4)
	first := r.run(hostDevice(t), streams.Options{})
	published := 0
	more := func(n int) {
		r.publishFrom(published, published+n, document)
		published += n
	}
	more(400)
	r.tally.awaitStored(t, published)
	second := r.run(hostDevice(t), streams.Options{})
	for awaited := false; !awaited; {
		more(40)
		r.tally.awaitStored(t, published)
		awaited = first.wanted() == 2 && second.wanted() == 2
		if published > 100_000 {
			t.Fatalf("the partitions are not shared: %d and %d", first.wanted(), second.wanted())
		}
	}
	if err := first.drain(); err != nil {
		t.Fatal(err)
	}
	more(400)
	r.tally.awaitStored(t, published)
	if err := second.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(published, document)
	if left := r.unacknowledged(); left != 0 {
		t.Errorf("%d inputs are not acknowledged", left)
	}
}

// TestExclusiveTakesOverWhatADeadWorkerHad cuts a worker's connection permanently. The server can't distinguish this
// worker from a dead one.
func TestExclusiveTakesOverWhatADeadWorkerHad(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 2)
	const n = 400
	r.publish(n, document)
	slow, err := sim.Open(sim.Options{Kernels: operator.HostKernels()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slow.Close() }) // the worker on this device dies with work in flight
	release := slow.Hold()
	t.Cleanup(release)
	dying := r.run(slow, streams.Options{})
	until(t, "the worker that is to die has deliveries", func() bool {
		in, _ := r.inHandAt(0), r.inHandAt(1)
		return in > 0
	})
	dying.nc.Close()
	heir := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	if err := heir.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(n, document)
	if left := r.unacknowledged(); left != 0 {
		t.Errorf("%d inputs are not acknowledged", left)
	}
	release()
}

// inHandAt returns the number of delivered and unacknowledged inputs of a partition.
func (r *rig) inHandAt(p int) int {
	r.Helper()
	c := r.Consumer(r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, p))
	return c.CachedInfo().NumAckPending
}

func TestExclusiveDeadLettersOfTooLargePayloads(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	const n, large = 50, 20
	r.publish(n, func(i int) []byte {
		if i == large {
			return make([]byte, 200<<10)
		}
		return document(i)
	})
	run := r.run(hostDevice(t), streams.Options{BatchBytes: 100 << 10})
	r.tally.await(t, inflight.DeadLettered, 1)
	r.tally.awaitStored(t, n-1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	letters := r.storedIn(deadStream, "deadletter.>")
	if len(letters) != 1 || len(letters[large+1]) != 1 || letters[large+1][0].Headers().Get(results.HeaderReason) != string(results.TooLarge) {
		t.Errorf("dead letters: %v", letters)
	}
	if left := r.unacknowledged(); left != 0 {
		t.Errorf("%d inputs are not acknowledged", left)
	}
}

// TestExclusiveRecoversFromAnAcknowledgementWithAHighNumber simulates a crashed server that has an acknowledgement,
// but not its delivery. The server then ignores acknowledgements with lower numbers. The acknowledgement covers only
// settled inputs.
func TestExclusiveRecoversFromAnAcknowledgementWithAHighNumber(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	r.publish(10, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, 10)
	until(t, "all are acknowledged", func() bool { return r.unacknowledged() == 0 })
	late := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, 0), 11, 5000, time.Now().UnixNano())
	r.publishFrom(10, 11, document)
	r.tally.awaitStored(t, 11)
	if err := r.NC.Publish(late, nil); err != nil {
		t.Fatal(err)
	}
	r.publishFrom(11, 200, document)
	r.tally.awaitStored(t, 200)
	for i := 200; i < 203; i++ { // one after another
		until(t, "all are acknowledged", func() bool { return r.unacknowledged() == 0 })
		r.publishFrom(i, i+1, document)
		r.tally.awaitStored(t, i+1)
	}
	until(t, "all are acknowledged", func() bool { return r.unacknowledged() == 0 })
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(203, document)
}

// TestExclusiveKeepsItsPinWhileTheDeviceIsBehind shows that a worker keeps its partition while a slow device stops
// its pulls for longer than the server pins an idle client.
func TestExclusiveKeepsItsPinWhileTheDeviceIsBehind(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	const n = 3 * inflight.QueueMax // more than the queue and the pulled messages can hold
	large := someBytes(4 * memory.RequestBytes / n)
	r.publish(n, large)
	behind := simDevice(t)
	release := behind.Hold()
	run := r.run(behind, streams.Options{BatchPayloads: 1})
	until(t, "the worker has its hands full", func() bool { return run.worker.Status().InHand == run.worker.pipes[0].Slots() })
	<-time.After(2 * topology.PinnedFor) // no event may occur in that time
	release()
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, large)
	if r.Log.Has("the server gave the partition to another worker") {
		t.Error("the worker lost its turn")
	}
}

// TestExclusiveHasMorePartitionsThanBatches shows that idle partitions leave the batches to active partitions.
func TestExclusiveHasMorePartitionsThanBatches(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 16)
	const n = 500
	run := r.run(hostDevice(t), streams.Options{Lanes: 1})
	if slots := run.worker.pipes[0].Slots(); slots >= 16 {
		t.Fatalf("there are %d batches, which shows nothing", slots)
	}
	until(t, "it has all partitions", func() bool { return run.wanted() == 16 })
	r.publish(n, document)
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
}

// TestExclusiveDeadLettersOfOperatorErrors shows that a payload on which an operator fails is dead-lettered, and all
// other payloads of its partition are processed.
func TestExclusiveDeadLettersOfOperatorErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Exclusive, r.opts.Partitions = true, 1
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}})
	r.provision()
	const n, bad = 100, 40
	payload := unfitAt(bad)
	r.publish(n, payload)
	run := r.run(pickySim(t), streams.Options{Lanes: 1, BatchPayloads: 16})
	r.tally.await(t, inflight.DeadLettered, 1)
	r.tally.awaitStored(t, n-1)
	until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	found := r.stored("results.>")
	if len(found) != n-1 || len(found[bad+1]) != 0 {
		t.Errorf("results of %d inputs, and %d of the one that no operator takes; want %d and none", len(found), len(found[bad+1]), n-1)
	}
	m := r.deadLetter("RESULTS", bad+1)
	wantHeaders(t, m.Headers(), map[string]string{results.HeaderReason: string(results.OperatorError)})
	if !bytes.Equal(m.Data(), payload(bad)) {
		t.Error("the dead letter is not the payload")
	}
	r.wantInOrder()
}
