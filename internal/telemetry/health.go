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
	Lost     error         // why its device is lost; nil while it works
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
}

// NewHealth makes a Health that is starting: live, not ready.
func NewHealth(cfg HealthConfig) *Health {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Health{cfg: cfg, excused: map[string]time.Time{}}
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

// Live is nil while the process is worth keeping. It fails once a device is lost, and while a part
// has work in hand and has made no progress for longer than AckWait.
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
// NATS, stalled, or not live.
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
	return h.Live()
}
