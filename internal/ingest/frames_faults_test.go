package ingest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/corpus"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// manyLines returns a frame of n records of up to 200 bytes. An operator from pickyKernels fails on the records at
// the indices in bad.
func manyLines(seed uint64, n int, bad ...int) framed {
	records := make([][]byte, n)
	for i := range records {
		records[i] = bytes.ReplaceAll(corpus.Text(seed<<32+uint64(i), i*7%200), []byte("\n"), []byte(" "))
	}
	statuses := make([]record.Status, n)
	for _, i := range bad {
		records[i], statuses[i] = bytes.Repeat([]byte{'x'}, unfit), record.OperatorError
	}
	in := lines(records...)
	in.statuses = statuses
	return in
}

// TestAFrameThatFailsAltogetherDoesNotEndTheWorker shows that several failed records of one message are the same
// evidence against the device as one failed record.
func TestAFrameThatFailsAltogetherDoesNotEndTheWorker(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		inputs := []framed{manyLines(1, 3, 0, 1, 2)}
		r.provision()
		r.publishFrames(inputs)
		r.process(openHost(t, pickyKernels()), streams.Options{})
		r.wantFrames(inputs)
		r.wantReported(inputs)
	})
}

// TestAResultStreamThatIsFullInTheMiddleOfParts lets a worker store only two record dead letters and the first part
// of a result. The next worker stores the remaining parts after the result stream has forgotten the ids of stored
// messages.
func TestAResultStreamThatIsFullInTheMiddleOfParts(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		inputs := []framed{manyLines(1, 300, 10, 60)}
		o := streams.Options{BatchPayloads: 32, BatchBytes: 128 << 10}
		r.fillInTheMiddle(openHost(t, pickyKernels()), o, inputs, 3)
		r.process(openHost(t, pickyKernels()), o)
		r.wantFrame(1, inputs[0], r.stored("results.>")[1])
		r.wantRecordLetters(1, inputs[0], r.stored("deadletter.>")[1])
	})
}

func (r *rig) messages(name string) uint64 {
	r.Helper()
	return r.Stream(name).CachedInfo().State.Msgs
}

// inPartitionOf returns the number of the n inputs that are in the same partition as input seq.
func (r *rig) inPartitionOf(seq uint64, n int) (same int) {
	r.Helper()
	stream := r.Stream(r.opts.Stream)
	partition := func(seq uint64) string {
		raw, err := stream.GetMsg(r.Ctx(), seq)
		if err != nil {
			r.Fatal(err)
		}
		return strings.TrimSuffix(raw.Subject, topology.PartitionSubject(raw.Subject))
	}
	mine := partition(seq)
	for i := range n {
		if partition(uint64(i+1)) == mine {
			same++
		}
	}
	return same
}

// TestFramesWithoutADeadLetterStream fails a record whose dead letter can't be stored. The record's frame has a
// result later, and all other frames at once.
func TestFramesWithoutADeadLetterStream(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.provision()
		dead := r.StreamConfig(deadStream)
		r.Delete(deadStream)
		inputs := []framed{manyLines(1, 5)}
		for seed := uint64(2); seed < 20; seed++ {
			inputs = append(inputs, manyLines(seed, 5))
		}
		const bad = 8
		inputs[bad] = manyLines(50, 37, 20)
		r.publishFrames(inputs)
		run := r.run(openHost(t, pickyKernels()), streams.Options{})
		minimum := len(inputs) - 1
		if r.opts.Exclusive {
			minimum = len(inputs) - r.inPartitionOf(bad+1, len(inputs)) // inputs of the same partition wait too
		}
		r.tally.awaitStored(t, minimum)
		r.Log.Await(t, "could not store a dead letter")
		r.Create(dead)
		until(t, "every input is settled", r.allSettled)
		if err := run.drain(); err != nil {
			t.Error(err)
		}
		r.wantFrames(inputs)
	})
}

// TestAPartThatTheStreamRefusesForItsSize lowers the stream's limit after the worker has read it. A retry can't
// succeed, so the message becomes a dead letter. Its neighbors have results.
func TestAPartThatTheStreamRefusesForItsSize(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.provision()
		limit := func(bytes int32) { r.update("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = bytes }) }
		limit(3000)
		run := r.run(hostDevice(t), streams.Options{})
		// With exclusive delivery, a lease reads the limit when it begins.
		early := []framed{manyLines(4, 3), manyLines(5, 100), manyLines(6, 3)}
		r.publishFrames(early)
		until(t, "all inputs are settled", r.allSettled)
		limit(2000)
		inputs := []framed{manyLines(1, 3), manyLines(2, 100), manyLines(3, 3)}
		r.publishFrames(inputs)
		until(t, "all inputs are settled", r.allSettled)
		if err := run.drain(); err != nil {
			t.Fatal(err)
		}
		got, dead := r.stored("results.>"), r.deadLetters()
		if len(got[2]) < 2 {
			t.Errorf("the result of 100 records has %d parts below the first limit, want several", len(got[2]))
		}
		r.wantFrame(4, inputs[0], got[4])
		r.wantFrame(6, inputs[2], got[6])
		// On a busy machine, a new lease may have read the new limit.
		if len(got[5]) > 0 && r.Log.Has("beginning the partition anew") {
			r.wantFrame(5, inputs[1], got[5])
		} else if len(got[5]) != 0 || len(dead[5]) != 1 || !bytes.Equal(dead[5][0].Data(), inputs[1].body) {
			t.Errorf("input 5 has %d results and %d dead letters, want its body as one dead letter", len(got[5]), len(dead[5]))
		}
	})
}

