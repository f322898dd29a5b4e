package ingest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/store"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// TestAnInputThatCannotBeProcessedIsADeadLetter has such an input between two others, which have results.
func TestAnInputThatCannotBeProcessedIsADeadLetter(t *testing.T) {
	t.Parallel()
	long := "ingest." + strings.Repeat("long.", 800) + strings.Repeat("x", 70) // the longest that a server accepts
	heavy := nats.Header{"Heavy": {strings.Repeat("h", 700)}}
	for name, c := range map[string]struct {
		m    nats.Msg
		says string // part of the error
	}{
		"larger than a batch": {
			nats.Msg{Subject: "ingest.web.1", Data: make([]byte, 1001)}, "payload of 1001 bytes, and a batch takes 1000: raise MILLRACE_BATCH_BYTES",
		},
		"its result is too large": {nats.Msg{Subject: "ingest.web.1", Data: []byte("second"), Header: heavy}, "its result cannot be stored"},
		// A result on that subject would break the connection of every worker that tries to store it.
		"its subject is too long": {nats.Msg{Subject: long, Data: []byte("payload")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, 1, func(t *testing.T, r *rig) {
				r.provision()
				r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 800 })
				r.publishMsg(nil, []byte("first"))
				check(r.TB, r.NC.PublishMsg(&c.m))
				r.publishMsg(nil, []byte("third"))
				run := r.run(hostDevice(t), streams.Options{BatchBytes: 1000})
				r.tally.await(t, inflight.DeadLettered, 1)
				run.finishAfter(2)
				m := r.deadLetter(2)
				says := m.Headers().Get(results.HeaderError)
				wantHeaders(t, m.Headers(), map[string]string{
					results.HeaderReason: "too_large", results.HeaderDeliveries: "1", results.HeaderStream: "INGEST", results.HeaderSequence: "2",
					results.HeaderSubject: c.m.Subject, jetstream.MsgIDHeader: fmt.Sprintf("INGEST:2:%d:too_large", r.storedAt(2).UnixNano()),
					"Heavy": c.m.Header.Get("Heavy"),
				})
				if !bytes.Equal(m.Data(), c.m.Data) || !strings.Contains(says, c.says) {
					t.Errorf("the dead letter has %d bytes and the error %q, want the payload and %q", len(m.Data()), says, c.says)
				}
				want := strings.Replace(c.m.Subject, "ingest", "deadletter", 1)
				if got := m.Subject(); got != want && (c.m.Subject != long || len(got) > store.MaxSubject || !strings.HasPrefix(got, want[:100])) {
					t.Errorf("the dead letter is on %q of %d bytes, want %q, shortened if it is too long", got, len(got), want)
				}
				if got := r.stored("results.>"); len(got) != 2 || len(got[1]) != 1 || len(got[3]) != 1 {
					t.Errorf("%d and %d results of the other inputs, want one each", len(got[1]), len(got[3]))
				}
				r.wantSettled(3)
			})
		})
	}
}

// TestPayloadAsLargeAsTheServerTakesIsNotLost uses a payload that leaves no space for the headers of a dead letter. The
// payload is stored on the subject of the dead letter, which names it.
func TestPayloadAsLargeAsTheServerTakesIsNotLost(t *testing.T) {
	r := provisioned(t)
	payload := bytes.Repeat([]byte{'x'}, embedded.MaxPayload)
	r.publishMsg(nil, payload)
	r.process(hostDevice(t), streams.Options{BatchBytes: 1000})
	all := r.Stored(deadStream)
	if len(all) != 2 {
		t.Fatalf("%d messages in the dead-letter stream, want the payload and its dead letter", len(all))
	}
	wantHeaders(t, all[1].Header, map[string]string{
		results.HeaderReason: "too_large", results.HeaderOmitted: "payload", results.HeaderPayloadSequence: fmt.Sprint(all[0].Sequence),
	})
	if !bytes.Equal(all[0].Data, payload) || all[0].Subject != all[1].Subject {
		t.Errorf("message %d on %q is not the payload of the dead letter on %q", all[0].Sequence, all[0].Subject, all[1].Subject)
	}
}

// TestPayloadIsKeptBeforeTheServerStopsDelivering uses a consumer with its own delivery limit. At the last delivery
// the worker dead-letters the payload instead of trying it.
func TestPayloadIsKeptBeforeTheServerStopsDelivering(t *testing.T) {
	r := provisioned(t)
	r.updateConsumer(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 2 })
	payload := someBytes(100)
	r.publish(1, payload)
	r.process(simDevice(t, noScratch...), streams.Options{})
	r.wantApart(1, payload, map[string]string{
		results.HeaderReason: "max_deliver", results.HeaderDeliveries: "2", "Trace": "0",
		results.HeaderError: "delivery 2, and the consumer's own MaxDeliver allows no more",
	}, 0)
	if back := r.tally.count(inflight.Nacked); back != 1 {
		t.Errorf("%d given back, want 1", back)
	}
}

