package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	millrace "millrace/client"
	"millrace/internal/cliclient/audit"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
)

// auditRig is a server with the streams that a worker provisions by default in one delivery mode. Results of large
// frames have several parts.
type auditRig struct {
	*testing.T
	js  jetstream.JetStream
	env []string

	exclusive bool
}

func newAuditRig(t *testing.T, s *embedded.Server, mode string) *auditRig {
	t.Helper()
	r := &auditRig{t, client(t, s), []string{
		"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_DELIVERY=" + mode, "MILLRACE_OPERATORS=crc32c", "MILLRACE_FRAMING=auto",
		"MILLRACE_DECOMPRESS=auto",
	}, mode == "exclusive"}
	p := r.work()
	p.terminate()
	c := r.stream("RESULTS").CachedInfo().Config
	c.MaxMsgSize = 64 << 10
	if _, err := r.js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *auditRig) work() *process {
	r.Helper()
	p := start(r.T, r.env)
	p.await("working")
	return p
}

func (r *auditRig) stream(name string) jetstream.Stream {
	r.Helper()
	s, err := r.js.Stream(r.Context(), name)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func (r *auditRig) publish(subject string, body []byte, h nats.Header) uint64 {
	r.Helper()
	ack, err := r.js.PublishMsg(r.Context(), &nats.Msg{Subject: subject, Data: body, Header: h})
	if err != nil {
		r.Fatal(err)
	}
	return ack.Sequence
}

// small stores n inputs on several subjects.
func (r *auditRig) small(n int) {
	r.Helper()
	for i := range n {
		r.publish(fmt.Sprint("ingest.web.", i%7), fmt.Append(nil, "payload ", i), nil)
	}
}

func (r *auditRig) remove(stream string, sequence uint64) {
	r.Helper()
	if err := r.stream(stream).DeleteMsg(r.Context(), sequence); err != nil {
		r.Fatal(err)
	}
}

// results returns the messages of an input's result.
func (r *auditRig) results(input uint64) (all []*jetstream.RawStreamMsg) {
	r.Helper()
	s := r.stream("RESULTS")
	for at := uint64(1); at <= s.CachedInfo().State.LastSeq; at++ {
		m, err := s.GetMsg(r.Context(), at)
		if err == nil && m.Header.Get(millrace.HeaderSequence) == strconv.FormatUint(input, 10) {
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		r.Fatalf("input %d has no result", input)
	}
	return all
}

// again stores a duplicate of a result's message.
func (r *auditRig) again(m *jetstream.RawStreamMsg) {
	r.Helper()
	h := nats.Header{millrace.HeaderID: {m.Header.Get(jetstream.MsgIDHeader)}}
	for key, values := range m.Header {
		if !strings.HasPrefix(key, "Nats-") {
			h[key] = values
		}
	}
	r.publish(m.Subject, m.Data, h)
}

// settled waits until all inputs are settled and removed.
func (r *auditRig) settled() {
	r.Helper()
	natstest.Until(r.T, "processed inputs are removed", func() bool { return streamMessages(r.T, r.js, "INGEST") == 0 })
}

// command runs `worker audit` and returns its report.
func (r *auditRig) command(code int, args ...string) (report audit.Report) {
	r.Helper()
	got := call(r.T, r.env, append([]string{"audit", "--json"}, args...)...)
	got.want(r.T, code)
	if err := json.Unmarshal([]byte(got.out), &report); err != nil {
		r.Fatalf("%v: %s%s", err, got.out, got.errors)
	}
	return report
}

// audit runs the audit of `worker audit` in this process.
func (r *auditRig) audit() audit.Report {
	r.Helper()
	a := audit.Auditor{JS: r.js, Limit: defaultFindings, Topology: topology.Topology{
		Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace", ResultStream: "RESULTS", ResultPrefix: "results",
		DeadLetterPrefix: "deadletter", CommitPrefix: "commits", Exclusive: r.exclusive, Partitions: 8,
	}}
	report, err := a.Run(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return *report
}

// want compares the report's findings with findings, a map from sequence to kind. Each finding has a single input.
func (r *auditRig) want(report audit.Report, findings map[uint64]audit.Kind) {
	r.Helper()
	got := map[uint64]audit.Kind{}
	for _, f := range report.Findings {
		if f.First != f.Last || got[f.First] != "" {
			r.Errorf("unexpected: %v", f)
		}
		got[f.First] = f.Kind
	}
	if fmt.Sprint(got) != fmt.Sprint(findings) || report.Wrong() != uint64(len(findings)) || len(report.Unknown) > 0 {
		r.Errorf("got %v, want %v\n%+v", got, findings, report)
	}
}

// TestAuditFindsWhatIsInjected audits streams of a worker before and after each injected fault.
func TestAuditFindsWhatIsInjected(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newAuditRig(t, serve(t), mode)
			worker := r.work()
			r.small(100)
			r.publish("ingest.poor", []byte("not compressed"), nats.Header{"Content-Encoding": {"zstd"}})
			frame := bytes.Repeat([]byte("a record\n"), 5000)
			first := r.publish("ingest.frame.a", frame, nats.Header{"Content-Type": {millrace.TypeNDJSON}})
			second := r.publish("ingest.frame.b", frame, nats.Header{"Content-Type": {millrace.TypeNDJSON}})
			r.settled()
			began := time.Now()
			report := r.command(exitDone)
			r.want(report, map[uint64]audit.Kind{})
			if report.Results != 102 || report.DeadLetters != 1 || report.Pending != 0 || len(report.Notes) > 0 && r.exclusive {
				t.Errorf("%+v", report)
			}
			worker.terminate()
			r.small(20)
			if report = r.audit(); report.Pending != 20 || report.Last != 123 {
				t.Errorf("20 inputs are pending: %+v", report)
			}

			parts := r.results(first)
			if len(parts) < 3 {
				t.Fatalf("the frame's result has %d parts, want some", len(parts))
			}
			want := map[uint64]audit.Kind{}
			inject := func(input uint64, kind audit.Kind, fault func()) {
				t.Helper()
				fault()
				want[input] = kind
				r.want(r.audit(), want)
			}
			inject(110, audit.Missing, func() { r.remove("INGEST", 110) })
			inject(31, audit.Missing, func() { r.remove("RESULTS", r.results(31)[0].Sequence) })
			inject(40, audit.Double, func() { r.again(r.results(40)[0]) })
			inject(first, audit.Incomplete, func() { r.remove("RESULTS", parts[1].Sequence) })
			last := r.results(second)
			inject(second, audit.Missing, func() { r.remove("RESULTS", last[len(last)-1].Sequence) })
			inject(101, audit.Missing, func() { r.remove("RESULTS_DEADLETTER", r.letter(101)) })
			if r.exclusive {
				want[57] = audit.Disorder           // now, the result of input 57 also follows later results
				inject(50, audit.Disorder, func() { // same subject as input 57
					a, b := r.results(50)[0], r.results(57)[0]
					r.remove("RESULTS", a.Sequence)
					r.remove("RESULTS", b.Sequence)
					r.again(b)
					r.again(a)
				})
			}
			r.restricted(want, began)
		})
	}
}

