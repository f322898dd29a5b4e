package faults

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/ingest/results"
)

// Like the tests of load_test.go, the tests of this file inject faults under full load. The setups differ: more
// partitions, a second deployment, deleted consumers, inputs that fit in no message, or an input that is retried for a
// long time.

// TestLoadManyPartitions kills all workers of a stream with more partitions than the default.
func TestLoadManyPartitions(t *testing.T) {
	need(t)
	t.Parallel()
	for _, setup := range []struct{ servers, partitions int }{{1, 16}, {1, 12}, {replicas, 16}} {
		t.Run(fmt.Sprintf("R%d/%d", setup.servers, setup.partitions), func(t *testing.T) {
			r := newRig(t, "exclusive")
			r.byDefault()
			r.set(fmt.Sprintf("MILLRACE_PARTITIONS=%d", setup.partitions))
			r.serve(setup.servers)
			r.work(2)
			defer r.lookAround()()
			l := r.beginStorm()
			l.killWorkers()
			l.wait()
			l.wantEachOnce()
		})
	}
}

// second configures the workers of a second deployment on the same input stream.
var second = []string{"MILLRACE_CONSUMER=second", "MILLRACE_RESULT_STREAM=SECOND", "MILLRACE_RESULT_PREFIX=second", "MILLRACE_DEADLETTER_PREFIX=seconddead"}

// TestLoadSecondDeployment kills all workers of one deployment while the workers of another deployment on the same
// stream continue. Each deployment must have one result per input.
func TestLoadSecondDeployment(t *testing.T) {
	need(t)
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t, mode)
			r.byDefault()
			r.serve(1)
			r.work(2)
			first := slices.Clone(r.env)
			r.set(second...)
			r.work(2)
			r.env = slices.Clone(first)
			defer r.lookAround()()
			l := r.beginStorm()
			l.killWorkers()
			l.wait()
			last := l.end()
			for stream, env := range map[string][]string{resultStream: nil, "SECOND": second} {
				l.wantOutcomes(last, []string{stream}, l.right)
				r.env = append(slices.Clone(first), env...)
				r.wantSecondOpinion()
			}
		})
	}
}

// TestLoadConsumersDeleted deletes the workers' consumers while the workers read from them. A new worker creates the
// consumers again.
func TestLoadConsumersDeleted(t *testing.T) {
	eachLoaded(t, "consumers are deleted", func(r *rig, l *onslaught) {
		var names []string
		for info := range r.Stream(inputStream).ListConsumers(r.Ctx()).Info() {
			if info.Config.Durable != "" {
				names = append(names, info.Name)
			}
		}
		if len(names) == 0 {
			r.t.Fatal("the workers have no consumer, so the test shows nothing")
		}
		for _, name := range names[:min(len(names), 3)] {
			if err := r.JS.DeleteConsumer(r.Ctx(), inputStream, name); err != nil {
				r.t.Fatal(err)
			}
			l.await(l.stored() + 10_000)
		}
		r.replaceWorker()
	})
}

// bombEvery is the number of inputs per bomb. A bomb is a small compressed frame with a record that is too large for a
// batch and for a message.
const bombEvery = 2000

// isBomb reports whether the n-th input is a bomb.
func isBomb(n int) bool { return n%bombEvery == 7 }