// TestPayloadThatNoDeviceHasMemoryForIsDeadLettered delivers a payload that needs more memory than a working device
// has. It is dead-lettered after too many deliveries.
func TestPayloadThatNoDeviceHasMemoryForIsDeadLettered(t *testing.T) {
	r := provisioned(t, func(o *Options) { o.MaxDeliver = 2 })
	const n, greedy = 40, 17
	payload := unfitAt(greedy)
	r.publish(n, payload)
	kernels := operator.HostKernels()
	kernels[0] = picky(kernels[0], true)
	r.process(openHost(t, kernels), streams.Options{BatchPayloads: 10})
	r.wantApart(n, payload, map[string]string{results.HeaderReason: "max_deliver", results.HeaderDeliveries: "3"}, greedy)
}

func TestWithoutAStreamForDeadLettersThePayloadComesBack(t *testing.T) {
	r := provisioned(t)
	restore := r.remove(deadStream)
	payload := someBytes(1001, 5)
	r.publish(2, payload)
	run := r.run(hostDevice(t), streams.Options{BatchBytes: 1000})
	r.tally.await(t, inflight.Published, 1) // other inputs are not delayed
	r.tally.await(t, inflight.Nacked, 1)
	if info := r.consumerInfo(); info.NumAckPending == 0 || info.AckFloor.Stream != 0 {
		t.Errorf("the payload without a dead letter is settled: %d unacknowledged, floor %d", info.NumAckPending, info.AckFloor.Stream)
	}
	restore()
	r.tally.await(t, inflight.DeadLettered, 1)
	run.finish()
	r.wantApart(2, payload, map[string]string{results.HeaderReason: "too_large"}, 0)
	r.awaitSettled()
}

// TestDeadLettersAreNoProgress shows that publishing only dead letters is not progress. Payloads that are
// refused on receipt are never in flight.
func TestDeadLettersAreNoProgress(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, r *rig) {
		r.opts.AckWait = 3 * time.Second
		r.provision()
		run := r.run(openAiling(t, pickyKernels()), streams.Options{BatchBytes: 2 * unfit})
		payload := func(i int) []byte { return bytes.Repeat([]byte{'x'}, []int{10, unfit, 2*unfit + 1, 20}[i]) }
		r.publishFrom(0, 1, payload)
		r.tally.awaitStored(t, 1)
		before := run.worker.Status().Progress
		for i := 1; i <= 2; i++ {
			r.publishFrom(i, i+1, payload)
			r.tally.await(t, inflight.DeadLettered, i)
			until(t, "nothing is in hand", func() bool { return run.worker.Status().InHand == 0 })
		}
		if after := run.worker.Status().Progress; !after.Equal(before) {
			t.Errorf("two dead letters moved progress by %v", after.Sub(before))
		}
		r.publishFrom(3, 4, payload)
		r.tally.awaitStored(t, 2)
		if after := run.worker.Status().Progress; !after.After(before) {
			t.Error("a result did not move progress")
		}
		run.finish()
	})
}

// limitPayload lets the server accept messages of up to maxPayload bytes, like a reload of its configuration. A client
// reads this limit only when it connects.
func (r *rig) limitPayload(maxPayload int32) {
	r.Helper()
	r.Reload(func(o *server.Options) { o.MaxPayload = maxPayload })
}

// TestRecordsThatNoMessageHoldsDelayNothing uses compressed frames whose decompressed records exceed the server's
// limit. Each frame is stored once for its dead letters. All other records and inputs have results.
func TestRecordsThatNoMessageHoldsDelayNothing(t *testing.T) {
	const inputs, maxPayload = 1000, 16 << 10
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
		r.limitPayload(maxPayload)
		r.opts.Decompress = compression.Auto
		r.provision()
		large := bytes.Repeat([]byte{'x'}, 3*maxPayload)
		all, frames := make([]framed, inputs), map[int]bool{}
		for i := range all {
			all[i] = lines(fmt.Appendf(nil, "input %d", i), []byte("second"))
			if i%20 == 7 {
				all[i] = lines(fmt.Appendf(nil, "input %d", i), large, []byte("third"), large)
				all[i] = all[i].compressed(compression.Zstd)
				all[i].header.Set("Trace", strconv.Itoa(i))
				all[i].statuses = []record.Status{record.OK, record.TooLarge, record.OK, record.TooLarge}
				frames[i] = true
			}
		}
		r.publishFrames(all)
		r.process(hostDevice(t), streams.Options{BatchBytes: 8 << 10})
		got := r.stored("results.>")
		for i, in := range all {
			r.wantFrame(uint64(i+1), in, got[uint64(i+1)])
		}
		r.wantWithin(all, frames)
		r.wantReported(all)
		if r.tally.leftOut > 0 {
			t.Errorf("%d dead letters have no payload", r.tally.leftOut)
		}
	})
}

