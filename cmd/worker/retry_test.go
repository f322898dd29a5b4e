package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	millrace "millrace/client"
	"millrace/internal/ingest/natstest"
)

const deadStream = "RESULTS_DEADLETTER"

// awaitLetters waits until n dead letters are stored and all inputs are settled.
func (r *auditRig) awaitLetters(n uint64) {
	r.Helper()
	natstest.Until(r.T, fmt.Sprint(n, " dead letters are stored"), func() bool { return messagesOn(r.T, r.js, "deadletter.>") == n })
	r.settled()
}

// working runs a worker with the variables in env while do runs.
func (r *auditRig) working(do func(), env ...string) {
	r.Helper()
	p := start(r.T, append(slices.Clone(r.env), env...))
	p.await("working")
	do()
	p.terminate()
}

// inputs returns the stored inputs from the given sequence to the last one.
func (r *auditRig) inputs(from uint64) (all []*jetstream.RawStreamMsg) {
	r.Helper()
	s := r.stream("INGEST")
	for at := from; at <= s.CachedInfo().State.LastSeq; at++ {
		m, err := s.GetMsg(r.Context(), at)
		if err != nil {
			r.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// TestRetryAfterTheCauseIsRemoved makes dead letters of each kind with a failing worker, and resends them to a working
// one.
func TestRetryAfterTheCauseIsRemoved(t *testing.T) {
	t.Parallel()
	folder := entropyFolder(t)
	for _, mode := range []string{"shared", "exclusive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newAuditRig(t, serve(t), mode)
			large, mine := bytes.Repeat([]byte{0, 0xff, '\n'}, 30_000), nats.Header{
				"Content-Type": {"text/plain; charset=latin1"}, "x-lower": {"one", "two"}, "X-Empty": {""}, "Status": {"409"}, "Description": {"a: b"},
			}
			framed := nats.Header{"Content-Type": {millrace.TypeNDJSON}, "X-Mine": {"of the frame"}}
			r.working(func() {
				r.publish("ingest.large", large, mine)
				r.publish("ingest.frame.large", []byte("first\n"+strings.Repeat("x", 70_000)+"\nlast\n"), framed)
				r.publish("ingest.broken", []byte("not compressed"), nats.Header{"Content-Encoding": {"zstd"}})
				r.awaitLetters(3)
			}, "MILLRACE_BATCH_BYTES=64KiB")
			r.working(func() {
				r.publish("ingest.frame.empty", []byte("first\n\nlast\n"), framed)
				r.publish("ingest.empty", nil, mine)
				r.awaitLetters(5)
			}, "MILLRACE_OPERATOR_PATH="+folder, "MILLRACE_OPERATORS=entropy,crc32c")

			dry := call(t, r.env, "retry", "--dry-run")
			dry.want(t, exitDone, "would send 5 dead letters again to stream INGEST", "invalid_encoding 1, operator_error 2, too_large 2",
				"would send dead letter ", "input 2 of INGEST, record 1, ingest.frame.large, too_large, 68.4 KiB", "input 1 of INGEST, ingest.large, too_large, 87.9 KiB")
			if streamMessages(t, r.js, "INGEST") != 0 {
				t.Error("a dry run sent a message")
			}
			if _, err := r.stream(deadStream).Consumer(t.Context(), "millrace-retry"); err == nil {
				t.Error("a dry run created the consumer that tracks sent dead letters")
			}

			call(t, r.env, "retry", "--reason", "too_large").want(t, exitDone, "sent 2 dead letters again", "(too_large 2)", "left 3 dead letters that the flags don't select (invalid_encoding 1, operator_error 2)")
			call(t, r.env, "retry", "--reason", "too_large").want(t, exitDone, "sent 0 dead letters again")
			call(t, r.env, "retry", "--dry-run").want(t, exitDone, "would send 3 dead letters again", "invalid_encoding 1, operator_error 2)")
			call(t, r.env, "retry", "--subject", "ingest.empty").want(t, exitDone, "sent 1 dead letter again", "(operator_error 1)")
			call(t, r.env, "retry", "--sequence", "1,4-4").want(t, exitDone, "sent 1 dead letter again", "(operator_error 1)")
			inputs := r.inputs(6)
			if len(inputs) != 4 {
				t.Fatalf("%d inputs were sent again, want 4", len(inputs))
			}
			of := map[string]string{"large": "1", "frame.large": "2:1", "frame.empty": "4:1", "empty": "5"}
			for _, m := range inputs {
				maps.DeleteFunc(m.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Nats-") })
				_, name, _ := strings.Cut(m.Subject, "ingest.") // a partition precedes it with exclusive delivery
				want, body := mine, large
				switch name {
				case "empty":
					body = nil
				case "frame.large":
					body, want = append([]byte{0, 1, 0x11, 0x70}, strings.Repeat("x", 70_000)...), nats.Header{"Content-Type": {millrace.TypeLength}, "X-Mine": {"of the frame"}}
				case "frame.empty":
					body, want = []byte{0, 0, 0, 0}, nats.Header{"Content-Type": {millrace.TypeLength}, "X-Mine": {"of the frame"}}
				}
				want = maps.Clone(want)
				want[millrace.HeaderRetryOf] = []string{of[name]}
				if fmt.Sprint(m.Header) != fmt.Sprint(want) || !bytes.Equal(m.Data, body) {
					t.Errorf("%s: %d bytes with the headers %v, want %d bytes with %v", m.Subject, len(m.Data), m.Header, len(body), want)
				}
			}
			r.working(func() { r.settled() })
			for _, m := range inputs {
				if got := r.results(m.Sequence); len(got) != 1 || got[0].Header.Get(millrace.HeaderRetryOf) != m.Header.Get(millrace.HeaderRetryOf) ||
					strings.Contains(m.Subject, "frame") && got[0].Header.Get(millrace.HeaderRecords) != "1" {
					t.Errorf("%s: the result is %v", m.Subject, got)
				}
			}
			if report := r.command(exitDone); report.Results != 4+2 || report.DeadLetters != 3 || report.Pending != 0 { // frames have results, too
				t.Errorf("audit: %+v", report)
			}
			if n := messagesOn(t, r.js, "deadletter.>"); n != 5 {
				t.Errorf("%d dead letters are stored, want all 5", n)
			}

			r.working(func() { // the cause remains, so only a later run may resend the new dead letter
				call(t, r.env, "retry").want(t, exitDone, "sent 1 dead letter again", "(invalid_encoding 1)")
				r.awaitLetters(6)
			})
			call(t, r.env, "retry").want(t, exitDone, "sent 1 dead letter again", "(invalid_encoding 1)")
			if report := r.command(exitDone); report.DeadLetters != 4 || report.Pending != 1 {
				t.Errorf("audit: %+v", report)
			}
		})
	}
}

// TestRetryIsUsedWrongly checks that the command reports usage errors before it sends anything.
func TestRetryIsUsedWrongly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	env := []string{"MILLRACE_NATS_URL=" + s.URL()}
	for args, want := range map[string]string{
		"--reason=too-large":  `--reason is "too-large": give one of too_large, max_deliver, operator_error,`,
		"--reason=":           "--reason is empty: give a reason, or leave the flag out",
		"--sequence=":         "--sequence is empty",
		"--sequence=0":        `--sequence is "0": give the sequence of an input, such as 4711, or a range`,
		"--sequence=7-5":      `--sequence is "7-5"`,
		"--sequence=7,x":      `--sequence is "x"`,
		"--subject=results.>": "give the subject of inputs, not that of their results",
		"--subject=":          "--subject is empty",
		"--rate=0.01":         "--rate is 0.01: give at least 0.1 messages a second",
		"--rate=-1":           "--rate is -1",
		"everything":          "takes flags only",
	} {
		call(t, env, "retry", args).want(t, exitUsage, "retry", want)
	}
	call(t, env, "retry").want(t, exitFailed, "no stream stores dead letters, on deadletter.>")
}
