package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/operator/payloads"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// manyLines returns a frame of n records of up to 200 bytes. An operator fails on those at the indices in bad, if its kernels are
// pickyKernels.
func manyLines(seed uint64, n int, bad ...int) framed {
	records := make([][]byte, n)
	for i := range records {
		records[i] = bytes.ReplaceAll(payloads.Text(seed<<32+uint64(i), i*7%200), []byte("\n"), []byte(" "))
	}
	statuses := make([]record.Status, n)
	for _, i := range bad {
		records[i], statuses[i] = bytes.Repeat([]byte{'x'}, unfit), record.OperatorError
	}
	in := lines(records...)
	in.statuses = statuses
	return in
}

// rangeOf returns the integers below n.
func rangeOf(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// TestABatchFailsInTheMiddleOfAFrame: an operator fails on records of a frame that is in three batches.
func TestABatchFailsInTheMiddleOfAFrame(t *testing.T) {
	t.Parallel()
	const n, batch = 36, 14
	for name, bad := range map[string][]int{
		"the first record": {0}, "the first batch": {5}, "the middle batch": {17}, "the last batch": {35},
		"each batch": {3, 20, 30}, "neighbors across batches": {12, 13, 14, 15}, "every record": rangeOf(n),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, r *rig) {
				var inputs []framed
				for seed := range uint64(12) {
					in := manyLines(seed, 1+int(seed)*2)
					if seed == 3 || seed == 7 {
						in = manyLines(seed, n, bad...)
					}
					inputs = append(inputs, in)
				}
				r.provision()
				r.publishFrames(inputs)
				r.process(openHost(t, pickyKernels()), streams.Config{BatchPayloads: batch, BatchBytes: 128 << 10})
				r.wantFrames(inputs)
			})
		})
	}
}

// TestAFrameThatFailsAltogetherDoesNotEndTheWorker: two records of one message that fail are no more evidence against the device
// than one is.
func TestAFrameThatFailsAltogetherDoesNotEndTheWorker(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		inputs := []framed{manyLines(1, 3, 0, 1, 2)}
		r.provision()
		r.publishFrames(inputs)
		r.process(openHost(t, pickyKernels()), streams.Config{})
		r.wantFrames(inputs)
	})
}

// TestFramesAmongSingleMessages: frames of 0, 1 and 2 records among messages that are one record.
func TestFramesAmongSingleMessages(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 5, 1024} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, r *rig) {
				r.opts.Split.Framing = frame.Auto
				r.opts.Decompress = compression.Auto
				var inputs []framed
				for i := range 120 {
					in := framed{body: document(i), header: nats.Header{}}
					if i%3 > 0 {
						in = manyLines(uint64(i), i/3%3)
						in.header = nats.Header{"Content-Type": {"application/x-ndjson"}}
					}
					if len(in.records) == 0 && i%3 > 0 {
						in.body = nil
					}
					if i%5 == 0 {
						in.body = new(compression.Compressor).Append(nil, compression.Zstd, in.body)
						in.header["Content-Encoding"] = []string{"zstd"}
					}
					inputs = append(inputs, in)
				}
				r.provision()
				r.publishFrames(inputs)
				r.process(hostDevice(t), streams.Config{BatchPayloads: batch})
				got := r.stored("results.>")
				for i, in := range inputs {
					parts := got[uint64(i+1)]
					if len(parts) != 1 {
						t.Fatalf("input %d has %d results, want 1", i+1, len(parts))
					}
					if i%3 > 0 {
						r.wantFrame(uint64(i+1), in, parts)
					} else if err := r.opts.Format.Check(r.opts.Operators, document(i), parts[0].Data()); err != nil {
						t.Errorf("the result of input %d: %v", i+1, err)
					}
				}
				if dead := r.deadLetters(); len(dead) > 0 || len(got) != len(inputs) {
					t.Errorf("%d dead letters and results of %d inputs, want 0 and %d", len(dead), len(got), len(inputs))
				}
			})
		})
	}
}

// TestAStopInTheMiddleOfALargeFrame: the drain times out while a part of a frame is on the device. The next worker starts the frame
// from its beginning.
func TestAStopInTheMiddleOfALargeFrame(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.DrainTimeout = 50 * time.Millisecond
		inputs := []framed{manyLines(1, 5), manyLines(2, 3000), manyLines(3, 5), manyLines(4, 3000)}
		r.provision()
		r.publishFrames(inputs)
		cfg := streams.Config{BatchPayloads: 64}
		d := simDevice(t)
		release := d.Hold()
		run := r.prepare(d, cfg)
		run.start()
		until(t, "two parts of a frame are on the device", func() bool { return run.worker.Status().InHand >= 2 })
		err := run.drain()
		release()
		t.Logf("the first worker ended with %v", err)
		r.opts.DrainTimeout = 10 * time.Second
		r.process(hostDevice(t), cfg)
		r.wantFrames(inputs)
	})
}

// manyParts makes results so large that those of some hundred records have several parts.
func manyParts(r *rig) {
	r.t.Helper()
	ops, err := operator.ParseList("crc32c,minhash?k=4&hashes=512")
	if err != nil {
		r.t.Fatal(err)
	}
	r.opts.Operators, r.opts.Format = ops, operator.JSON
}