// wantWithin checks that exactly records 1 and 3 of these frames have dead letters. They name a message with the
// whole frame, which is stored once.
func (r *rig) wantWithin(all []framed, frames map[int]bool) {
	r.Helper()
	stored, records := map[string]*jetstream.RawStreamMsg{}, map[string][]string{}
	for _, m := range r.Stored(deadStream) {
		switch h := m.Header; {
		case strings.HasPrefix(m.Subject, "commits."):
		case h.Get(results.HeaderSequence) == "":
			stored[strconv.FormatUint(m.Sequence, 10)] = m
		default:
			wantHeaders(r.TB, h, map[string]string{results.HeaderReason: "too_large", results.HeaderOmitted: "record"})
			i, _ := strconv.Atoi(h.Get(results.HeaderSequence))
			in, found := stored[h.Get(results.HeaderPayloadSequence)]
			if !found || !frames[i-1] || !bytes.Equal(in.Data, all[i-1].body) ||
				in.Header.Get("Content-Encoding") != "zstd" || in.Header.Get("Trace") == "" {
				r.Errorf("a dead letter of input %d names message %q (%v)", i, h.Get(results.HeaderPayloadSequence), in)
			}
			records[h.Get(results.HeaderPayloadSequence)] = append(records[h.Get(results.HeaderPayloadSequence)], h.Get(results.HeaderRecord))
		}
	}
	for at, of := range records {
		if !slices.Equal(of, []string{"1", "3"}) {
			r.Errorf("records %v have dead letters that name message %s", of, at)
		}
	}
	if len(stored) != len(frames) || len(records) != len(frames) {
		r.Errorf("%d frames are stored, and %d are named, want %d", len(stored), len(records), len(frames))
	}
}

// TestMaxPayloadLowered lowers the server's limit, so some payloads no longer fit when they become dead letters.
// Their dead letters have digests, and all other inputs have results.
func TestMaxPayloadLowered(t *testing.T) {
	t.Parallel()
	const before, after, inputs = 64 << 10, unfit - 1, 300
	bad := []int{0, 17, 120}
	for name, computed := range map[string]bool{"while inputs wait": false, "while inputs are computed": true} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, 2, func(t *testing.T, r *rig) {
				r.limitPayload(before)
				why, batch := results.TooLarge, unfit-1
				payload := unfitAt(bad...)
				r.opts.AckWait = 2 * time.Second // a worker whose connection ends can't give inputs back
				r.provision()
				r.publish(inputs, payload)
				kernels, w := watchKernels(r.refuseAlso(noOther))
				open := w.hold(t)
				if computed {
					why, batch = results.OperatorError, 16<<10
				} else {
					r.limitPayload(after)
				}
				o := streams.Options{BatchBytes: batch, BatchPayloads: 20}
				run := r.run(openHost(t, kernels), o)
				if computed {
					w.awaitAny(t)
					r.limitPayload(after)
				}
				open()
				// The client has the old limit, so the server ends its connection.
				if computed {
					if err := run.wait(); err == nil || !strings.Contains(err.Error(), "Maximum Payload Violation") {
						t.Fatalf("Run = %v, want an error about max_payload", err)
					}
					run = r.run(openHost(t, kernels), o)
				}
				r.tally.await(t, inflight.DeadLettered, len(bad))
				run.finishAfter(inputs - len(bad))
				for _, i := range bad {
					sum := sha256.Sum256(payload(i))
					wantHeaders(t, r.deadLetter(uint64(i+1)).Headers(), map[string]string{
						results.HeaderReason: string(why), results.HeaderOmitted: "payload", results.HeaderPayloadSequence: "",
						results.HeaderPayloadBytes: strconv.Itoa(unfit), results.HeaderPayloadDigest: "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:]),
					})
				}
				if r.tally.leftOut != len(bad) {
					t.Errorf("%d dead letters without payload are counted, want %d", r.tally.leftOut, len(bad))
				}
			})
		})
	}
}

// TestMaxPayloadRaisedWhileRunning has one input of 3 MiB before 300 small ones. The server's limit was 1 MiB when
// the worker started. If the large input exceeds a batch, it becomes a dead letter, which the worker's outdated
// client would refuse.
func TestMaxPayloadRaisedWhileRunning(t *testing.T) {
	t.Parallel()
	const large, small = 3 << 20, 300
	for name, batchBytes := range map[string]int{"fits a batch": 4 << 20, "dead letter": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, 1, func(t *testing.T, r *rig) {
				// Messages in transit during a reconnect are redelivered after AckWait.
				r.opts.AckWait = 2 * time.Second
				r.limitPayload(1 << 20)
				r.provision()
				payload := func(i int) []byte {
					if i == 1 {
						return someBytes(large)(i)
					}
					return document(i)
				}
				r.publish(1, payload)
				run := r.run(hostDevice(t), streams.Options{BatchBytes: batchBytes})
				r.tally.awaitStored(t, 1)
				r.limitPayload(8 << 20)
				r.publishFrom(1, 2+small, payload)
				r.awaitSettled()
				run.finish()
				if batchBytes < large {
					r.wantApart(2+small, payload, map[string]string{results.HeaderReason: string(results.TooLarge)}, 1)
				} else {
					r.wantAll(2+small, payload)
				}
			})
		})
	}
}
