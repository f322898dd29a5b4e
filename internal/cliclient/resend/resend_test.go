package resend

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/cliclient"
)

// TestEachIsSentOnceOverAllRuns uses different selections. The input stream doesn't deduplicate, so only the consumer
// tracks the sent dead letters.
func TestEachIsSentOnceOverAllRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 2500 // needs several requests
	r.letters(n)
	for _, c := range []struct {
		Selection
		sent, left int
	}{
		{Selection{Reasons: []string{"too_large"}, Inputs: []Range{{1, 100}, {200, 200}}}, 50, n - 50},
		{Selection{Reasons: []string{"operator_error"}, Subject: "in.log"}, 416, n - 50 - 416},
		{Selection{Subject: "in.other"}, 0, n - 50 - 416},
		{Selection{Reasons: []string{"too_large", "device_fault"}}, 1200, n - 50 - 416 - 1200},
		{Selection{}, n - 50 - 416 - 1200, 0},
		{Selection{}, 0, 0},
	} {
		dry := r.resender(c.Selection)
		dry.DryRun = true
		for _, report := range []*Report{r.run(dry), r.run(r.resender(c.Selection))} {
			if total(report.Sent) != c.sent || total(report.Left) != c.left || report.Before+report.Refused+report.Failed+report.Others != 0 {
				t.Errorf("%+v: want %d sent and %d left: %+v", c.Selection, c.sent, c.left, report)
			}
		}
	}
	r.wantOnce(n)
	if info := r.ConsumerInfo("DEAD", durable); info.NumAckPending > 0 || r.Stream("DEAD").CachedInfo().State.Msgs != n {
		t.Errorf("%d dead letters are not acknowledged, but the stream must keep all: %+v", info.NumAckPending, info)
	}
}

// TestADryRunChangesNothing shows that a dry run changes no state, with or without an earlier run.
func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.letters(10)
	for _, want := range []int{10, 5} {
		dry := r.resender(Selection{})
		dry.DryRun = true
		if report := r.run(dry); total(report.Sent) != want || report.Bytes == 0 || len(r.Stored("IN")) != 10-want {
			t.Errorf("%+v", report)
		}
		for _, name := range r.Consumers("DEAD") {
			if name == durable && want == 10 {
				t.Error("the dry run has created the durable consumer")
			}
		}
		if want == 10 {
			r.run(r.resender(Selection{Reasons: []string{"too_large"}}))
		}
	}
	r.run(r.resender(Selection{}))
	r.wantOnce(10)
}