// TestFramesMoveBetweenWorkers starts and stops workers while frames are unpacked and spread over batches.
func TestFramesMoveBetweenWorkers(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Decompress = compression.Auto
		if r.opts.Exclusive {
			r.opts.Partitions = 4
		}
		r.opts.DrainTimeout = 20 * time.Millisecond
		random := rand.New(rand.NewPCG(7, 7))
		var inputs []framed
		for seed := range uint64(60) {
			in := manyLines(seed, 1+random.IntN(150))
			if seed%3 == 0 {
				in.body = new(compression.Compressor).Append(nil, compression.LZ4, in.body)
				in.header = nats.Header{"Content-Encoding": {"lz4"}}
			}
			inputs = append(inputs, in)
		}
		r.provision()
		r.publishFrames(inputs)
		o := streams.Options{BatchPayloads: 25}
		stays := r.run(hostDevice(t), o)
		for range 6 {
			before := r.tally.stored()
			leaves := r.run(hostDevice(t), o)
			until(t, "there are new results", func() bool { return r.tally.stored() > before || r.allSettled() })
			if err := leaves.drain(); err != nil {
				t.Log(err)
			}
		}
		until(t, "every input is settled", r.allSettled)
		if err := stays.drain(); err != nil {
			t.Error(err)
		}
		r.wantFrames(inputs)
	})
}

// TestFramesOnTwoDevices shows that each frame is processed on one device, and both devices process frames.
func TestFramesOnTwoDevices(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		if r.opts.Exclusive {
			r.opts.Partitions = 4
		}
		var inputs []framed
		for seed := range uint64(80) {
			in := manyLines(seed, 1+int(seed))
			if seed == 60 {
				in = manyLines(seed, 60, 0, 30, 59)
			}
			inputs = append(inputs, in)
		}
		r.provision()
		run := r.withDevices(streams.Options{BatchPayloads: 20, BatchBytes: 64 << 10}, openHost(t, pickyKernels()), openHost(t, pickyKernels()))
		run.start()
		r.publishFrames(inputs)
		until(t, "every input is settled", r.allSettled)
		if err := run.drain(); err != nil {
			t.Error(err)
		}
		r.wantFrames(inputs)
	})
}

// TestBombsStayWithinTheMemory decompresses every message to many times the memory limit. With one device, the
// decompressed bytes exceed the limit by at most one frame.
func TestBombsStayWithinTheMemory(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		var err error
		if r.opts.Operators, err = operator.ParseList("crc32c"); err != nil {
			t.Fatal(err)
		}
		r.opts.Decompress = compression.Zstd
		const n, size = 10, 1 << 20
		var inputs []framed
		for seed := range uint64(n) {
			in := lines(slices.Repeat([][]byte{bytes.Repeat([]byte{byte('a' + seed%26)}, 15000)}, size/15000)...)
			in.body = new(compression.Compressor).Append(nil, compression.Zstd, in.body)
			inputs = append(inputs, in)
		}
		r.provision()
		r.publishFrames(inputs)
		run := r.prepare(hostDevice(t), streams.Options{BatchPayloads: 16, BatchBytes: 256 << 10})
		const limit = 3 << 19
		run.worker.pool.Limit = limit
		var maximum atomic.Int64
		stop, sample := make(chan struct{}), time.NewTicker(100*time.Microsecond)
		defer sample.Stop()
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-sample.C:
					maximum.Store(max(maximum.Load(), run.worker.Memory().Used))
				}
			}
		}()
		run.start()
		until(t, "every input is settled", r.allSettled)
		close(stop)
		if err := run.drain(); err != nil {
			t.Error(err)
		}
		if bound := int64(limit + size + size/4); maximum.Load() > bound {
			t.Errorf("up to %d bytes were in use, and %d are allowed with one frame more", maximum.Load(), bound)
		}
		r.wantFrames(inputs)
	})
}

// TestFramesThroughTheSmallestBudget lets a worker hold one delivery at a time.
func TestFramesThroughTheSmallestBudget(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Decompress = compression.Auto
		var inputs []framed
		for seed := range uint64(50) {
			in := manyLines(seed, 1+int(seed)%50)
			if seed%2 == 0 {
				in.body = new(compression.Compressor).Append(nil, compression.Zstd, in.body)
				in.header = nats.Header{"Content-Encoding": {"zstd"}}
			}
			inputs = append(inputs, in)
		}
		inputs[30] = framed{body: []byte("no zstd"), header: nats.Header{"Content-Encoding": {"zstd"}}}
		inputs[40] = manyLines(40, 20, 7)
		r.provision()
		r.publishFrames(inputs)
		run := r.prepare(openHost(t, pickyKernels()), streams.Options{BatchPayloads: 16})
		run.worker.pool.Limit = 1
		run.start()
		until(t, "every input is settled", r.allSettled)
		if err := run.drain(); err != nil {
			t.Error(err)
		}
		got, dead := r.stored("results.>"), r.deadLetters()
		for i, in := range inputs {
			if i != 30 {
				r.wantFrame(uint64(i+1), in, got[uint64(i+1)])
				r.wantRecordLetters(uint64(i+1), in, dead[uint64(i+1)])
			}
		}
		if len(dead[31]) != 1 || len(got[31]) != 0 {
			t.Errorf("the frame that is no zstd has %d dead letters and %d results, want 1 and 0", len(dead[31]), len(got[31]))
		}
	})
}
