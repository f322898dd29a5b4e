package cliclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// payloads returns a channel with n payloads: "0", "1" and so on.
func payloads(n int) <-chan Payload {
	all := make(chan Payload, n)
	for i := range n {
		all <- Payload{Place: fmt.Sprint("file:", i+1), Data: fmt.Append(nil, i)}
	}
	close(all)
	return all
}

func TestSendStoresEveryPayloadInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 3 * windowMessages
	s := &Sender{Conn: r.NC, Stream: "IN", Subject: "in.web", Header: nats.Header{"Kind": {"a", "b"}}}
	report, err := s.Send(r.Ctx(), payloads(n))
	if err != nil || report.Err != nil || report.Stored != n || report.Failed != 0 || report.First != 1 || report.Last != n {
		t.Fatalf("%+v, %v", report, err)
	}
	bytes := int64(0)
	for i, m := range r.Stored("IN") {
		bytes += int64(len(m.Data))
		if string(m.Data) != fmt.Sprint(i) || m.Subject != "in.web" || strings.Join(m.Header["Kind"], " ") != "a b" {
			t.Fatalf("message %d is %q on %s with %v", i+1, m.Data, m.Subject, m.Header)
		}
	}
	if payloads, stored := s.Stored(); report.Bytes != bytes || payloads != n || stored != bytes {
		t.Errorf("%d payloads of %d bytes, want %d", payloads, stored, bytes)
	}
	if report, err = s.Send(r.Ctx(), payloads(1)); err != nil || report.Stored != 1 || report.First != n+1 {
		t.Errorf("the same payload again: %+v, %v", report, err)
	}
}

func TestSendBoundsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all := make(chan Payload)
	go func() {
		defer close(all)
		for range 30 {
			all <- Payload{Place: "file", Data: make([]byte, 3<<20)} // three windows in total
		}
	}()
	report, err := (&Sender{Conn: r.NC, Stream: "IN", Subject: "in.web"}).Send(r.Ctx(), all)
	if err != nil || report.Stored != 30 || report.Bytes != 90<<20 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestSendReportsFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input    jetstream.StreamConfig
		subject  string
		header   nats.Header
		payloads []Payload
		stored   int64
		want     []string
		gaveUp   bool
	}{
		"too large, with its headers": {header: nats.Header{"Long": {strings.Repeat("x", 1000)}},
			payloads: []Payload{{Place: "a", Data: []byte("1")}, {Place: "b", Data: make([]byte, 4<<20-500)}, {Place: "c", Data: []byte("2")}}, stored: 2,
			want: []string{"b: larger than the server's max_payload of 4194304 bytes, with its headers"}},
		"unreadable": {payloads: []Payload{{Place: "a", Err: errors.New("no such file")}, {Place: "b", Data: []byte("1")}}, stored: 1, want: []string{"a: no such file"}},
		"larger than the stream takes": {input: jetstream.StreamConfig{MaxMsgSize: 500}, payloads: []Payload{{Place: "a", Data: make([]byte, 600)}, {Place: "b", Data: []byte("1")}}, stored: 1,
			want: []string{"a: nats: API error: code=400 err_code=10054 description=message size exceeds maximum allowed"}},
		"no stream": {subject: "elsewhere", payloads: []Payload{{Place: "a", Data: []byte("1")}}, gaveUp: true,
			want: []string{"a: no stream stores elsewhere: start a worker with MILLRACE_PROVISION=true, which creates the stream IN, or check --subject"}},
		"another stream": {subject: "out.web", payloads: []Payload{{Place: "a", Data: []byte("1")}}, gaveUp: true,
			want: []string{"a: out.web is a subject of another stream than IN, which the worker reads: set MILLRACE_STREAM, or check --subject"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c.input.Name, c.input.Subjects = "IN", []string{"in.>"}
			r.Create(c.input)
			all := make(chan Payload, len(c.payloads))
			for _, p := range c.payloads {
				all <- p
			}
			close(all)
			s := &Sender{Conn: r.NC, Stream: "IN", Subject: cmp.Or(c.subject, "in.web"), Header: c.header}
			report, err := s.Send(r.Ctx(), all)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, err := range report.Failures {
				got = append(got, err.Error())
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) || report.Stored != c.stored || report.Failed != int64(len(c.want)) || errors.Is(report.Err, ErrGivenUp) != c.gaveUp {
				t.Errorf("%+v, want %q", report, c.want)
			}
			if n := len(r.Stored("IN")); int64(n) != c.stored {
				t.Errorf("%d messages are stored", n)
			}
		})
	}
}

// TestSendGivesUpOnAFullStream shows that Send gives up although each failure could be specific to one payload.
func TestSendGivesUpOnAFullStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit  jetstream.StreamConfig
		stored int64
		advice string
	}{
		"messages": {jetstream.StreamConfig{MaxMsgs: 5}, 5, "nats stream edit IN --max-msgs NUMBER: nats: API error: code=503 err_code=10077 description=maximum messages exceeded"},
		"bytes":    {jetstream.StreamConfig{MaxBytes: 150 << 10}, 1, "nats stream edit IN --max-bytes SIZE (for a stream that a worker will create: MILLRACE_STREAM_MAX_BYTES): "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c.limit.Name, c.limit.Subjects, c.limit.Discard = "IN", []string{"in.>"}, jetstream.DiscardNew
			r.Create(c.limit)
			endless := make(chan Payload)
			ctx := r.Ctx()
			go func() {
				for {
					select {
					case endless <- Payload{Place: "file", Data: make([]byte, 100<<10)}:
					case <-ctx.Done():
						return
					}
				}
			}()
			report, err := (&Sender{Conn: r.NC, Stream: "IN", Subject: "in.web"}).Send(ctx, endless)
			if err != nil || !errors.Is(report.Err, ErrGivenUp) || report.Stored != c.stored || report.Failed < maxFailures || len(report.Failures) != maxFailures {
				t.Fatalf("%+v, %v", report, err)
			}
			want := "file: the stream IN is full: wait until workers have processed payloads, or raise its limit: " + c.advice
			if got := report.Failures[0].Error(); !strings.Contains(got, want) {
				t.Errorf("the error is %q, want %q", got, want)
			}
		})
	}
}

