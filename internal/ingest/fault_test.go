package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestLostDeviceGivesEverythingBack checks which deliveries a worker with a lost device leaves for the next worker.
func TestLostDeviceGivesEverythingBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 200
	r.publish(n, document)
	// A batch takes two launches. Documents have up to 1000 bytes, so one payload is always carried over to the next
	// batch.
	d := simDevice(t, sim.Fault{Kind: sim.DeviceLoss, Nth: 7})
	release := d.Hold()
	first := r.prepare(d, streams.Options{BatchBytes: 2000})
	first.startAndReceive(n)
	release()
	if err := first.wait(); !errors.Is(err, device.ErrLost) {
		t.Fatalf("Run = %v, want a lost device", err)
	}
	acked := r.tally.stored()
	if got := len(r.stored("results.>")); got != acked {
		t.Errorf("%d results when the device was lost, and %d inputs were acknowledged", got, acked)
	}
	if r.tally.count(inflight.Nacked) == 0 {
		t.Error("nothing was given back when the device was lost")
	}
	second := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	if err := second.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.awaitFinished(n)
	r.wantAll(n, document)
}

// noScratch makes a device refuse scratch twice for the first batch that needs it. The second refusal is for the
// batch's retry, when no other batch is left to free memory.
var noScratch = []sim.Fault{{Kind: sim.OutOfMemory, Nth: 1}, {Kind: sim.OutOfMemory, Nth: 2}}

func TestRefusedBatchComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 100
	payload := someBytes(100, 200, 300)
	r.publish(n, payload)
	seen := &deviceErrors{}
	d := simDevice(t, noScratch...)
	run := r.run(d, streams.Options{BatchPayloads: 10, Lanes: 1, Observer: seen})
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	back := r.tally.count(inflight.Nacked)
	if back == 0 || back > 10 || r.tally.redelivered() != back {
		t.Errorf("%d given back and %d redelivered, want the same, from a batch of up to 10", back, r.tally.redelivered())
	}
	if len(seen.kinds) != 1 || seen.kinds[0] != "out_of_memory" {
		t.Errorf("device errors %v, want one of out_of_memory", seen.kinds)
	}
	r.awaitFinished(n)
	r.wantAll(n, payload)
}

// TestALostDeviceIsNotWaitedFor loses a device while the worker holds a quarantined payload. No device is left for
// its retry, so the worker must not wait.
func TestALostDeviceIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.DrainTimeout = time.Hour
	r.provision()
	d := simDevice(t, sim.Fault{Kind: sim.DeviceLoss, Nth: 1})
	release := d.Hold()
	run := r.prepare(d, streams.Options{BatchPayloads: 4})
	run.start()
	until(t, "the worker pulls", func() bool { return r.consumerInfo().NumWaiting > 0 })
	pulling := r.consumerInfo().NumWaiting
	c := r.Consumer(r.opts.Stream, r.opts.Consumer)
	mine, err := c.Fetch(1, jetstream.FetchMaxWait(patience)) // one delivery for another client
	if err != nil {
		t.Fatal(err)
	}
	until(t, "somebody else pulls too", func() bool { return r.consumerInfo().NumWaiting > pulling })
	r.publish(60, document)
	suspect := <-mine.Messages()
	until(t, "fresh payloads are in hand", func() bool { return run.worker.Status().InHand > 0 })
	if err := suspect.Nak(); err != nil {
		t.Fatal(err)
	}
	until(t, "the suspect came", func() bool { return r.tally.redelivered() == 1 })
	release()
	if err := run.wait(); !errors.Is(err, device.ErrLost) {
		t.Errorf("Run = %v, want a lost device", err)
	}
}

// spoilt is an operator that has no results for a batch with a record of unfit bytes. Its results are the records,
// followed by a status byte for each record.
type spoilt struct{ operator.Operator }

func (s spoilt) Refusal([]byte, int, int) string { return "" }

func (s spoilt) FailedBatch(results []byte, rows int) string {
	if results[rows*s.Stride()] == 0 {
		return ""
	}
	return "a pass failed"
}

func (s spoilt) Overlong([]byte, []uint32, int) string { return "" }

func (s spoilt) Fault(string) string { return "" }

type spoiltKernel struct{ device.HostKernel }

func (k spoiltKernel) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := k.HostKernel.Bind(params)
	return spoiltBound{refusingBound{b, noOther}}, err
}

type spoiltBound struct{ refusingBound }

func (b spoiltBound) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	n := len(offsets) - 1
	statuses := result[len(result)-n:]
	bad := byte(0)
	for i := range n {
		if offsets[i+1]-offsets[i] == unfit {
			bad = 1
		}
	}
	for i := range statuses {
		statuses[i] = bad
	}
	return b.BoundHostKernel.Run(rows, offsets, scratch, result[:len(result)-n], parallel)
}

// spoil makes the rig's first operator, crc32c, fail on batches with a record of unfit bytes. It returns a device
// with that operator.
func (r *rig) spoil(t *testing.T) device.Device {
	r.opts.Operators = slices.Clone(r.opts.Operators)
	r.opts.Operators[0] = spoilt{r.opts.Operators[0]}
	kernels := operator.HostKernels()
	kernels[0] = spoiltKernel{kernels[0]}
	return openHost(t, kernels)
}

