package ingest

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// complete returns the messages of an input's only complete result, as a reader puts them together.
func (r *rig) complete(messages []jetstream.Msg) (result []jetstream.Msg) {
	r.t.Helper()
	var c client.Collector[jetstream.Msg]
	for _, m := range messages {
		parts, err := c.Add(m.Headers(), m)
		if err != nil || parts != nil && result != nil {
			r.t.Errorf("%v completes a result of %d parts, after one of %d: %v", m.Headers(), len(parts), len(result), err)
		}
		if parts != nil {
			result = parts
		}
	}
	return result
}

// wantOtherCuts checks what is stored beside a complete result: at least two parts of other cuts, each once. A part that the first worker
// published is stored later if the server gets to it after the stream has room again, so there may be more than two.
func (r *rig) wantOtherCuts(all, result []jetstream.Msg) {
	r.t.Helper()
	ids := map[string]bool{}
	for _, m := range all {
		ids[m.Headers().Get(jetstream.MsgIDHeader)] = true
		if slices.Contains(result, m) {
			continue
		}
		if cut := m.Headers().Get(results.HeaderCut); cut == "" || cut == result[0].Headers().Get(results.HeaderCut) {
			r.t.Errorf("a second message of the result's cut: %v", m.Headers())
		}
	}
	if len(all)-len(result) < 2 || len(ids) != len(all) {
		r.t.Errorf("the stream has %d messages with %d ids, %d of them of the result: want each once, and at least two of other cuts",
			len(all), len(ids), len(result))
	}
}

// TestAResultThatIsCutInAnotherWay: a worker stores the first parts of a result, and the next one needs more or fewer of them. A reader
// gets one complete result, whether or not the stream still knows the ids of the first parts. With -short there is one case.
func TestAResultThatIsCutInAnotherWay(t *testing.T) {
	for name, change := range map[string]func(r *rig, stream *jetstream.StreamConfig){
		"larger messages":  func(_ *rig, stream *jetstream.StreamConfig) { stream.MaxMsgSize = -1 },
		"smaller messages": func(_ *rig, stream *jetstream.StreamConfig) { stream.MaxMsgSize = 300 << 10 },
		"compressed":       func(r *rig, _ *jetstream.StreamConfig) { r.opts.Compress = compression.Zstd },
	} {
		for _, forgotten := range []bool{false, true} {
			if testing.Short() && (name != "compressed" || !forgotten) {
				continue
			}
			t.Run(name+map[bool]string{true: " and forgotten"}[forgotten], func(t *testing.T) {
				eachMode(t, func(t *testing.T, r *rig) {
					manyParts(r)
					r.opts.DrainTimeout = 100 * time.Millisecond
					r.opts.Partitions = min(r.opts.Partitions, 1)
					r.forgetful()
					inputs := []framed{manyLines(1, 1000)}
					r.publishFrames(inputs)
					stream := r.streamConfig("RESULTS")
					stream.MaxMsgSize = 1 << 20
					full := stream
					full.Discard, full.MaxMsgs = jetstream.DiscardNew, 2
					r.updateStream(full)
					cfg := streams.Config{BatchPayloads: 256}
					run := r.run(hostDevice(t), cfg)
					until(t, "the stream is full", func() bool { return r.messages("RESULTS") == 2 })
					if err := run.drain(); err != nil {
						t.Logf("the first worker ended with %v", err)
					}
					change(r, &stream)
					r.updateStream(stream)
					if forgotten {
						r.forgotten()
					}
					r.opts.DrainTimeout = 10 * time.Second
					r.process(hostDevice(t), cfg)
					all := r.stored("results.>")[1]
					result := r.complete(all)
					r.wantOtherCuts(all, result)
					r.wantFrame(1, inputs[0], result)
				})
			})
		}
	}
}

// TestAResultIsCutToTheStreamsLimit: a message of the result stream may be smaller than one of the server.
func TestAResultIsCutToTheStreamsLimit(t *testing.T) {
	eachMode(t, func(t *testing.T, r *rig) {
		const limit = 100 << 10
		manyParts(r)
		r.provision()
		stream := r.streamConfig("RESULTS")
		stream.MaxMsgSize = limit
		r.updateStream(stream)
		inputs := []framed{manyLines(1, 500)}
		r.publishFrames(inputs)
		r.process(hostDevice(t), streams.Config{})
		parts := r.stored("results.>")[1]
		if len(parts) < 20 {
			t.Errorf("the result has %d parts, and needs more messages of %d bytes", len(parts), limit)
		}
		r.wantFrame(1, inputs[0], parts)
		for seq := range r.deadLetters() {
			t.Errorf("input %d has dead letters", seq)
		}
	})
}
