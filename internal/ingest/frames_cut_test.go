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

// complete returns the messages of an input's only complete result, assembled as a reader does.
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

// wantOtherCuts checks the messages that are stored beside a complete result. These are at least two different parts
// of other cuts. The server may store more parts of the first worker after the stream has space again.
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

// TestAResultThatIsCutInAnotherWay lets one worker store the first parts of a result. The next worker compresses the
// result into fewer parts. A reader gets one complete result, although the stream has forgotten the ids of the first
// parts. The model of package results covers other cuts.
func TestAResultThatIsCutInAnotherWay(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		inputs := []framed{manyLines(1, 300)}
		o := streams.Options{BatchPayloads: 32}
		r.fillInTheMiddle(hostDevice(t), o, inputs, 2)
		r.opts.Compress = compression.Zstd
		r.process(hostDevice(t), o)
		all := r.stored("results.>")[1]
		result := r.complete(all)
		r.wantOtherCuts(all, result)
		r.wantFrame(1, inputs[0], result)
	})
}

// fillInTheMiddle publishes inputs with results in many parts. It runs a worker until the result stream is full after
// room more messages. It returns once the worker has ended, the stream has space again, and it has forgotten the ids
// of stored messages.
func (r *rig) fillInTheMiddle(d device.Device, o streams.Options, inputs []framed, room int) {
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
	run := r.run(d, o)
	r.Until("the stream is full", func() bool { return r.messages("RESULTS") == uint64(room) })
	if err := run.drain(); err != nil {
		r.Logf("the first worker ended with %v", err)
	}
	r.Create(stream)
	r.forgotten("RESULTS")
	r.opts.DrainTimeout = 10 * time.Second
}
