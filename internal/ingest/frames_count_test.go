package ingest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/device"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// wantCounted checks the frames that the observer received, in any order. The decompression time of each compressed
// frame must be positive.
func (r *rig) wantCounted(want []inflight.FrameStats) {
	r.Helper()
	r.tally.mu.Lock()
	got := slices.Clone(r.tally.frames)
	r.tally.mu.Unlock()
	for i := range got {
		if s := &got[i]; s.Splitting <= 0 || (s.Decompressing > 0) != (s.Compressed > 0) {
			r.Errorf("a frame was split in %v and decompressed in %v: %+v", s.Splitting, s.Decompressing, *s)
		}
		got[i].Splitting, got[i].Decompressing = 0, 0
	}
	times := map[string]int{}
	for _, s := range got {
		times[fmt.Sprintf("%+v", s)]++
	}
	for _, s := range want {
		times[fmt.Sprintf("%+v", s)]--
	}
	for s, n := range times {
		if n != 0 {
			r.Errorf("of %d frames, want %d, there are %+d too many like this: %s", len(got), len(want), n, s)
		}
	}
}

// TestFramesAreCountedExactly shows that each frame is counted once, with its failed records, parts and bytes. A
// message that is neither a frame nor compressed is not counted.
func TestFramesAreCountedExactly(t *testing.T) {
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
		r.opts.Split.Framing, r.opts.Decompress = frame.Auto, compression.Auto
		large := manyLines(3, 200).as(ndjson) // its result has several parts
		plain := lines([]byte("one"), []byte("two")).as(ndjson)
		packed := plain.compressed(compression.Zstd)
		single := framed{body: []byte("a record")}.compressed(compression.LZ4)
		r.provision()
		r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 4000 })
		inputs := []framed{
			lines([]byte("a"), []byte("b"), []byte("c")).as(ndjson), framed{}.as(ndjson), large, packed, single,
			lines([]byte("fits"), bytes.Repeat([]byte("x"), 20<<10), []byte("fits too")).as(ndjson),
			{body: []byte("no frame")},
			{body: []byte("no zstd"), header: nats.Header{"Content-Encoding": {"zstd"}}},
		}
		inputs[5].statuses = []record.Status{record.OK, record.TooLarge, record.OK}
		r.publishFrames(inputs)
		r.process(hostDevice(t), streams.Options{BatchBytes: 16 << 10})
		found, dead := r.stored("results.>"), r.deadLetters()
		for _, i := range []int{0, 1, 2, 3, 5} {
			seq := uint64(i + 1)
			r.wantFrame(seq, inputs[i], found[seq])
			r.wantRecordLetters(seq, inputs[i], dead[seq])
		}
		if len(found[5]) != 1 || len(found[7]) != 1 || len(found[8]) != 0 || len(dead[8]) != 1 {
			t.Errorf("the single messages have %d, %d and %d results, want one, one and none", len(found[5]), len(found[7]), len(found[8]))
		}
		parts := len(found[3])
		if parts < 2 {
			t.Fatalf("the result of %d records has %d parts: the test needs several", len(large.records), parts)
		}
		ok := func(n int) [record.Statuses]int { return [record.Statuses]int{record.OK: n} }
		r.wantCounted([]inflight.FrameStats{
			{Framed: true, Records: ok(3), Parts: 1},
			{Framed: true, Parts: 1},
			{Framed: true, Records: ok(len(large.records)), Parts: parts},
			{Framed: true, Records: ok(2), Parts: 1, Compressed: len(packed.body), Decompressed: len(plain.body)},
			{Records: ok(1), Parts: 1, Compressed: len(single.body), Decompressed: len("a record")},
			{Framed: true, Records: [record.Statuses]int{record.OK: 2, record.TooLarge: 1}, Parts: 1},
		})
	})
}

// smallFrames returns n frames and their expected statistics. Frame i has i%5 records.
func smallFrames(n int) (inputs []framed, counts []inflight.FrameStats) {
	for i := range n {
		inputs = append(inputs, lines(slices.Repeat([][]byte{fmt.Append(nil, "record of ", i)}, i%5)...))
		counts = append(counts, inflight.FrameStats{Framed: true, Records: [record.Statuses]int{record.OK: i % 5}, Parts: 1})
	}
	return inputs, counts
}

// TestAFrameCountsOnce loses some of the server's answers to results. Later all inputs are delivered again.
func TestAFrameCountsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, Duplicates: time.Hour})
	r.provision()
	r.loseAcks()
	r.opts.Split = frame.Splitter{Framing: frame.NewlineDelimited}
	inputs, counts := smallFrames(50)
	r.publishFrames(inputs)
	r.process(hostDevice(t), streams.Options{BatchPayloads: 50})
	again := r.tally.count(inflight.Duplicate)
	if again == 0 {
		t.Error("no result was stored already when it was published again")
	}
	r.wantCounted(counts)
	r.forgetConsumers()
	r.giveBack(len(inputs))
	r.workerURL = r.URL
	r.process(hostDevice(t), streams.Options{})
	if n := r.tally.count(inflight.Duplicate) - again; n != len(inputs) {
		t.Errorf("%d results were stored already, want all %d", n, len(inputs))
	}
	r.wantCounted(counts)
}

// TestBatchesTellMessagesFromRecords shows that a batch in the middle of a large frame has one message. That message
// ends in another batch.
func TestBatchesTellMessagesFromRecords(t *testing.T) {
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
		const records, batch = 95, 10
		sequences := map[int][]uint64{} // of the messages of each batch
		seen := r.observePayloads(func(batch int, p inflight.Payload) { sequences[batch] = append(sequences[batch], p.Sequence) })
		r.provision()
		r.publishFrames([]framed{lines(slices.Repeat([][]byte{[]byte("one record of many")}, records)...)})
		r.process(hostDevice(t), streams.Options{BatchPayloads: batch})
		rows, ended := 0, 0
		for i, b := range seen.all() {
			if b.Messages != 1 || !slices.Equal(sequences[i], []uint64{1}) {
				t.Errorf("batch %d has %d messages with the sequences %d, want 1 with 1", b.Batch, b.Messages, sequences[i])
			}
			rows += b.Payloads
			ended += b.Ended
		}
		if rows != records || ended != 1 || len(seen.all()) != 10 {
			t.Errorf("%d batches with %d rows, in which %d messages end; want 10 with %d, and 1", len(seen.all()), rows, ended, records)
		}
	})
}

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
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
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
	r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 6500 })
	empty := r.fill(int64(room))
	r.publishFrames(inputs)
	run := r.run(d, o)
	r.Until("the stream is full", func() bool { return r.messages("RESULTS") == uint64(room) })
	if err := run.drain(); err != nil {
		r.Logf("the first worker ended with %v", err)
	}
	empty()
	r.forgotten("RESULTS")
	r.opts.DrainTimeout = 10 * time.Second
}
