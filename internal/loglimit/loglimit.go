// Package loglimit limits how much a log grows, so that a flood of errors neither fills a disk nor hides other messages.
// Handler limits how often a message repeats: the first records of a message pass in each interval, and at its end one more
// record holds the number of those that were dropped. TruncateAttr limits the length of a text. Command worker puts both
// in front of all its logs.
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
	burst       = 10 // records of a message that pass in an interval
	interval    = 10 * time.Second
	maxMessages = 256 // messages that have their own limit in an interval. The others share one limit per level
)

// splitBy names an attribute. Records of a message with different values of it have separate limits, so a thousand payloads that
// are too large do not hide one that broke the device.
const splitBy = "reason"

// SuppressedKey is the attribute of the record at the end of an interval. Its value is the number of dropped records of
// the message. That number includes this record, which is the last of them.
const SuppressedKey = "suppressed"

// OthersText is the message of the record at the end of an interval in which records of messages beyond the first 256 were
// dropped. Its attribute last holds the message of the last dropped record.
const OthersText = "too many different messages"

// Handler is a slog.Handler that passes a limited number of records to the next one. Several goroutines may use it.
type Handler struct {
	next slog.Handler
	*limits
}

// limits is shared by all handlers of a log, even if their attributes differ.
type limits struct {
	suppressed func(slog.Level)

	mu     sync.Mutex
	counts map[message]*count // of the running interval
	closed bool
}

// message identifies the records that share a limit. The message without a text is for all beyond maxMessages.
type message struct {
	level slog.Level
	text  string
	split string // the value of the attribute splitBy
}

// count counts the records of a message in an interval.
type count struct {
	passed, dropped int
	last            slog.Record  // the last dropped record
	next            slog.Handler // the handler for last
}

// New returns a handler that limits the records that next receives. It calls suppressed for each dropped record; suppressed must
// not block. Close the handler to log the last counts.
func New(next slog.Handler, suppressed func(slog.Level)) *Handler {
	return &Handler{next: next, limits: &limits{suppressed: suppressed, counts: map[message]*count{}}}
}

// Enabled implements slog.Handler. It returns the answer of the next handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler. The new handler shares the limits of h.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{next: h.next.WithAttrs(attrs), limits: h.limits}
}

// WithGroup implements slog.Handler. The new handler shares the limits of h.
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

// passes counts a record and reports whether it passes. The first record begins an interval.
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

// endInterval ends the interval, and the next record begins the next one.
func (l *limits) endInterval() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logDropped()
}

// Close ends the interval now. Later records all pass.
func (h *Handler) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logDropped()
	h.closed = true
	return nil
}

// logDropped logs how many records of each message were dropped, and forgets the counts. The caller holds mu.
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
		_ = c.next.Handle(context.Background(), r) // there is no other place to report a log that cannot be written
	}
	clear(l.counts)
}

// MaxText bounds the message of a record and the text of each of its attributes, in bytes. A log collector cuts lines, often at
// 16 KiB, and a JSON record that is cut can't be read.
const MaxText = 4 << 10

// TruncateAttr cuts a text that is longer than MaxText and says how much is left out. Use it as slog.HandlerOptions.ReplaceAttr. It
// leaves values alone that are neither a text nor an error.
func TruncateAttr(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		text = errorText(a.Value.Any())
	}
	if len(text) > MaxText {
		kept := strings.ToValidUTF8(text[:MaxText], "") // without a part of a character
		a.Value = slog.StringValue(fmt.Sprintf("%s ... (%d bytes left out)", kept, len(text)-len(kept)))
	}
	return a
}

// errorText returns the text of an error, and an empty text for anything else. An error without a value may panic, and the handler
// deals with that.
func errorText(value any) (text string) {
	defer func() { _ = recover() }()
	if err, ok := value.(error); ok {
		return err.Error()
	}
	return ""
}
