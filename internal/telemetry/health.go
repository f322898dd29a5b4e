package telemetry

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Work is what one part of the worker is doing, as health judges it. Each part is judged by itself.
type Work struct {
	Name     string        // for the answer: a device.Info.ID, or what else the part is called
	InHand   int           // batches that hold payloads and are not yet done with; an empty one that waits does not count
	Progress time.Time     // when a batch last moved on
	AckWait  time.Duration // how long it may go without progress: the consumer's; 0 while that is not known, and then it is not judged
	HeldBack int           // payloads that fail while none comes right: neither given up nor done. It is not ready with them for longer than AckWait
	Lost     error         // why its device is lost; nil while it works

	// Of a device: how long the batch that is to come back next has been on it, and how long it may be; 0 for any time.
	Age, Bound time.Duration
}

// HealthConfig says where health looks. Its functions are called for every probe: they must read what the
// pipeline keeps and make no call to a device, since a probe that asks a hung GPU hangs with it.
type HealthConfig struct {
	Work      func() []Work    // the parts of the worker; none while there are none
	Connected func() bool      // whether NATS is connected now
	Stalled   func() error     // why no messages come though there are some; nil while they do. May be nil
	Now       func() time.Time // nil for time.Now
}

// The reasons for not being ready. Those of a failing Live are made where they are found.
var (
	errStarting     = errors.New("starting")
	errDraining     = errors.New("draining")
	errDisconnected = errors.New("not connected to NATS")
)

// Health answers liveness and readiness probes. Every answer is made from the state at that moment, so a
// condition that passes is gone from the next answer. Methods are safe for concurrent use.
type Health struct {
	cfg HealthConfig

	mu       sync.Mutex
	started  bool
	draining bool
	excused  map[string]time.Time // by Work.Name: until when it had no work or could not work
	held     map[string]time.Time // by Work.Name: since when payloads are held back
}

// NewHealth makes a Health that is starting: live, not ready.
func NewHealth(cfg HealthConfig) *Health {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Health{cfg: cfg, excused: map[string]time.Time{}, held: map[string]time.Time{}}
}

// Started ends the start: the worker takes payloads from now on.
func (h *Health) Started() { h.set(&h.started) }

// Draining makes the worker unready for good: it is told to stop.
func (h *Health) Draining() { h.set(&h.draining) }

func (h *Health) set(flag *bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*flag = true
}

// Live is nil while the process is worth keeping. It fails once a device is lost, while a device has had a batch for
// longer than its bound, and while a part has work in hand and has made no progress for longer than AckWait.
//
// Time without work does not count against it, nor time without NATS: batches then wait for the
// server, and a restart would only lose them. Such time is known from the probes themselves, so an answer
// can be late by the time between two.
func (h *Health) Live() error {
	connected, now := h.cfg.Connected(), h.cfg.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var failures []error
	for _, w := range h.cfg.Work() {
		if w.Lost != nil {
			failures = append(failures, fmt.Errorf("%s: %w", w.Name, w.Lost))
			continue
		}
		if w.Bound > 0 && w.Age > w.Bound {
			failures = append(failures, fmt.Errorf("%s: %d batches in hand, the oldest on the device for %v, longer than its bound of %v",
				w.Name, w.InHand, w.Age.Round(time.Millisecond), w.Bound))
			continue
		}
		last, probed := h.excused[w.Name]
		if !probed || w.InHand == 0 || !connected {
			last = now
			h.excused[w.Name] = now
		}
		if w.Progress.After(last) {
			last = w.Progress
		}
		if idle := now.Sub(last); w.AckWait > 0 && idle > w.AckWait {
			failures = append(failures, fmt.Errorf("%s: %d batches in hand and no progress for %v, longer than AckWait (%v)",
				w.Name, w.InHand, idle.Round(time.Millisecond), w.AckWait))
		}
	}
	return errors.Join(failures...)
}

// Ready is nil while the worker takes payloads. It is not ready while starting, draining, not connected to
// NATS, stalled, while payloads have been held back for longer than AckWait, or not live.
func (h *Health) Ready() error {
	h.mu.Lock()
	started, draining := h.started, h.draining
	h.mu.Unlock()
	switch {
	case draining:
		return errDraining
	case !started:
		return errStarting
	case !h.cfg.Connected():
		return errDisconnected
	}
	if h.cfg.Stalled != nil {
		if err := h.cfg.Stalled(); err != nil {
			return err
		}
	}
	return errors.Join(h.heldBack(), h.Live())
}

// heldBack is an error while payloads have been held back for longer than AckWait, as the probes have seen it.
func (h *Health) heldBack() error {
	now := h.cfg.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var failures []error
	for _, w := range h.cfg.Work() {
		since, known := h.held[w.Name]
		switch {
		case w.HeldBack == 0:
			delete(h.held, w.Name)
		case !known:
			h.held[w.Name] = now
		case w.AckWait > 0 && now.Sub(since) > w.AckWait:
			failures = append(failures, fmt.Errorf("%s: %d payloads are held back: an operator fails on each, and no other has come right since",
				w.Name, w.HeldBack))
		}
	}
	return errors.Join(failures...)
}
