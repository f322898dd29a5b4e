package ingest

import (
	"fmt"
	"strings"
	"testing"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// forgedHeaders are header blocks with every header that the worker, the client library or the server reads.
// Publishers can send them in these forms: repeated, misspelled, and in blocks without a proper end. PIN stands for
// the pin of the partition's owner.
var forgedHeaders = []string{
	"NATS/1.0\r\nNats-Pin-Id: x\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id: x\r\nNats-Pin-Id: y\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id: PIN\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id: PIN\r\nNats-Pin-Id: x\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id:\r\n\r\n",
	"NATS/1.0\r\nnats-pin-id: x\r\nNATS-PIN-ID: x\r\nNats-Pin-Id : x\r\n Nats-Pin-Id: x\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id: x\r\n\r\nxx",   // the server's addition follows the end of the block
	"NATS/1.0\r\nA: b\r\n\r\nxx",             // the same without a visible pin
	"NATS/1.0\r\nNats-Pin-Id: x",             // the server's addition becomes part of the value
	"NATS/1.0\nNats-Pin-Id: x\n\nxx",         // other line endings
	"NATS/1.0\r\n\r\n",                       // empty block
	"no block at all",                        // unreadable for the client
	"NATS/1.0 423 Nats-Wrong-Pin-Id\r\n\r\n", // status messages from here on
	"NATS/1.0 409 Consumer Deleted\r\n\r\n",
	"NATS/1.0 409 Leadership Change\r\n\r\n",
	"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
	"NATS/1.0 503\r\n\r\n",
	"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: 0\r\n\r\n",
	"NATS/1.0\r\nStatus: 423\r\nStatus: 409\r\nDescription: Consumer Deleted\r\nDescription: Message Size Exceeds MaxBytes\r\n\r\n",
	"NATS/1.0\r\nstatus: 409\r\nSTATUS: 409\r\ndescription: Consumer Deleted\r\n\r\n",
	"NATS/1.0\r\nNats-Pending-Messages: 1000000\r\nNats-Pending-Messages: -1\r\nNats-Pending-Bytes: 9223372036854775807\r\n\r\n",
	"NATS/1.0\r\nMillrace-Stream: OTHER\r\nMillrace-Sequence: 1\r\nMillrace-Sequence: 2\r\nmillrace-subject: a.b\r\nMillrace-Reason: too_large\r\n\r\n",
	"NATS/1.0\r\nNats-Stream: OTHER\r\nNats-Sequence: 1\r\nNats-Subject: a\r\nNats-Last-Consumer: 1\r\n\r\n",
	"NATS/1.0\r\ntraceparent: 00-zz-zz-01\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nTraceparent: x\r\ntracestate: =,=,\r\n\r\n",
}

// TestForgedHeadersSteerNothing publishes every header block with and without a payload, among ordinary inputs,
// before and while a worker runs. Each input has exactly one result, and no lease restarts.
func TestForgedHeadersSteerNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = mode == "exclusive", 1
			r.provision()
			var payloads [][]byte
			publish := func(pin string) {
				var inputs []natstest.RawInput
				for i, block := range forgedHeaders {
					block = strings.ReplaceAll(block, "PIN", pin)
					for _, payload := range []string{"", fmt.Sprint("payload ", i), "ordinary"} {
						in := natstest.RawInput{Subject: "ingest.web.0", Header: block, Payload: []byte(payload)}
						if payload == "ordinary" {
							in.Header = ""
						}
						inputs = append(inputs, in)
						payloads = append(payloads, in.Payload)
					}
				}
				natstest.PublishRaw(t, r.workerURL, inputs...)
			}
			publish("nobody")
			run := r.run(hostDevice(t), streams.Options{})
			for range 5 {
				r.tally.awaitStored(t, len(payloads))
				pin := "nobody"
				if mode == "exclusive" {
					c := r.Consumer(r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, 0))
					pin = c.CachedInfo().PriorityGroups[0].PinnedClientID
				}
				publish(pin)
			}
			r.tally.awaitStored(t, len(payloads))
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			found := r.stored("results.>")
			for i, payload := range payloads {
				of := found[uint64(i+1)]
				if len(of) != 1 {
					t.Fatalf("input %d has %d results, want 1", i+1, len(of))
				}
				if err := r.opts.Format.Check(r.opts.Operators, payload, of[0].Data()); err != nil {
					t.Errorf("result of input %d: %v", i+1, err)
				}
			}
			if len(found) != len(payloads) || r.tally.count(inflight.Duplicate) > 0 || r.tally.redelivered() > 0 {
				t.Errorf("%d results of %d inputs, %d duplicates, %d redeliveries", len(found), len(payloads), r.tally.count(inflight.Duplicate), r.tally.redelivered())
			}
			for _, bad := range []string{"beginning the partition anew", "pull interrupted"} {
				if r.Log.Has(bad) {
					t.Errorf("the log says %q", bad)
				}
			}
		})
	}
}
