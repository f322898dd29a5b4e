// Package loglimit limits how often a log repeats a message, so that a flood of errors neither fills a disk nor hides
// other messages. In each interval, the first records of a message pass. If records were dropped, one more record at
// the end of the interval holds their number. Command worker puts a Handler in front of all its logs.
//
// Start reading at Handler.Handle.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Options are the limits of a log. A zero field means its default.
type Options struct {
	Burst    int           // records of a message that pass in an interval; default 10
	Interval time.Duration // default 10 s
	Messages int           // messages that have their own limit at the same time; default 256. The others share one limit per level

	// SplitBy names an attribute. Records of a message with different values of it have separate limits. It must have few values.
	SplitBy string

	// Suppressed is called for each dropped record. It must not block. It may be nil.
	Suppressed func(slog.Level)
}

// SuppressedKey is the attribute of the record at the end of an interval. Its value is the number of dropped records of
// the message. That number includes this record, which is the last of them.
const SuppressedKey = "suppressed"

// OthersText is the message of the record at the end of an interval in which records of messages beyond
// Options.Messages were dropped. Its attribute last holds the message of the last dropped record.
const OthersText = "too many different messages"

// Handler is a slog.Handler that passes a limited number of records to the next one. Several goroutines may use it.
type Handler struct {
	next slog.Handler
	*state
}

// state is shared by all handlers of a log, even if their attributes differ.
type state struct {
	Options

	mu      sync.Mutex
	windows map[key]*window
	closed  bool
}

// key identifies the records that share a limit. The key without a text is for all messages beyond Options.Messages.
type key struct {
	level slog.Level
	text  string
	split string // the value of the attribute Options.SplitBy
}

// window counts the records of a key in an interval.
type window struct {
	records    int          // all records
	suppressed int          // the records that were dropped
	last       slog.Record  // the last dropped record
	next       slog.Handler // the handler for last
	end        *time.Timer
}

// New returns a handler that limits the records that next receives. Close it to log the last counts.
func New(next slog.Handler, o Options) *Handler {
	if o.Burst <= 0 {
		o.Burst = 10
	}
	if o.Interval <= 0 {
		o.Interval = 10 * time.Second
	}
	if o.Messages <= 0 {
		o.Messages = 256
	}
	if o.Suppressed == nil {
		o.Suppressed = func(slog.Level) {}
	}
	return &Handler{next: next, state: &state{Options: o, windows: map[key]*window{}}}
}

// Enabled implements slog.Handler. It returns the answer of the next handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler. The new handler shares the limits of h.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{next: h.next.WithAttrs(attrs), state: h.state}
}

// WithGroup implements slog.Handler. The new handler shares the limits of h.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), state: h.state}
}

// Handle implements slog.Handler. It returns no error for a dropped record.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if h.passes(r, h.next) {
		return h.next.Handle(ctx, r)
	}
	h.Suppressed(r.Level)
	return nil
}

// Close ends every interval now. Later records all pass.
func (h *Handler) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for k, w := range h.windows {
		w.end.Stop()
		w.logSuppressed(k)
	}
	clear(h.windows)
	return nil
}

// passes counts a record and reports whether it passes.
func (s *state) passes(r slog.Record, next slog.Handler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return true
	}
	w := s.window(key{r.Level, r.Message, s.split(r)})
	if w.records++; w.records <= s.Burst {
		return true
	}
	w.suppressed++
	w.last, w.next = r.Clone(), next
	return false
}

// split returns the value of the record's attribute Options.SplitBy.
func (s *state) split(r slog.Record) (value string) {
	if s.SplitBy != "" {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == s.SplitBy {
				value = a.Value.String()
			}
			return a.Key != s.SplitBy
		})
	}
	return value
}

// window returns the window of k. It opens one if there is none.
func (s *state) window(k key) *window {
	w := s.windows[k]
	if w == nil && len(s.windows) >= s.Messages {
		k = key{level: k.level}
		w = s.windows[k]
	}
	if w == nil {
		w = &window{}
		w.end = time.AfterFunc(s.Interval, func() { s.expire(k, w) })
		s.windows[k] = w
	}
	return w
}

// expire ends the interval of a window. If records were dropped, the next interval begins at once. Otherwise it begins
// with the next record.
func (s *state) expire(k key, w *window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.windows[k] != w { // Close has ended it
		return
	}
	if w.suppressed == 0 {
		delete(s.windows, k)
		return
	}
	w.logSuppressed(k)
	*w = window{end: w.end}
	w.end.Reset(s.Interval)
}

// logSuppressed logs the number of dropped records, if there are any.
func (w *window) logSuppressed(k key) {
	if w.suppressed == 0 {
		return
	}
	r := w.last
	if k.text == "" && r.Message != "" {
		r.AddAttrs(slog.String("last", r.Message))
		r.Message = OthersText
	}
	r.AddAttrs(slog.Int(SuppressedKey, w.suppressed))
	_ = w.next.Handle(context.Background(), r) // there is no other place to report a log that cannot be written
}
