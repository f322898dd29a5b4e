package faults

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

const frameLead = 500

// lines configures workers to split inputs into lines. It returns a load of frames with the given number of records.
func (r *rig) lines(records func(rng *rand.Rand) int) load {
	r.set("MILLRACE_FRAMING=newline_delimited", "MILLRACE_BATCH_PAYLOADS=256")
	r.lead = frameLead
	r.split = func(_ nats.Header, body []byte) (records [][]byte, bad *damage) { return splitLines(body), nil }
	return load{between: 100, input: r.framesOf(records, func(frame, record []byte) []byte {
		for i, c := range record {
			if c == '\n' || c == '\r' {
				record[i] = ' '
			}
		}
		return append(append(frame, record...), '\n')
	})}
}

// splitLines splits a frame in which each record ends with LF.
func splitLines(body []byte) [][]byte {
	if len(body) == 0 {
		return nil
	}
	return bytes.Split(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"))
}

// framesOf returns a function that creates the i-th frame from a seed. Its records are mostly small and have random
// bytes. add appends a record to a frame.
func (r *rig) framesOf(records func(rng *rand.Rand) int, add func(frame, record []byte) []byte) func(i int) *nats.Msg {
	return func(i int) *nats.Msg {
		var key [32]byte
		binary.LittleEndian.PutUint64(key[:], r.seed)
		binary.LittleEndian.PutUint64(key[8:], uint64(i))
		source := rand.NewChaCha8(key)
		rng := rand.New(source)
		var frame []byte
		for range records(rng) {
			record := make([]byte, rng.IntN(200))
			_, _ = source.Read(record) // never fails
			frame = add(frame, record)
		}
		return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%7), Data: frame, Header: nats.Header{"Input": {fmt.Sprint(i)}}}
	}
}

// upTo returns a function that draws numbers from 0 to n.
func upTo(n int) func(rng *rand.Rand) int { return func(rng *rand.Rand) int { return rng.IntN(n + 1) } }

// TestFramesWorkerKilled is TestWorkerKilled with frames.
func TestFramesWorkerKilled(t *testing.T) {
	eachMode(t, func(r *rig) { r.killWorkers(2, times(20, 2), "frames: SIGKILL of a worker of 2", r.lines(upTo(400))) })
}

// TestFramesServerRestarted is TestServerRestarted with frames.
func TestFramesServerRestarted(t *testing.T) {
	eachMode(t, func(r *rig) { r.restartServer(times(10, 2), "frames: restart of the server", r.lines(upTo(400))) })
}

// TestFramesResultsRefused fills the result stream in the middle of results with several parts.
func TestFramesResultsRefused(t *testing.T) {
	eachMode(t, func(r *rig) {
		r.operators("crc32c,minhash?k=4&hashes=256")
		full := refusals[len(refusals)-1]
		r.refuseResults(full, "frames: result stream "+full.name+", results of several parts", r.lines(upTo(1000)), 20, 150)
		parts := 0
		r.read(resultStream, func(_ uint64, m jetstream.Msg) {
			if m.Headers().Get(results.HeaderPart) != "" {
				parts++
			}
		})
		if parts == 0 {
			r.t.Error("no result has several parts")
		}
	})
}

// unfit is the length of a record that is refused by the operators of a worker built with the tag faults.
const unfit = 30011

// TestFramesWithAPoisonRecord has one record among 10,000 on which an operator fails. Only that record has no result.
func TestFramesWithAPoisonRecord(t *testing.T) {
	eachMode(t, func(r *rig) {
		const frames, records = 100, 100
		r.failWorkers()
		l := r.lines(func(*rand.Rand) int { return records })
		at := r.rng.IntN(frames)
		r.serve(1)
		r.work(2)
		r.feed(frames, func(i int) *nats.Msg {
			m := l.input(i)
			if i == at {
				all := bytes.SplitAfter(m.Data, []byte("\n"))
				all[r.seed%records] = append(bytes.Repeat([]byte("p"), unfit), '\n')
				m.Data = bytes.Join(all, nil)
			}
			return m
		}).wait()
		if a := r.close("frames: an operator fails on one record of 10,000", 1); a.dead != 1 || a.payloads != frames*records {
			r.t.Errorf("%d dead letters of %d records, want 1 of %d", a.dead, a.payloads, frames*records)
		}
	})
}
