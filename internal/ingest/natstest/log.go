// Package natstest has test tools that several packages share: servers whose configuration can change, a proxy that fails on
// request, raw clients and a log.
//
// The tests of package ingest, of its subpackages and of the fault injection use it. Start reading at Plain.
package natstest

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is the time limit for an event that a test requires. A passing test never waits that long. The limit is long because the
// machine may be busy, and the race detector is slow.
const Patience = 3 * time.Minute

// Log writes log lines to the test's log while the test runs, and keeps them for Has, Count and Await.
type Log struct {
	mu      sync.Mutex
	t       testing.TB // nil once the test is over
	text    strings.Builder
	changed chan struct{}
}

// NewLog returns a log for t.
func NewLog(t testing.TB) *Log {
	l := &Log{t: t, changed: make(chan struct{}, 1)}
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
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return len(p), nil
}

// Has reports whether text was logged.
func (l *Log) Has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// Count returns the number of times that text was logged.
func (l *Log) Count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// Await waits until text is logged, and fails the test after Patience.
func (l *Log) Await(t testing.TB, text string) {
	t.Helper()
	deadline := time.After(Patience)
	for !l.Has(text) {
		select {
		case <-l.changed:
		case <-deadline:
			t.Fatalf("after %v the log has nothing like %q", Patience, text)
		}
	}
}
