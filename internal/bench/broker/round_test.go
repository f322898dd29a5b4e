package broker

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"millrace/internal/bench"
	"millrace/internal/device"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
)

// newTestPair returns empty streams on a new server.
func newTestPair(t *testing.T, exclusive bool) *pair {
	t.Helper()
	s, err := newServer(t.Context(), Options{Program: []string{os.Args[0], serve}, Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	p, err := s.newPair(t.Context(), kind{exclusive: exclusive}, newName())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// storedAt is the time at which the inputs of these tests were stored.
var storedAt = time.Unix(1_700_000_000, 0)

// store stores a result for an input. change may modify the result first.
func (p *pair) store(t *testing.T, sequence int, body []byte, change func(*nats.Msg)) {
	t.Helper()
	m := &nats.Msg{Subject: mapped(p.subject(sequence - 1)), Data: body, Header: nats.Header{}}
	m.Header.Set(headerContentType, "application/json")
	m.Header.Set(results.HeaderSequence, strconv.Itoa(sequence))
	m.Header.Set(jetstream.MsgIDHeader, p.messageID(uint64(sequence))+strconv.FormatInt(storedAt.UnixNano(), 10))
	if change != nil {
		change(m)
	}
	if _, err := p.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// TestWhatIsWrongIsFound uses three inputs. The first two have correct results.
func TestWhatIsWrongIsFound(t *testing.T) {
	s := newTestPair(t, false).server
	ops := bench.Parse("crc32c")
	l := load{content: newContent(single(100), 7), n: 3, every: time.Second}
	right := func(i int) []byte {
		return operator.JSON.Append(nil, ops, 100, [][]byte{ops[0].AppendReference(nil, l.message(i))})
	}
	setID := func(id string) func(*nats.Msg) {
		return func(m *nats.Msg) { m.Header.Set(jetstream.MsgIDHeader, id) }
	}
	for name, c := range map[string]struct {
		want  string
		third func(p *pair)
		null  bool
	}{
		"nothing is wrong": {"", func(p *pair) { p.store(t, 3, right(2), nil) }, false},
		"missing":          {"holds 2 results for 3 inputs", func(*pair) {}, false},
		"two":              {"input 2 has two results", func(p *pair) { p.store(t, 2, right(1), setID("another")) }, false},
		"body":             {"input 3 of 100 bytes", func(p *pair) { p.store(t, 3, right(0), nil) }, false},
		"id":               {`the id "another"`, func(p *pair) { p.store(t, 3, right(2), setID("another")) }, false},
		"id without time":  {"has the id", func(p *pair) { p.store(t, 3, right(2), setID(p.messageID(3))) }, false},
		"null body":        {"byte 23 differs", func(p *pair) { p.store(t, 3, right(2), nil) }, true},
		"subject": {"is on", func(p *pair) {
			p.store(t, 3, right(2), func(m *nats.Msg) { m.Subject = mapped(p.subject(0)) })
		}, false},
		"nobody's": {"is for no input", func(p *pair) {
			p.store(t, 3, right(2), func(m *nats.Msg) { m.Header.Del(results.HeaderSequence) })
		}, false},
		"dead letter": {"became a dead letter: too_large", func(p *pair) {
			p.store(t, 3, right(2), func(m *nats.Msg) {
				m.Subject = deadPrefix + p.name + ".3"
				m.Header.Set(results.HeaderReason, "too_large")
			})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := s.newPair(t.Context(), kind{}, newName())
			if err != nil {
				t.Fatal(err)
			}
			before := time.Since(storedAt)
			p.store(t, 1, right(0), nil)
			p.store(t, 2, right(1), nil)
			c.third(p)
			expected := ops
			if c.null {
				expected = nil
			}
			latencies, err := p.check(t.Context(), expected, l)
			if c.want == "" && (err != nil || len(latencies) != 3 || latencies[0] < before.Seconds()-1 || latencies[0] > time.Since(storedAt).Seconds()+1) {
				t.Errorf("the error is %v, and the latencies are %v", err, latencies)
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

// TestWrongResultEndsTheRun checks that a device's wrong result ends the run, and that the error names the row.
func TestWrongResultEndsTheRun(t *testing.T) {
	t.Parallel()
	var kernels []device.HostKernel
	for _, k := range operator.HostKernels() {
		if k.Name() == "crc32c" {
			k = faulty{k}
		}
		kernels = append(kernels, k)
	}
	o := tiny(openHost(t, kernels...), newBench(t, Options{Memory: true}))
	o.Rows = []string{rowShared}
	_, err := bench.Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "nats/"+rowShared+" on host: WRONG RESULT") {
		t.Errorf("the error is %v", err)
	}
}

// TestPartitionsAreEven checks that each partition has the same number of inputs, at the configured interval. A round with unacknowledged
// inputs must end with its context.
func TestPartitionsAreEven(t *testing.T) {
	const each = 5
	p := newTestPair(t, true)
	l := load{content: newContent(single(10), 7), n: each * partitions, every: time.Millisecond}
	begun := time.Now()
	if err := p.fill(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < time.Duration(l.n-1)*l.every {
		t.Errorf("%d inputs at an interval of %v took %v", l.n, l.every, took)
	}
	inputs, err := p.js.Stream(t.Context(), inStream+p.name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range partitions {
		filter := strconv.Itoa(i) + ".>"
		info, err := inputs.Info(t.Context(), jetstream.WithSubjectFilter(filter))
		if err != nil {
			t.Fatal(err)
		}
		for stored, n := range info.State.Subjects {
			if n != each || published(stored) != inPrefix+p.name+stored[strings.LastIndexByte(stored, '.'):] {
				t.Errorf("partition %d has %d inputs on %s", i, n, stored)
			}
		}
		if len(info.State.Subjects) != 1 {
			t.Errorf("partition %d has the subjects %v, want one", i, info.State.Subjects)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (pairs{p}).waitForAcks(ended); err == nil || !strings.Contains(err.Error(), "not every input was acknowledged") {
		t.Errorf("the error is %v", err)
	}
}

// TestClockStartsBeforeTheFirstDelivery checks that the clock starts before the first delivery, although the start is determined only
// afterwards.
func TestClockStartsBeforeTheFirstDelivery(t *testing.T) {
	p := newTestPair(t, false)
	if err := p.fill(t.Context(), load{content: newContent(single(10), 7), n: 3}); err != nil {
		t.Fatal(err)
	}
	consumer, err := p.js.Consumer(t.Context(), inStream+p.name, p.topology().Consumer)
	if err != nil {
		t.Fatal(err)
	}
	begun, last := now(), moment{}
	var g errgroup.Group
	g.Go(func() (err error) {
		last, err = pairs{p}.beforeFirstDelivery(t.Context(), begun)
		return err
	})
	if _, err := consumer.Next(); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	info, err := consumer.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last.at.Before(begun.at) || last.at.After(*info.Delivered.Last) {
		t.Errorf("the clock starts at %v, which is not from %v to the first delivery at %v", last.at, begun.at, info.Delivered.Last)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (pairs{p}).beforeFirstDelivery(ctx, begun); err == nil {
		t.Error("no error though the context has ended")
	}
}
