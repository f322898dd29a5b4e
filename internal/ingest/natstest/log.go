// Package natstest has test tools that several packages share: servers whose configuration can change, a proxy that fails on
// request, raw clients and a log.
//
// The tests of package ingest, of its subpackages and of the fault injection use it. Start reading at Plain.
package natstest

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// RawInput is a message whose header is given as protocol bytes. Clients don't write arbitrary header bytes,
// but servers store them.
type RawInput struct {
	Subject string
	Header  string // includes the first line and the final empty line, if any; empty for no headers
	Payload []byte
}

// PublishRaw publishes messages unchanged to the server at address. It fails the test if the server refuses a message.
func PublishRaw(t testing.TB, address string, inputs ...RawInput) {
	t.Helper()
	conn := Must(net.DialTimeout("tcp", strings.TrimPrefix(address, "nats://"), Patience))(t)
	defer func() { _ = conn.Close() }() // the server has responded
	OK(t, conn.SetDeadline(time.Now().Add(Patience)))
	text := []byte(`CONNECT {"verbose":false,"pedantic":false,"headers":true,"protocol":1}` + "\r\n")
	for _, in := range inputs {
		if in.Header == "" {
			text = fmt.Appendf(text, "PUB %s %d\r\n", in.Subject, len(in.Payload))
		} else {
			text = fmt.Appendf(text, "HPUB %s %d %d\r\n%s", in.Subject, len(in.Header), len(in.Header)+len(in.Payload), in.Header)
		}
		text = append(append(text, in.Payload...), "\r\n"...)
	}
	Must(conn.Write(append(text, "PING\r\n"...)))(t)
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		switch {
		case strings.HasPrefix(line, "PONG"):
			return
		case err != nil, strings.HasPrefix(line, "-ERR"):
			t.Fatalf("publishing raw messages: %q, %v", line, err)
		}
	}
}

// The pause between two checks of Until grows from firstLook to lastLook, because most conditions query a server, which takes
// processor time.
const (
	firstLook = 2 * time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// Until returns once cond is true, and fails the test if cond isn't true within Patience. Use it for lasting states without a
// notification. It can miss a state that lasts only milliseconds.
func Until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	over := time.After(Patience)
	for wait := firstLook; !cond(); wait = min(wait*5/4, lastLook) {
		select {
		case <-time.After(wait):
		case <-over:
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Must returns a function that returns v, or fails the test if err isn't nil. For example, Must(js.Stream(ctx, "IN"))(t) is the
// stream.
func Must[T any](v T, err error) func(t Failer) T {
	return func(t Failer) T {
		t.Helper()
		OK(t, err)
		return v
	}
}

// Failer is a testing.TB or a Rig.
type Failer interface {
	Helper()
	Fatal(args ...any)
}

// OK fails the test if err isn't nil.
func OK(t Failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Patience is the time limit for an event that a test requires. A passing test never waits that long. The limit is long because the
// machine may be busy, and the race detector is slow.
const Patience = 3 * time.Minute

// Log writes log lines to the test's log while the test runs, and keeps them for Has, Count and Await.
type Log struct {
	mu   sync.Mutex
	t    testing.TB // nil once the test is over
	text strings.Builder
}

// NewLog returns a log for t.
func NewLog(t testing.TB) *Log {
	l := &Log{t: t}
	t.Cleanup(func() {
		l.mu.Lock()
		l.t = nil
		l.mu.Unlock()
	})
	return l
}

// Logger returns a logger that writes to l.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if l.t != nil {
		l.t.Logf("%s", p)
	}
	return len(p), nil
}

// Has reports whether text was logged.
func (l *Log) Has(text string) bool { return l.Count(text) > 0 }

// Count returns the number of times that text was logged.
func (l *Log) Count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// Await waits until text is logged, and fails the test after Patience.
func (l *Log) Await(t testing.TB, text string) {
	t.Helper()
	Until(t, fmt.Sprintf("the log has %q", text), func() bool { return l.Has(text) })
}