// TestAResultStreamThatIsFullInTheMiddleOfParts: a worker stores record dead letters and the first parts of a result, and no more. The
// next one stores the rest, when the result stream has forgotten the ids of what is stored.
func TestAResultStreamThatIsFullInTheMiddleOfParts(t *testing.T) {
	t.Parallel()
	for room := 1; room <= 4; room++ { // two record dead letters, then the parts
		t.Run(fmt.Sprintf("%d messages stored", room), func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, r *rig) {
				manyParts(r)
				r.opts.DrainTimeout = 100 * time.Millisecond
				r.opts.Partitions = min(r.opts.Partitions, 1)
				r.forgetful()
				inputs := []framed{manyLines(1, 1000, 10, 600)}
				r.publishFrames(inputs)
				stream := r.streamConfig("RESULTS")
				full := stream
				full.Discard, full.MaxMsgs = jetstream.DiscardNew, int64(room)
				r.updateStream(full)
				cfg := streams.Config{BatchPayloads: 256, BatchBytes: 128 << 10}
				run := r.run(openHost(t, pickyKernels()), cfg)
				until(t, "the stream is full", func() bool { return r.messages("RESULTS") == uint64(room) })
				if err := run.drain(); err != nil {
					t.Logf("the first worker ended with %v", err)
				}
				r.updateStream(stream)
				r.forgotten()
				r.opts.DrainTimeout = 10 * time.Second
				r.process(openHost(t, pickyKernels()), cfg)
				r.wantFrame(1, inputs[0], r.stored("results.>")[1])
				r.wantRecordLetters(1, inputs[0], r.stored("deadletter.>")[1])
			})
		})
	}
}

// messages returns the number of messages in a stream.
func (r *rig) messages(name string) uint64 {
	r.t.Helper()
	s, err := r.js.Stream(r.ctx(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// TestAFrameWithAStoredResultIsNotStoredAgain: a worker died after it had stored the result, in one part or several. The next one
// starts when the result stream has forgotten its id.
func TestAFrameWithAStoredResultIsNotStoredAgain(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Partitions = min(r.opts.Partitions, 1)
		r.forgetful()
		inputs := []framed{manyLines(1, 3), manyLines(2, 3), manyLines(3, 3)}
		r.publishFrames(inputs)
		r.abandon(3, func(d *inflight.Delivery) {
			h := results.ResultHeader(d, results.OperatorNames(r.opts.Operators))
			h[jetstream.MsgIDHeader] = []string{results.MessageID(d)}
			switch d.Sequence {
			case 2:
				h[results.HeaderPart], h[results.HeaderCut] = []string{"2/2"}, []string{"0badcafe"}
			case 3:
				return
			}
			if _, err := r.js.PublishMsg(r.ctx(), &nats.Msg{Subject: topology.MapSubject("results", d.Subject), Header: h}); err != nil {
				t.Fatal(err)
			}
		})
		r.forgotten()
		r.process(hostDevice(t), streams.Config{})
		got := r.stored("results.>")
		if len(got[1]) != 1 || len(got[2]) != 1 {
			t.Errorf("inputs 1 and 2 have %d and %d results, want one each", len(got[1]), len(got[2]))
		}
		r.wantFrame(3, inputs[2], got[3])
	})
}

// inPartitionOf returns how many of the n inputs are in the same partition as an input.
func (r *rig) inPartitionOf(seq uint64, n int) (same int) {
	r.t.Helper()
	stream, err := r.js.Stream(r.ctx(), r.opts.Stream)
	if err != nil {
		r.t.Fatal(err)
	}
	partition := func(seq uint64) string {
		raw, err := stream.GetMsg(r.ctx(), seq)
		if err != nil {
			r.t.Fatal(err)
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

// TestFramesWithoutADeadLetterStream: a record fails, and its dead letter can't be stored. The other frames have their results
// meanwhile, and this frame has its own later.
func TestFramesWithoutADeadLetterStream(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.provision()
		dead := r.streamConfig(deadStream)
		r.deleteStream(deadStream)
		inputs := []framed{manyLines(1, 5)}
		for seed := uint64(2); seed < 20; seed++ {
			inputs = append(inputs, manyLines(seed, 5))
		}
		const bad = 8
		inputs[bad] = manyLines(50, 37, 20)
		r.publishFrames(inputs)
		run := r.run(openHost(t, pickyKernels()), streams.Config{})
		least := len(inputs) - 1
		if r.opts.Exclusive {
			least = len(inputs) - r.inPartitionOf(bad+1, len(inputs)) // what is in its partition waits with it
		}
		r.tally.awaitStored(t, least)
		r.log.Await(t, "could not store a dead letter")
		r.createStream(dead)
		until(t, "every input is settled", r.allSettled)
		if err := run.drain(); err != nil {
			t.Error(err)
		}
		r.wantFrames(inputs)
	})
}

// TestAPartThatTheStreamRefusesForItsSize: the stream's limit is lowered after the worker has read it. No retry helps, so the message is
// a dead letter. Its neighbors have results.
func TestAPartThatTheStreamRefusesForItsSize(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		manyParts(r)
		r.provision()
		run := r.run(hostDevice(t), streams.Config{})
		early := []framed{manyLines(4, 3), manyLines(5, 3), manyLines(6, 3)} // with exclusive delivery a lease reads it when it begins
		r.publishFrames(early)
		until(t, "all inputs are settled", r.allSettled)
		c := r.streamConfig("RESULTS")
		c.MaxMsgSize = 64 << 10
		r.updateStream(c)
		inputs := []framed{manyLines(1, 3), manyLines(2, 1000), manyLines(3, 3)}
		r.publishFrames(inputs)
		until(t, "all inputs are settled", r.allSettled)
		if err := run.drain(); err != nil {
			t.Fatal(err)
		}
		got, dead := r.stored("results.>"), r.deadLetters()
		r.wantFrame(4, inputs[0], got[4])
		r.wantFrame(6, inputs[2], got[6])
		if len(got[5]) != 0 || len(dead[5]) != 1 || !bytes.Equal(dead[5][0].Data(), inputs[1].body) {
			t.Errorf("input 5 has %d results and %d dead letters, want its body as one dead letter", len(got[5]), len(dead[5]))
		}
	})
}