// TestABatchWithoutResultsIsSearchedForItsCause makes an operator fail for a whole batch. Only the records that cause
// the failure become dead letters.
func TestABatchWithoutResultsIsSearchedForItsCause(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 16, 1024} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, r *rig) {
				r.opts.Split.Framing = frame.None
				d := r.spoil(t)
				r.provision()
				const n = 60
				bad := []int{17, 18, 40}
				payload := unfitAt(bad...)
				r.publish(n, payload)
				r.process(d, streams.Options{BatchPayloads: batch})
				found, dead := r.stored("results.>"), r.deadLetters()
				for i := range n {
					seq := uint64(i + 1)
					if slices.Contains(bad, i) {
						if len(found[seq]) != 0 || len(dead[seq]) != 1 {
							t.Fatalf("payload %d, on which a pass fails, has %d results and %d dead letters", i, len(found[seq]), len(dead[seq]))
						}
						wantHeaders(t, dead[seq][0].Headers(), map[string]string{
							results.HeaderReason: string(results.OperatorError), results.HeaderError: "operator crc32c: a pass failed",
							results.HeaderOperator: "crc32c",
						})
						continue
					}
					if len(found[seq]) != 1 || len(dead[seq]) != 0 {
						t.Fatalf("payload %d has %d results and %d dead letters", i, len(found[seq]), len(dead[seq]))
					}
					if err := r.opts.Format.Check(r.opts.Operators, payload(i), found[seq][0].Data()); err != nil {
						t.Errorf("payload %d: %v", i, err)
					}
				}
				if got := r.tally.count(inflight.DeadLettered); got != len(bad) {
					t.Errorf("%d dead letters are reported, want %d", got, len(bad))
				}
				if got, want := r.tally.operatorFaults(), slices.Repeat([]string{"crc32c out_of_bounds"}, len(bad)); !slices.Equal(got, want) {
					t.Errorf("faults %v, want %v", got, want)
				}
			})
		})
	}
}

// TestARecordThatLeavesABatchWithoutResultsFailsAlone shows that the other records of its frame have results.
func TestARecordThatLeavesABatchWithoutResultsFailsAlone(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{7, 1024} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, r *rig) {
				r.opts.Format = operator.JSON // the format that contains the reasons
				d := r.spoil(t)
				inputs := []framed{manyLines(1, 20), manyLines(2, 30, 13, 29), manyLines(4, 5)}
				r.provision()
				r.publishFrames(inputs)
				r.process(d, streams.Options{BatchPayloads: batch})
				r.wantFrames(inputs)
			})
		})
	}
}

// TestADeviceThatHangsBesideOneThatWorks hangs one of two devices. That ends the worker, although the other device
// still works. The next worker receives the first device's payloads, and no result is lost or duplicated.
func TestADeviceThatHangsBesideOneThatWorks(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if partitions > 0 {
				r.opts.Exclusive, r.opts.Partitions = true, partitions
			}
			r.opts.AckWait = 3 * time.Second
			r.provision()
			hangs, err := sim.Open(sim.Options{Kernels: operator.HostKernels()}) // closing a hung device is not allowed
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(hangs.Hold())
			o := streams.Options{BatchPayloads: 5, Deadline: streams.Deadline{Min: time.Second, Max: 2 * time.Second}}
			run := r.withDevices(o, hangs, hostDevice(t))
			stuck, well := run.worker.pipes[0], run.worker.pipes[1]
			run.start()
			const n = 500
			r.publish(n, document)
			until(t, "a batch is on the device that hangs", func() bool { return stuck.Oldest().Batch > 0 })
			<-stuck.Over()
			if well.Err() != nil {
				t.Errorf("the other device ended too: %v", well.Err())
			}
			if err := run.wait(); !errors.Is(err, device.ErrHung) {
				t.Errorf("Run = %v, want the device that hangs", err)
			}
			before := r.tally.stored()
			if before == 0 || before >= n {
				t.Errorf("%d of %d inputs have results of the device that works, want some", before, n)
			}
			next := r.run(hostDevice(t), streams.Options{})
			r.tally.awaitStored(t, n)
			if err := next.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			r.wantAll(n, document)
			if letters := r.storedIn(deadStream, "deadletter.>"); len(letters) != 0 {
				t.Errorf("%d dead letters, want none: no payload was to blame", len(letters))
			}
		})
	}
}

// TestAProcessLeavesANoteAboutTheOperatorThatLostItsDevice shows that a note names the operator to the next process.
// The counters end with the process.
func TestAProcessLeavesANoteAboutTheOperatorThatLostItsDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	r.opts.Operators = ops
	r.provision()
	const n = 50
	r.publish(n, document)
	run := r.prepare(simDevice(t, sim.Fault{Kind: sim.DeviceLoss, Nth: 1}), streams.Options{Operators: ops})
	run.start()
	if err := run.wait(); !errors.Is(err, device.ErrKernelFault) {
		t.Fatalf("Run = %v, want a device lost by a kernel", err)
	}
	if got := r.tally.operatorFaults(); !slices.Equal(got, []string{"crc32c device"}) {
		t.Errorf("faults %v, want one of crc32c", got)
	}
	if note := r.consumerInfo().Config.Metadata[inflight.FaultNote]; !strings.HasPrefix(note, "crc32c:device:") {
		t.Errorf("the consumer has the note %q", note)
	}
	second := r.run(hostDevice(t), streams.Options{Operators: ops})
	r.tally.awaitStored(t, n)
	if err := second.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if got := r.tally.operatorFaults(); !slices.Equal(got, []string{"crc32c device", "crc32c device earlier"}) {
		t.Errorf("faults %v, want that of the first process too", got)
	}
	r.awaitFinished(n)
	r.wantAll(n, document)
}
