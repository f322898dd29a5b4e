// Package loglimit limits the size of a log, so repeated errors neither fill a disk nor hide other messages. Handler limits the repetitions
// of a message. In each interval, it passes the first 10 records of a message. If it drops further records, it logs their number at the end
// of the interval. TruncateAttr limits the length of a text. The command cmd/worker applies both to all its logs.
//
// Start reading at Handler.Handle.
package loglimit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	burst    = 10 // maximum number of records of a message that pass in each interval
	interval = 10 * time.Second

	// maxMessages is the maximum number of messages that have their own limit in an interval. Further messages share one limit per level.
	maxMessages = 256
)

// splitBy is the key of an attribute. Records with the same message but different values of this attribute have separate limits.
// Records about oversized payloads therefore don't suppress a record about a payload that broke the device.
const splitBy = "reason"

// SuppressedKey is the key of an attribute of the record at the end of an interval. Its value is the number of dropped records of
// the message, including this record, which is the last dropped record.
const SuppressedKey = "suppressed"

// OthersText is the message of the record at the end of an interval that dropped records of messages beyond the first
// 256. The attribute "last" holds the message of the last dropped record.
const OthersText = "too many different messages"

// Handler is a slog.Handler that passes a limited number of records to the next handler. It is safe for concurrent use.
type Handler struct {
	next slog.Handler
	*limits
}

// limits holds the state that all handlers of a log share, even if their attributes differ.
type limits struct {
	suppressed func(slog.Level)

	mu     sync.Mutex
	counts map[message]*count // counts of the current interval
	closed bool
}

// message identifies the records that share a limit. A message without a text represents all messages beyond maxMessages.
type message struct {
	level slog.Level
	text  string
	split string // the value of the attribute splitBy
}

// count holds the numbers of passed and dropped records of a message in an interval.
type count struct {
	passed, dropped int
	last            slog.Record  // the last dropped record
	next            slog.Handler // the handler that receives last
}

// New returns a handler that limits the records that next receives. The handler calls suppressed for each dropped
// record. suppressed must not block. Close the handler to log the last counts.
func New(next slog.Handler, suppressed func(slog.Level)) *Handler {
	return &Handler{next: next, limits: &limits{suppressed: suppressed, counts: map[message]*count{}}}
}

// Enabled implements slog.Handler. It returns the result of the next handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler. The new handler shares the limits of h.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{next: h.next.WithAttrs(attrs), limits: h.limits}
}

// WithGroup implements slog.Handler. It shares the limits like WithAttrs.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), limits: h.limits}
}

// Handle implements slog.Handler. It returns no error for a dropped record.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if h.passes(r, h.next) {
		return h.next.Handle(ctx, r)
	}
	h.suppressed(r.Level)
	return nil
}

// passes counts a record and reports whether it passes. The first record starts an interval.
func (l *limits) passes(r slog.Record, next slog.Handler) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return true
	}
	if len(l.counts) == 0 {
		time.AfterFunc(interval, l.endInterval)
	}
	m := message{r.Level, r.Message, splitValue(r)}
	c := l.counts[m]
	if c == nil && len(l.counts) >= maxMessages {
		m = message{level: r.Level}
		c = l.counts[m]
	}
	if c == nil {
		c = &count{}
		l.counts[m] = c
	}
	if c.passed < burst {
		c.passed++
		return true
	}
	c.dropped++
	c.last, c.next = r.Clone(), next
	return false
}

// splitValue returns the value of the record's attribute splitBy.
func splitValue(r slog.Record) (value string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == splitBy {
			value = a.Value.String()
		}
		return a.Key != splitBy
	})
	return value
}

// endInterval ends the current interval. The next record starts a new interval.
func (l *limits) endInterval() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logDropped()
}

// Close ends the current interval and logs its counts. Every record after Close passes.
func (h *Handler) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logDropped()
	h.closed = true
	return nil
}

// logDropped logs the number of dropped records of each message and clears the counts. The caller holds mu.
func (l *limits) logDropped() {
	for m, c := range l.counts {
		if c.dropped == 0 {
			continue
		}
		r := c.last
		if m.text == "" && r.Message != "" {
			r.AddAttrs(slog.String("last", r.Message))
			r.Message = OthersText
		}
		r.AddAttrs(slog.Int(SuppressedKey, c.dropped))
		_ = c.next.Handle(context.Background(), r) // an error of the log itself can't be reported anywhere
	}
	clear(l.counts)
}

// MaxText is the maximum size in bytes of a record's message and of each attribute's text. Log collectors cut long
// lines, often at 16 KiB, and a truncated JSON record can't be parsed.
const MaxText = 4 << 10

// TruncateAttr truncates a text that is longer than MaxText and appends the number of bytes left out. Use it as
// slog.HandlerOptions.ReplaceAttr. It changes only strings and errors.
func TruncateAttr(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		text = errorText(a.Value.Any())
	}
	if len(text) > MaxText {
		kept := strings.ToValidUTF8(text[:MaxText], "") // drops a character that was cut in half
		a.Value = slog.StringValue(fmt.Sprintf("%s ... (%d bytes left out)", kept, len(text)-len(kept)))
	}
	return a
}

// errorText returns the text of an error, or "" for any other value. If the Error method panics, as for some nil
// pointers, errorText returns "" and the next handler formats the value.
func errorText(value any) (text string) {
	defer func() { _ = recover() }()
	if err, ok := value.(error); ok {
		return err.Error()
	}
	return ""
}