// TestLoadUnstorableRecords has one frame among 2,000 inputs whose second record fits in no message. It also kills all
// workers. The record must have a dead letter, and the stream of dead letters must have the frame once. Every other
// input and record has its result.
func TestLoadUnstorableRecords(t *testing.T) {
	need(t)
	t.Parallel()
	bomb := new(compression.Compressor).Append(nil, compression.Zstd, append([]byte("first\n"), bytes.Repeat([]byte{'x'}, 3<<20)...))
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t, mode)
			r.byDefault()
			r.set("MILLRACE_FRAMING=auto", "MILLRACE_DECOMPRESS=auto", "MILLRACE_BATCH_BYTES=1MiB")
			r.serve(1)
			r.work(2)
			defer r.lookAround()()
			r.until("the server answers", r.jetStreamAnswers)
			l := r.stormOf(loaded, func(first int) func(i int) *nats.Msg {
				small := r.smallInputs(first)
				return func(i int) *nats.Msg {
					m := small(i)
					if isBomb(first + i) {
						m.Data = bomb
						m.Header.Set("Content-Encoding", "zstd")
						m.Header.Set("Content-Type", "application/x-ndjson")
					}
					return m
				}
			})
			l.await(loaded / 4)
			l.killWorkers()
			l.wait()
			last := l.end()
			l.wantOutcomes(last, []string{resultStream}, func(n int, m jetstream.Msg) bool {
				if isBomb(n) {
					return bytes.Count(m.Data(), []byte("\n")) == 2 && bytes.Count(m.Data(), []byte(`"error":`)) == 1
				}
				return l.right(n, m)
			})
			r.wantBombs(bomb, loaded/bombEvery)
			r.wantSecondOpinion()
		})
	}
}

// wantBombs checks that each of n bombs is stored once, and that one dead letter names its second record.
func (r *rig) wantBombs(bomb []byte, n int) {
	r.t.Helper()
	stored, letters := map[string]int{}, map[string]int{}
	r.read(deadStream, func(sequence uint64, m jetstream.Msg) {
		switch h := m.Headers(); {
		case h.Get(results.HeaderReason) == "" && bytes.Equal(m.Data(), bomb):
			stored[strconv.FormatUint(sequence, 10)]++
		case h.Get(results.HeaderRecord) == "1" && h.Get(results.HeaderReason) == string(results.TooLarge):
			letters[h.Get(results.HeaderPayloadSequence)]++
		default:
			r.t.Errorf("a message is neither a bomb nor the dead letter of a bomb's record: %v", h)
		}
	})
	if len(stored) != n || len(letters) != n {
		r.t.Errorf("%d frames are stored and %d are named by dead letters, want %d", len(stored), len(letters), n)
	}
	for at, times := range letters {
		if stored[at] != 1 || times != 1 {
			r.t.Errorf("%d dead letters name message %s, which is stored %d times as a bomb; want 1 and 1", times, at, stored[at])
		}
	}
}

// TestLoadInputRetried retries one input, with shared delivery, while publishers store inputs at full speed. The floor
// can't pass this input, so the workers remove no inputs. The server must still accept every publish. Afterwards every input is removed. The full form
// retries the input for 5 minutes, the maximum with default settings, and the stream has room for that
// (docs/streams.md).
func TestLoadInputRetried(t *testing.T) {
	need(t)
	t.Parallel()
	r := newRig(t, "shared")
	r.byDefault()
	if isFull() {
		r.set("MILLRACE_STREAM_MAX_BYTES=12GiB", "MILLRACE_RESULT_MAX_BYTES=12GiB")
	}
	r.serve(1)
	r.work(2)
	defer r.lookAround()()
	l := r.storm(1 << 30)
	c, err := r.JS.Consumer(r.Ctx(), inputStream, "millrace")
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next(jetstream.FetchMaxWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	meta, err := m.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	for again, end := time.Now(), time.Now().Add(time.Duration(times(300, 30))*time.Second); time.Now().Before(end); again = again.Add(10 * time.Second) {
		if err := m.InProgress(); err != nil {
			t.Fatal(err)
		}
		r.until("the input is retried", func() bool { return time.Since(again) > 10*time.Second })
	}
	held, _ := r.state(inputStream)
	if err := m.Nak(); err != nil {
		t.Fatal(err)
	}
	for _, f := range l.feeds {
		f.finish()
		if f.refused > 0 {
			t.Errorf("%d inputs were refused, the last because %v", f.refused, f.refusal)
		}
	}
	if held.FirstSeq > meta.Sequence.Stream {
		t.Errorf("the first input was %d while input %d was under retry", held.FirstSeq, meta.Sequence.Stream)
	}
	l.end()
	r.wantSecondOpinion()
	t.Logf("%d inputs, at most %d MiB in the stream", l.stored(), held.Bytes>>20)
}
