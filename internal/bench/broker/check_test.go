package broker

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
	"millrace/internal/device"
	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// newTestServer creates a server with empty streams.
func newTestServer(t *testing.T) *server {
	t.Helper()
	s, err := newServer(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.recreate(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	return s
}

// store stores a result for an input. The function change may modify the result first.
func (s *server) store(t *testing.T, sequence int, body []byte, change func(*nats.Msg)) {
	t.Helper()
	m := &nats.Msg{Subject: mapped(subject(sequence - 1)), Data: body, Header: nats.Header{}}
	m.Header.Set(results.HeaderSequence, []string{"0", "1", "2", "3"}[sequence])
	m.Header.Set(jetstream.MsgIDHeader, messageID(s.in, uint64(sequence))+"1700000000000000000")
	if change != nil {
		change(m)
	}
	if _, err := s.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// TestWhatIsWrongIsFound uses three inputs. The results of the first two are correct.
func TestWhatIsWrongIsFound(t *testing.T) {
	t.Parallel()
	ops := bench.Parse("crc32c")
	l := load{3, unframed{7, 100}}
	right := func(i int) []byte {
		payload := l.message(nil, i)
		return operator.JSON.Append(nil, ops, 100, [][]byte{ops[0].AppendReference(nil, payload)})
	}
	anotherID := func(m *nats.Msg) { m.Header.Set(jetstream.MsgIDHeader, "another") }
	for name, c := range map[string]struct {
		want  string
		third func(s *server, t *testing.T)
		null  bool
	}{
		"nothing is wrong": {"", func(s *server, t *testing.T) { s.store(t, 3, right(2), nil) }, false},
		"missing":          {"holds 2 results for 3 inputs", func(*server, *testing.T) {}, false},
		"two":              {"input 2 has two results", func(s *server, t *testing.T) { s.store(t, 2, right(1), anotherID) }, false},
		"body":             {"input 3 of 100 bytes", func(s *server, t *testing.T) { s.store(t, 3, right(0), nil) }, false},
		"id":               {`the id "another"`, func(s *server, t *testing.T) { s.store(t, 3, right(2), anotherID) }, false},
		"null body":        {"the body is", func(s *server, t *testing.T) { s.store(t, 3, right(2), nil) }, true},
		"subject": {"want " + mapped(subject(2)), func(s *server, t *testing.T) {
			s.store(t, 3, right(2), func(m *nats.Msg) { m.Subject = mapped(subject(0)) })
		}, false},
		"nobody's": {"is for no input", func(s *server, t *testing.T) {
			s.store(t, 3, right(2), func(m *nats.Msg) { m.Header.Del(results.HeaderSequence) })
		}, false},
		"dead letter": {"became a dead letter: too_large", func(s *server, t *testing.T) {
			s.store(t, 3, right(2), func(m *nats.Msg) {
				m.Subject = deadPrefix + ".3"
				m.Header.Set(results.HeaderReason, "too_large")
			})
		}, false},
		"marker": {"commit markers of 1 partitions, want none", func(s *server, t *testing.T) {
			s.store(t, 3, right(2), nil)
			s.store(t, 3, nil, func(m *nats.Msg) {
				m.Subject, m.Header = topology.CommitSubject(commitPrefix, s.out, s.in, consumer, 0), nil
			})
		}, false},
		"another header's id": {"in Millrace-Id", func(s *server, t *testing.T) {
			s.store(t, 3, right(2), func(m *nats.Msg) { m.Header.Set(commit.HeaderID, "1") })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestServer(t)
			want := expected{load: l, stream: s.in, ops: ops}
			s.store(t, 1, right(0), nil)
			s.store(t, 2, right(1), nil)
			c.third(s, t)
			if c.null {
				want.ops = nil
			}
			err := s.check(t.Context(), want)
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), "WRONG RESULT") || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the error is %v, want it to say %q", err, c.want)
			}
		})
	}
}

// faulty is a kernel with one wrong bit in the last result.
type faulty struct{ device.HostKernel }

type faultyBound struct{ device.BoundHostKernel }

func (f faulty) Bind(params []byte) (device.BoundHostKernel, error) {
	k, err := f.HostKernel.Bind(params)
	return faultyBound{k}, err
}

func (f faultyBound) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	err := f.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
	needs := f.Needs(device.Shape{Rows: len(offsets) - 1, Bytes: len(rows)})
	result[needs.Result-1] ^= 1
	return err
}

// TestWrongResultEndsTheRun checks that a wrong result of the device ends the run, and that the error names the row.
func TestWrongResultEndsTheRun(t *testing.T) {
	t.Parallel()
	var kernels []device.HostKernel
	for _, k := range operator.HostKernels() {
		if k.Name() == "crc32c" {
			k = faulty{k}
		}
		kernels = append(kernels, k)
	}
	for _, name := range []string{rowShared, rowExclusive, rowFramesShared, rowFramesExclusive} {
		o := tiny(openHost(t, kernels...), newBench(t, Options{}))
		o.Rows = []string{name}
		_, err := bench.Run(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "nats/"+name+" on host: WRONG RESULT") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// TestStuckRoundEnds checks that a round with unacknowledged inputs ends when its context does.
func TestStuckRoundEnds(t *testing.T) {
	s := newTestServer(t)
	l := load{3, unframed{7, 100}}
	if err := s.fill(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.waitForAcks(ctx); err == nil || !strings.Contains(err.Error(), "not every input was acknowledged") {
		t.Errorf("the error is %v", err)
	}
}