// TestARunThatDiesBetweenPublishAndAcknowledgement shows that the next run publishes with the same id, and the input
// stream drops the duplicate.
func TestARunThatDiesBetweenPublishAndAcknowledgement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.letters(5)
	r.remember(1000)
	dead := &run{Resender: r.resender(Selection{}), report: &Report{}}
	if err := dead.open(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	came, err := dead.queue.fetch(t.Context(), 3, 0)
	if err != nil || len(came) != 3 {
		t.Fatal(came, err)
	}
	for _, m := range came[:2] {
		input, err := dead.input(r.Ctx(), sequenceOf(m))
		if err == nil {
			_, err = dead.publish(r.Ctx(), input)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	dead.Conn.Close()
	report := r.run(r.resender(Selection{}))
	if report.Before != 2 || total(report.Sent) != 3 || report.Others != 0 {
		t.Errorf("%+v, want 2 that were sent before and 3 others", report)
	}
	if len(r.notes) == 0 || !strings.Contains(r.notes[0], "when it was killed: waiting up to") {
		t.Errorf("the run doesn't say why it waits: %q", r.notes)
	}
	r.wantOnce(5)
}

// TestRunsAtTheSameTime uses different selections. Each dead letter is sent once, and later runs miss none.
func TestRunsAtTheSameTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 3000
	r.letters(n)
	r.remember(10_000)
	var all sync.WaitGroup
	for _, s := range []Selection{{Reasons: []string{"too_large"}}, {Subject: "in.log"}, {}, {Reasons: []string{"operator_error"}}} {
		all.Go(func() {
			if _, err := r.resender(s).Run(r.Ctx()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	r.run(r.resender(Selection{}))
	r.wantOnce(n)
}

// TestOnlyWhatWasStoredBefore shows that a run ends although each input that it sends becomes a dead letter again immediately.
func TestOnlyWhatWasStoredBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.letters(40)
	s := r.resender(Selection{})
	s.Each = func(e Entry) {
		r.publish(letter(int(e.Letter)+40, e.Header.Get(client.HeaderReason), fmt.Sprint("payload ", e.Letter+40)))
	}
	if report := r.run(s); total(report.Sent) != 40 || total(report.Left) != 0 {
		t.Errorf("%+v", report)
	}
	if report := r.run(r.resender(Selection{})); total(report.Sent) != 40 {
		t.Errorf("%+v", report)
	}
	r.wantOnce(80)
}

// TestWhatIsLeftOut shows that a run sends a dead letter whose payload is in a separate message. In each run, it
// refuses a dead letter from which it can't restore the input, and continues.
func TestWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	apart := r.publish(&nats.Msg{Subject: "dead.web", Data: []byte("payload 1")})
	omitted := func(sequence int, what string, headers ...string) *nats.Msg {
		return letter(sequence, "too_large", "", append(headers, client.HeaderOmitted, what)...)
	}
	r.publish(
		omitted(1, "payload", client.HeaderPayloadSequence, fmt.Sprint(apart), "X-Mine", "value"),
		omitted(2, "payload", client.HeaderPayloadBytes, "9"),
		omitted(3, "record", client.HeaderPayloadSequence, fmt.Sprint(apart), client.HeaderRecord, "3"),
		omitted(4, "headers"),
		omitted(5, "payload,headers", client.HeaderPayloadSequence, fmt.Sprint(apart)),
		omitted(6, "payload", client.HeaderPayloadSequence, "4711"),
		letter(7, "max_deliver", "payload 2"),
		&nats.Msg{Subject: "dead.web", Header: nats.Header{"Nats-Marker-Reason": {"MaxAge"}}},
	)
	for i := range 2 {
		r.entries = nil
		report := r.run(r.resender(Selection{}))
		if report.Refused != 5 || total(report.Sent) != 2-2*i || report.Others != 0 {
			t.Errorf("run %d: %+v", i, report)
		}
		said := map[string]string{}
		for _, e := range r.entries {
			if e.Err != nil {
				said[e.Header.Get(client.HeaderSequence)] = e.Err.Error()
			}
		}
		for sequence, want := range map[string]string{
			"2": "its payload is stored nowhere (Millrace-Omitted: payload): copy the input while its stream still has it: nats stream get IN 2",
			"3": "its record fits no message", "4": "publish its payload with the headers that the worker needs: nats stream get DEAD 5 has the payload",
			"5": "nats stream get DEAD 1 has the payload", "6": "its payload was message 4711 of the stream, which has removed it",
		} {
			if !strings.Contains(said[sequence], want) {
				t.Errorf("the dead letter of input %s: %q, want %q", sequence, said[sequence], want)
			}
		}
	}
	r.wantOnce(2)
	for _, m := range r.Stored("IN") {
		if string(m.Data) == "payload 1" && m.Header.Get("X-Mine") != "value" {
			t.Errorf("the headers are %v", m.Header)
		}
	}
	if info := r.ConsumerInfo("DEAD", durable); info.NumAckPending != 5 {
		t.Errorf("%d are not acknowledged, want those that were refused: payloads and delete markers aren't dead letters", info.NumAckPending)
	}
}

// TestLargeInputsAreRefused shows that a refused input doesn't block later ones.
func TestLargeInputsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.StreamConfig("IN")
	c.MaxMsgSize = 200
	if _, err := r.JS.UpdateStream(r.Ctx(), c); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxFailures {
		r.publish(letter(i+2, "too_large", strings.Repeat("x", 200)))
	}
	r.publish(letter(1, "too_large", "payload 1"))
	if report := r.run(r.resender(Selection{})); report.Refused != 2*maxFailures || report.Sent["too_large"] != 1 {
		t.Errorf("%+v", report)
	}
	r.wantOnce(1)
}

// TestAnotherDeploymentsDeadLettersAreLeft shows that a run doesn't send dead letters of another input stream.
func TestAnotherDeploymentsDeadLettersAreLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := letter(2, "too_large", "other")
	other.Header.Set(client.HeaderStream, "OTHER")
	r.publish(letter(1, "too_large", "payload 1"), other)
	if report := r.run(r.resender(Selection{})); report.Sent["too_large"] != 1 || report.Left["too_large"] != 1 {
		t.Errorf("%+v", report)
	}
	r.wantOnce(1)
}

// TestARunThatCanNotGoOn shows that the error contains advice, and later runs can send all dead letters.
func TestARunThatCanNotGoOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(r *rig)
		want    string
	}{
		"no input stream": {func(r *rig) { r.Delete("IN") }, cliclient.ErrGivenUp.Error()},
		"full": {func(r *rig) {
			c := r.StreamConfig("IN")
			c.MaxMsgs, c.Discard = 1, jetstream.DiscardNew
			if _, err := r.JS.UpdateStream(r.Ctx(), c); err != nil {
				r.Fatal(err)
			}
		}, cliclient.ErrGivenUp.Error()},
		"full consumer": {func(r *rig) { r.remember(10) },
			"10 dead letters that no run has sent fill the consumer worker-retry, so the server delivers no others: send some of them, or raise its limit: nats consumer edit DEAD worker-retry --max-pending NUMBER"},
		"another consumer": {func(r *rig) {
			if _, err := r.JS.CreateConsumer(r.Ctx(), "DEAD", jetstream.ConsumerConfig{Durable: durable, AckPolicy: jetstream.AckAllPolicy}); err != nil {
				r.Fatal(err)
			}
		}, "consumer worker-retry of stream DEAD isn't one of worker retry"},
		"interest": {func(r *rig) {
			r.Delete("DEAD")
			r.Create(jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}, Retention: jetstream.InterestPolicy})
		}, "stream DEAD has the retention Interest, which removes a dead letter when it is acknowledged"},
		"no dead letters": {func(r *rig) { r.Delete("DEAD") }, "no stream stores dead letters, on dead.>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.letters(30)
			c.prepare(r)
			s := r.resender(Selection{})
			if name == "full consumer" {
				s.Select.Subject = "in.other"
			}
			report, err := s.Run(r.Ctx())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("the error is %v, want %q: %+v", err, c.want, report)
			}
			if !errors.Is(err, cliclient.ErrGivenUp) {
				return
			}
			if name != "no input stream" {
				r.Delete("IN")
			}
			r.Create(jetstream.StreamConfig{Name: "IN", Subjects: []string{"in.>"}})
			sent := total(report.Sent)
			if again := r.run(r.resender(Selection{})); total(again.Sent) != 30-sent {
				t.Errorf("%d, and then %+v", sent, again)
			}
		})
	}
}

// TestTheRateBoundsARequest shows that at a low rate, a request fetches only dead letters that it can send before AckWait passes.
func TestTheRateBoundsARequest(t *testing.T) {
	t.Parallel()
	for rate, want := range map[float64]int{0: atOnce, MinRate: 1, 1: 6, 10: 60, 1e6: atOnce} {
		u := &run{Resender: &Resender{Rate: rate}, queue: &queue{wait: time.Minute}}
		if got := u.chunk(); got != want {
			t.Errorf("%v a second: %d, want %d", rate, got, want)
		}
	}
	r := newRig(t)
	r.letters(3)
	s, began := r.resender(Selection{}), time.Now()
	s.Rate = 20
	if r.run(s); time.Since(began) < 100*time.Millisecond {
		t.Errorf("3 dead letters at 20 a second took %v", time.Since(began))
	}
}