// TestFramesMoveBetweenWorkers: workers come and go while frames are unpacked and spread over batches.
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
		for seed := range uint64(150) {
			in := manyLines(seed, 1+random.IntN(400))
			if seed%3 == 0 {
				in.body = new(compression.Compressor).Append(nil, compression.LZ4, in.body)
				in.header = nats.Header{"Content-Encoding": {"lz4"}}
			}
			inputs = append(inputs, in)
		}
		r.provision()
		r.publishFrames(inputs)
		cfg := streams.Config{BatchPayloads: 50}
		stays := r.run(hostDevice(t), cfg)
		for range 6 {
			before := r.tally.stored()
			leaves := r.run(hostDevice(t), cfg)
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

// TestFramesOnTwoDevicesOfWhichOneHangs: the worker ends, and the next one processes the frames that were on that device.
func TestFramesOnTwoDevicesOfWhichOneHangs(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.AckWait = 3 * time.Second
		if r.opts.Exclusive {
			r.opts.Partitions = 4
		}
		var inputs []framed
		for seed := range uint64(200) {
			inputs = append(inputs, manyLines(seed, 1+int(seed)))
		}
		r.provision()
		hangs, err := sim.Open(sim.Options{Kernels: operator.HostKernels()}) // never closed, because that is not allowed
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(hangs.Hold())
		cfg := streams.Config{BatchPayloads: 40, Deadline: streams.Deadline{Min: time.Second, Max: 2 * time.Second}}
		run := r.withDevices(cfg, hangs, hostDevice(t))
		run.start()
		r.publishFrames(inputs)
		<-run.worker.pipes[0].Over()
		if err := run.wait(); !errors.Is(err, device.ErrHung) {
			t.Errorf("Run = %v, want the device that hangs", err)
		}
		r.process(hostDevice(t), cfg)
		r.wantFrames(inputs)
	})
}

// TestFramesOnTwoDevices: the parts of a frame are on one device, and frames on both.
func TestFramesOnTwoDevices(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		if r.opts.Exclusive {
			r.opts.Partitions = 4
		}
		var inputs []framed
		for seed := range uint64(200) {
			in := manyLines(seed, 1+int(seed))
			if seed == 150 {
				in = manyLines(seed, 150, 0, 70, 149)
			}
			inputs = append(inputs, in)
		}
		r.provision()
		run := r.withDevices(streams.Config{BatchPayloads: 40, BatchBytes: 64 << 10}, openHost(t, pickyKernels()), openHost(t, pickyKernels()))
		run.start()
		r.publishFrames(inputs)
		until(t, "every input is settled", r.allSettled)
		if err := run.drain(); err != nil {
			t.Error(err)
		}
		r.wantFrames(inputs)
	})
}

// TestALargeSingleMessageAmongFrames: with framing auto, a message without framing that exceeds a batch is a dead letter.
func TestALargeSingleMessageAmongFrames(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Split.Framing = frame.Auto
		in := manyLines(1, 50)
		in.header = nats.Header{"Content-Type": {"application/x-ndjson"}}
		inputs := []framed{in, {body: make([]byte, 20<<10)}, in}
		r.provision()
		r.publishFrames(inputs)
		r.process(hostDevice(t), streams.Config{BatchBytes: 16 << 10})
		got, dead := r.stored("results.>"), r.deadLetters()
		r.wantFrame(1, in, got[1])
		r.wantFrame(3, in, got[3])
		if len(dead[2]) != 1 || len(got[2]) != 0 {
			t.Fatalf("the large message has %d dead letters and %d results, want 1 and 0", len(dead[2]), len(got[2]))
		}
		wantHeader(t, dead[2][0].Headers(), results.HeaderReason, string(results.TooLarge))
		if text := dead[2][0].Headers().Get(results.HeaderError); !strings.Contains(text, "20480") {
			t.Errorf("the error does not tell how large it is: %s", text)
		}
	})
}