// letter returns the sequence of an input's dead letter.
func (r *auditRig) letter(input uint64) uint64 {
	r.Helper()
	s := r.stream("RESULTS_DEADLETTER")
	for at := uint64(1); at <= s.CachedInfo().State.LastSeq; at++ {
		if m, err := s.GetMsg(r.Context(), at); err == nil && m.Header.Get(millrace.HeaderSequence) == strconv.FormatUint(input, 10) {
			return at
		}
	}
	r.Fatalf("input %d has no dead letter", input)
	return 0
}

// restricted audits only some of the inputs.
func (r *auditRig) restricted(want map[uint64]audit.Kind, since time.Time) {
	r.Helper()
	some := map[uint64]audit.Kind{40: want[40]}
	r.want(r.command(exitFailed, "--from", "35", "--to", "45"), some)
	report := r.command(exitFailed, "--since", since.Format(time.RFC3339Nano))
	if r.want(report, map[uint64]audit.Kind{110: want[110]}); report.First != 104 || report.Last != 123 {
		r.Errorf("the inputs since then are 104 to 123: %+v", report)
	}
	report = r.command(exitFailed, "--until", since.Format(time.RFC3339Nano), "--limit", "1")
	if report.First != 1 || report.Last != 103 || len(report.Findings) != len(audit.Kinds)-map[bool]int{true: 0, false: 1}[want[50] != ""] {
		r.Errorf("the inputs before are 1 to 103: %+v", report)
	}
}

// TestAuditBesideWorkers checks that the audit has no findings while workers and publishers run.
func TestAuditBesideWorkers(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newAuditRig(t, serve(t), mode)
			r.work()
			stopped := make(chan error, 1)
			go func() { stopped <- storm(r.js, auditedStorm) }()
			natstest.Until(t, "an input is stored", func() bool { return r.stream("INGEST").CachedInfo().State.LastSeq > 0 })
			for over := false; !over; {
				select {
				case err := <-stopped:
					if over = true; err != nil {
						t.Error(err)
					}
				default:
				}
				report := r.audit()
				r.want(report, map[uint64]audit.Kind{})
				if n := report.Results + report.Pending; n != report.Inputs() || n == 0 {
					t.Errorf("of %d inputs %d have a result, and %d are pending", report.Inputs(), report.Results, report.Pending)
				}
			}
			r.settled()
			if report := r.audit(); report.Results != report.Inputs() || report.Results != auditedStorm {
				t.Errorf("%+v", report)
			}
		})
	}
}

// auditedStorm is the number of inputs that are published during an audit of their stream.
const auditedStorm = 8000

// storm publishes n inputs as fast as the server accepts them.
func storm(js jetstream.JetStream, n int) error {
	const flight = 1000
	var answers []jetstream.PubAckFuture
	for i := range n {
		answer, err := js.PublishAsync(fmt.Sprint("ingest.storm.", i%16), []byte("some text"))
		if err != nil {
			return err
		}
		if answers = append(answers, answer); len(answers) < flight && i < n-1 {
			continue
		}
		for _, a := range answers {
			select {
			case <-a.Ok():
			case err := <-a.Err():
				return err
			}
		}
		answers = answers[:0]
	}
	return nil
}
