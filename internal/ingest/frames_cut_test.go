package ingest

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/device"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// complete returns the messages of an input's only complete result, as a reader puts them together.
func (r *rig) complete(messages []jetstream.Msg) (result []jetstream.Msg) {
	r.Helper()
	var c client.Collector[jetstream.Msg]
	for _, m := range messages {
		parts, err := c.Add(m.Headers(), m)
		if err != nil || parts != nil && result != nil {
			r.Errorf("%v completes a result of %d parts, after one of %d: %v", m.Headers(), len(parts), len(result), err)
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
	r.Helper()
	ids := map[string]bool{}
	for _, m := range all {
		ids[m.Headers().Get(jetstream.MsgIDHeader)] = true
		if slices.Contains(result, m) {
			continue
		}
		if cut := m.Headers().Get(results.HeaderCut); cut == "" || cut == result[0].Headers().Get(results.HeaderCut) {
			r.Errorf("a second message of the result's cut: %v", m.Headers())
		}
	}
	if len(all)-len(result) < 2 || len(ids) != len(all) {
		r.Errorf("the stream has %d messages with %d ids, %d of them of the result: want each once, and at least two of other cuts",
			len(all), len(ids), len(result))
	}
}

// TestAResultThatIsCutInAnotherWay: a worker stores the first parts of a result, and the next one compresses it and so needs fewer of them. A
// reader gets one complete result, although the stream no longer knows the ids of the first parts. The model of package results has the
// other ways.
func TestAResultThatIsCutInAnotherWay(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		inputs := []framed{manyLines(1, 300)}
		cfg := streams.Config{BatchPayloads: 32}
		r.fillInTheMiddle(hostDevice(t), cfg, inputs, 2)
		r.opts.Compress = compression.Zstd
		r.process(hostDevice(t), cfg)
		all := r.stored("results.>")[1]
		result := r.complete(all)
		r.wantOtherCuts(all, result)
		r.wantFrame(1, inputs[0], result)
	})
}

// fillInTheMiddle publishes inputs with results in many parts, and runs a worker on a result stream that is full after some messages. It
// returns when that worker has ended, the stream has room again, and it has forgotten the ids of what it has stored.
func (r *rig) fillInTheMiddle(d device.Device, cfg streams.Config, inputs []framed, room int) {
	r.Helper()
	r.opts.DrainTimeout = 100 * time.Millisecond
	r.opts.Partitions = min(r.opts.Partitions, 1)
	r.forgetful()
	r.update("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 6500 })
	stream := r.StreamConfig("RESULTS")
	full := stream
	full.Discard, full.MaxMsgs = jetstream.DiscardNew, int64(room)
	r.Create(full)
	r.publishFrames(inputs)
	run := r.run(d, cfg)
	r.Until("the stream is full", func() bool { return r.messages("RESULTS") == uint64(room) })
	if err := run.drain(); err != nil {
		r.Logf("the first worker ended with %v", err)
	}
	r.Create(stream)
	r.forgotten("RESULTS")
	r.opts.DrainTimeout = 10 * time.Second
}
