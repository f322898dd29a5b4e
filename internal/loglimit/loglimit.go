// Package loglimit bounds what a log holds of one message that repeats. The first records of a message go through, and at
// the end of each interval one more says how many were left out.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Options bound a log. A zero value takes the default.
type Options struct {
	Burst    int           // records of one message that go through in an interval; default 10
	Interval time.Duration // default 10 s
	Messages int           // messages that are told apart at once; default 256. Others share one bound for each level

	// Apart names an attribute of records whose values tell messages apart beside level and text. It must have few values.
	Apart string

	// Suppressed is called for each record that is left out. It must not block; nil for none.
	Suppressed func(slog.Level)
}

// SuppressedKey is the attribute of the record that ends an interval: how many records of its message were left out,
// itself included. Its other attributes are those of the last of them.
const SuppressedKey = "suppressed"

// OthersText is what ends an interval in which records beyond Options.Messages were left out. Their own text is in the attribute
// last.
const OthersText = "more messages than the log tells apart"

// Handler is a slog.Handler that bounds what goes to the next one.
type Handler struct {
	next slog.Handler
	*state
}

// state is what the handlers of one log share, whatever attributes they add.
type state struct {
	Options

	mu      sync.Mutex
	windows map[key]*window
	closed  bool
}

// key is what one bound is for. Without a text it is for the messages that are too many to be told apart.
type key struct {
	level       slog.Level
	text, apart string
}

// window is one message in one interval.
type window struct {
	records    int // all that came
	suppressed int // of those, the ones that were left out
	last       slog.Record
	next       slog.Handler // of last
	end        *time.Timer
}

// New bounds the log that next writes.
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

// Enabled implements slog.Handler. The next handler decides.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler. The bound stays one with h's.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{next: h.next.WithAttrs(attrs), state: h.state}
}

// WithGroup implements slog.Handler. The bound stays one with h's.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), state: h.state}
}

// Handle implements slog.Handler. A record that is left out is no error.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if h.passes(r, h.next) {
		return h.next.Handle(ctx, r)
	}
	h.Suppressed(r.Level)
	return nil
}

// Close ends every interval now. What is logged afterwards goes through.
func (h *Handler) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for k, w := range h.windows {
		w.end.Stop()
		w.tell(k)
	}
	clear(h.windows)
	return nil
}

// passes counts a record and reports whether it goes through.
func (s *state) passes(r slog.Record, next slog.Handler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return true
	}
	w := s.window(key{r.Level, r.Message, s.apart(r)})
	if w.records++; w.records <= s.Burst {
		return true
	}
	w.suppressed++
	w.last, w.next = r.Clone(), next
	return false
}

// apart is the record's value of the attribute that tells messages apart.
func (s *state) apart(r slog.Record) (value string) {
	if s.Apart != "" {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == s.Apart {
				value = a.Value.String()
			}
			return a.Key != s.Apart
		})
	}
	return value
}

// window finds the window of k, and opens it where there is none.
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

// expire ends an interval of a message. The next one begins at once where records were left out, else with the next record.
func (s *state) expire(k key, w *window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.windows[k] != w { // closed meanwhile
		return
	}
	if w.suppressed == 0 {
		delete(s.windows, k)
		return
	}
	w.tell(k)
	*w = window{end: w.end}
	w.end.Reset(s.Interval)
}

// tell says how many records were left out, if any were.
func (w *window) tell(k key) {
	if w.suppressed == 0 {
		return
	}
	r := w.last
	if k.text == "" && r.Message != "" {
		r.AddAttrs(slog.String("last", r.Message))
		r.Message = OthersText
	}
	r.AddAttrs(slog.Int(SuppressedKey, w.suppressed))
	_ = w.next.Handle(context.Background(), r) // a log that cannot be written has nobody to tell
}
