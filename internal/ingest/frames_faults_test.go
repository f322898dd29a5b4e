package ingest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// TestAResultStreamThatIsFullInTheMiddleOfParts lets a worker store only two record dead letters and the first part
// of a result. The next worker stores the remaining parts after the result stream has forgotten the ids of stored
// messages.
func TestAResultStreamThatIsFullInTheMiddleOfParts(t *testing.T) {
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
		inputs := []framed{manyLines(1, 300, 10, 60)}
		o := streams.Options{BatchPayloads: 32, BatchBytes: 128 << 10}
		r.fillInTheMiddle(openHost(t, pickyKernels()), o, inputs, 3)
		r.process(openHost(t, pickyKernels()), o)
		r.wantFrame(1, inputs[0], r.stored("results.>")[1])
		r.wantRecordLetters(1, inputs[0], r.deadLetters()[1])
	})
}

// inPartitionOf returns the number of the n inputs that are in the same partition as input seq.
func (r *rig) inPartitionOf(seq uint64, n int) (same int) {
	r.Helper()
	stream := r.Stream(r.opts.Stream)
	partition := func(seq uint64) string {
		raw, err := stream.GetMsg(r.Ctx(), seq)
		check(r.TB, err)
		return strings.TrimSuffix(raw.Subject, inflight.PartitionSubject(raw.Subject))
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
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
		r.provision()
		restore := r.remove(deadStream)
		var inputs []framed
		for seed := range uint64(19) {
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
		restore()
		r.awaitSettled()
		run.finish()
		r.wantFrames(inputs)
	})
}

// TestAPartThatTheStreamRefusesForItsSize lowers the stream's limit after the worker has read it. A retry can't
// succeed, so the message becomes a dead letter. Its neighbors have results.
func TestAPartThatTheStreamRefusesForItsSize(t *testing.T) {
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
		r.provision()
		limit := func(bytes int32) { r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = bytes }) }
		limit(3000)
		run := r.run(hostDevice(t), streams.Options{})
		// With exclusive delivery, a lease reads the limit when it begins.
		early := []framed{manyLines(4, 3), manyLines(5, 100), manyLines(6, 3)}
		r.publishFrames(early)
		r.awaitSettled()
		limit(2000)
		inputs := []framed{manyLines(1, 3), manyLines(2, 100), manyLines(3, 3)}
		r.publishFrames(inputs)
		r.awaitSettled()
		run.finish()
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
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
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
				in = in.compressed(compression.LZ4)
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
		r.awaitSettled()
		stays.finish()
		r.wantFrames(inputs)
	})
}

// TestFramesOnTwoDevices shows that each frame is processed on one device, and both devices process frames.
func TestFramesOnTwoDevices(t *testing.T) {
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
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
		seen := r.observeRecords()
		r.provision()
		run := r.prepareOn(streams.Options{BatchPayloads: 20, BatchBytes: 64 << 10},
			named{openHost(t, pickyKernels()), "a"}, named{openHost(t, pickyKernels()), "b"})
		run.start()
		r.publishFrames(inputs)
		r.awaitSettled()
		run.finish()
		r.wantFrames(inputs)
		if a, b := len(seen.of("a")), len(seen.of("b")); a == 0 || b == 0 {
			t.Errorf("the devices computed %d and %d batches, want some on each", a, b)
		}
	})
}

// TestBombsStayWithinTheMemory decompresses every message to many times the memory limit. With one device, the
// decompressed bytes exceed the limit by at most one frame.
func TestBombsStayWithinTheMemory(t *testing.T) {
	eachModeOfFrames(t, func(t *testing.T, r *rig) {
		r.operators("crc32c")
		r.opts.Decompress = compression.Zstd
		const n, size = 10, 1 << 20
		var inputs []framed
		for seed := range uint64(n) {
			in := lines(slices.Repeat([][]byte{bytes.Repeat([]byte{byte('a' + seed%26)}, 15000)}, size/15000)...)
			inputs = append(inputs, in.compressed(compression.Zstd))
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
		r.awaitSettled()
		close(stop)
		run.finish()
		if bound := int64(limit + size + size/4); maximum.Load() > bound {
			t.Errorf("up to %d bytes were in use, and %d are allowed with one frame more", maximum.Load(), bound)
		}
		r.wantFrames(inputs)
	})
}