// TestPayloadsThatCannotBeSentDoNotEndSend has more bad payloads in a row than the number of server failures that ends
// Send.
func TestPayloadsThatCannotBeSentDoNotEndSend(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var some []Payload
	for range maxFailures {
		some = append(some, Payload{Place: "unreadable", Err: errors.New("no such file")}, Payload{Place: "long", Data: make([]byte, 4<<20)})
	}
	some = append(some, Payload{Place: "good", Data: []byte("1")})
	all := make(chan Payload, len(some))
	for _, p := range some {
		all <- p
	}
	close(all)
	s := &Sender{Conn: r.NC, Stream: "IN", Subject: "in.web", Header: nats.Header{"Kind": {"a"}}}
	report, err := s.Send(r.Ctx(), all)
	if err != nil || report.Err != nil || report.Stored != 1 || report.Failed != 2*maxFailures || len(report.Failures) != maxFailures {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestSendOutlivesACutConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := r.Proxy()
	const n = 5000
	some := make(chan Payload)
	go func() {
		defer close(some)
		for i := range n {
			if i == 1000 || i == 3000 {
				proxy.Cut()
			}
			some <- Payload{Place: fmt.Sprint("file:", i), Data: fmt.Append(nil, i)}
		}
	}()
	report, err := (&Sender{Conn: r.connect(proxy.URL()), Stream: "IN", Subject: "in.web"}).Send(r.Ctx(), some)
	if err != nil || report.Stored != n || report.Failed != 0 || report.Err != nil {
		t.Fatalf("%+v, %v", report, err)
	}
	seen := map[string]bool{}
	for _, m := range r.Stored("IN") {
		if seen[string(m.Data)] {
			t.Errorf("%s is stored twice", m.Data)
		}
		seen[string(m.Data)] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d payloads are stored", len(seen), n)
	}
}

func TestInterruptedSendReportsWhatIsStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, interrupt := context.WithCancel(r.Ctx())
	idle := make(chan Payload, 3)
	for i := range 3 {
		idle <- Payload{Place: fmt.Sprint(i), Data: []byte("x")}
	}
	s := &Sender{Conn: r.NC, Stream: "IN", Subject: "in.web"}
	go func() {
		r.Until("three are stored", func() bool { n, _ := s.Stored(); return n == 3 })
		interrupt()
	}()
	report, err := s.Send(ctx, idle)
	if err != nil || report.Stored != 3 || !errors.Is(report.Err, context.Canceled) {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestInterruptedSendDoesNotWaitForASilentServer interrupts Send before any payload has a reply.
func TestInterruptedSendDoesNotWaitForASilentServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, interrupt := context.WithCancel(r.Ctx())
	received := make(chan *nats.Msg, 3)
	if _, err := r.NC.ChanSubscribe("silent", received); err != nil { // the subject has no stream, and this subscriber sends no reply
		t.Fatal(err)
	}
	waiting := make(chan Payload, 3)
	for i := range 3 {
		waiting <- Payload{Place: fmt.Sprint("file:", i), Data: []byte("x")}
	}
	go func() {
		for range 3 {
			<-received
		}
		interrupt()
	}()
	report, err := (&Sender{Conn: r.NC, Stream: "IN", Subject: "silent"}).Send(ctx, waiting)
	if err != nil || report.Stored != 0 || report.Failed != 3 || !errors.Is(report.Err, context.Canceled) {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, err := range report.Failures {
		if !errors.Is(err, ErrUnanswered) {
			t.Errorf("%v, want %v", err, ErrUnanswered)
		}
	}
}

// TestSendGivesUpWithoutAServer shows that Send gives up on a whole window within the timeout of one payload. Some
// payloads are stored, because the server disappears after the window has moved on.
func TestSendGivesUpWithoutAServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := r.Proxy()
	s := &Sender{Conn: r.connect(proxy.URL()), Stream: "IN", Subject: "in.web", outage: 500 * time.Millisecond}
	some := make(chan Payload)
	ctx := r.Ctx()
	go func() {
		for i := 0; ; i++ {
			if i == windowMessages+100 {
				proxy.Refuse(true)
			}
			select {
			case some <- Payload{Place: fmt.Sprint("file:", i), Data: []byte("x")}:
			case <-ctx.Done():
				return
			}
		}
	}()
	report, err := s.Send(ctx, some)
	if err != nil || !errors.Is(report.Err, ErrGivenUp) || report.Stored == 0 || report.Failed == 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if n := int64(len(r.Stored("IN"))); n < report.Stored || n > report.Stored+report.Failed {
		t.Errorf("%d messages are stored, and the report has %d stored and %d failed", n, report.Stored, report.Failed)
	}
}
