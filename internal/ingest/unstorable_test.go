package ingest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
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
	"millrace/internal/device"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// eachModeAt is like eachMode, with a server that accepts messages of up to maxPayload bytes. reload changes that
// limit.
func eachModeAt(t *testing.T, maxPayload int32, test func(t *testing.T, r *rig, reload func(maxPayload int32))) {
	t.Helper()
	for _, exclusive := range []bool{false, true} {
		t.Run(fmt.Sprintf("exclusive=%v", exclusive), func(t *testing.T) {
			t.Parallel()
			limited := natstest.New(t, func(o *server.Options) { o.MaxPayload = maxPayload })
			r := rigOf(limited)
			r.opts.Exclusive, r.opts.Partitions = exclusive, 2
			test(t, r, func(maxPayload int32) { limited.Reload(func(o *server.Options) { o.MaxPayload = maxPayload }) })
		})
	}
}

// TestRecordsThatNoMessageHoldsDelayNothing uses compressed frames whose decompressed records exceed the server's
// limit. Each frame is stored once for its dead letters. All other records and inputs have results.
func TestRecordsThatNoMessageHoldsDelayNothing(t *testing.T) {
	t.Parallel()
	const inputs, maxPayload = 1000, 16 << 10
	eachModeAt(t, maxPayload, func(t *testing.T, r *rig, _ func(int32)) {
		r.opts.Split = frame.Splitter{Framing: frame.NewlineDelimited, MaxRecords: 65536, MaxBytes: 64 << 20}
		r.opts.Decompress = compression.Auto
		r.provision()
		large := bytes.Repeat([]byte{'x'}, 3*maxPayload)
		all, frames := make([]framed, inputs), map[int]bool{}
		for i := range all {
			all[i] = lines(fmt.Appendf(nil, "input %d", i), []byte("second"))
			if i%20 == 7 {
				all[i] = lines(fmt.Appendf(nil, "input %d", i), large, []byte("third"), large)
				all[i].body = new(compression.Compressor).Append(nil, compression.Zstd, all[i].body)
				all[i].header = nats.Header{"Content-Encoding": {"zstd"}, "Trace": {strconv.Itoa(i)}}
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
			if !found || !frames[i-1] || !bytes.Equal(in.Data, all[i-1].body) || in.Header.Get("Content-Encoding") != "zstd" || in.Header.Get("Trace") == "" {
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
			t.Parallel()
			eachModeAt(t, before, func(t *testing.T, r *rig, reload func(int32)) {
				why, batch := results.TooLarge, unfit-1
				payload, d := unfitAt(bad...), r.refuse(t)
				r.opts.AckWait = 2 * time.Second // a worker whose connection ends can't give inputs back
				r.provision()
				r.publish(inputs, payload)
				kernels, w := watchKernels([]device.HostKernel{refusingKernel{operator.HostKernels()[0], noOther}, operator.HostKernels()[1]})
				open := w.hold(t)
				if computed {
					why, batch, d = results.OperatorError, 16<<10, openHost(t, kernels)
				} else {
					reload(after)
				}
				o := streams.Options{BatchBytes: batch, BatchPayloads: 20}
				run := r.run(d, o)
				if computed {
					w.awaitAny(t)
					reload(after)
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
				r.tally.awaitStored(t, inputs-len(bad))
				if err := run.drain(); err != nil {
					t.Fatal(err)
				}
				for _, i := range bad {
					sum := sha256.Sum256(payload(i))
					wantHeaders(t, r.deadLetter(deadStream, uint64(i+1)).Headers(), map[string]string{
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

// TestAWorkerEndsWithAnyOfItsConnections shows that a worker ends if its client closes any connection permanently.
// The client closes a connection after an unknown error of the server.
func TestAWorkerEndsWithAnyOfItsConnections(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.provision()
		r.opts.More = append(r.opts.More, r.Connect(r.URL), r.Connect(r.URL))
		run := r.run(hostDevice(t), streams.Options{})
		r.publish(1, document)
		r.tally.awaitStored(t, 1)
		r.opts.More[1].Close()
		if err := run.wait(); !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("Run = %v, want a closed connection", err)
		}
	})
}
