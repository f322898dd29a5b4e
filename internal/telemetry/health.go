package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Work is the state of one part of the worker, for health checks. Each part is checked separately.
type Work struct {
	Name     string        // a device.Info.ID or another name for the part
	InHand   int           // batches in flight that hold payloads
	Progress time.Time     // time of the last change of a batch's state
	AckWait  time.Duration // the consumer's AckWait, the limit of the time without progress; 0 (unknown) disables the check
	HeldBack int           // number of held-back payloads; if it stays above 0 for longer than AckWait, the worker isn't ready
	Lost     error         // reason why the part's device is lost; nil while the device works

	// For a device, Age is the time in flight of the batch that has used the largest share of its bound. Bound is the
	// limit of Age; 0 means no limit.
	Age, Bound time.Duration
}

// HealthOptions holds the sources of health information. Its functions are called for every probe, so they must read
// state that the pipeline keeps and must not call a device. Otherwise a probe of a hung GPU would hang too.
type HealthOptions struct {
	Work      func() []Work    // the parts of the worker
	Connected func() bool      // reports whether NATS is currently connected
	Stalled   func() error     // returns the reason why available messages don't arrive, or nil; the function may be nil
	Now       func() time.Time // nil means time.Now
}

// These errors are results of Ready. Live creates its own errors.
var (
	errStarting     = errors.New("starting")
	errDraining     = errors.New("draining")
	errDisconnected = errors.New("not connected to NATS")
)

// Health answers liveness and readiness probes. Each answer is computed from the current state, so a condition that has
// passed doesn't affect the next answer. The methods are safe for concurrent use.
type Health struct {
	o HealthOptions

	mu       sync.Mutex
	started  bool
	draining bool
	waiting  error                // reason why the worker can't start yet; nil for none
	excused  map[string]time.Time // last time without work or without NATS, by Work.Name
	held     map[string]time.Time // start of the time with held-back payloads, by Work.Name
}

// NewHealth returns a Health in the starting state: live, but not ready.
func NewHealth(o HealthOptions) *Health {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Health{o: o, excused: map[string]time.Time{}, held: map[string]time.Time{}}
}

// Started ends the starting state. From now on, the worker accepts payloads.
func (h *Health) Started() { h.set(&h.started) }

// Waiting sets the reason why the worker can't start yet; nil means none. Until the worker has started, Ready returns
// an error with that reason.
func (h *Health) Waiting(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = why
}

// Draining makes the worker permanently unready, because it is shutting down.
func (h *Health) Draining() { h.set(&h.draining) }

func (h *Health) set(flag *bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*flag = true
}

// Live returns nil while the process should keep running. It returns an error if a device is lost or a batch on a
// device exceeds its bound. It also returns an error if a part has batches in flight and has made no progress for
// longer than AckWait.
//
// Time without work or without NATS doesn't count. Without NATS, batches wait for the server, and a restart would only
// lose them. Health detects such times only during probes, so an answer can be late by one probe interval.
func (h *Health) Live() error {
	connected, now := h.o.Connected(), h.o.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var failures []error
	for _, w := range h.o.Work() {
		if w.Lost != nil {
			failures = append(failures, fmt.Errorf("%s: %w", w.Name, w.Lost))
			continue
		}
		if w.Bound > 0 && w.Age > w.Bound {
			failures = append(failures, fmt.Errorf("%s: %d batches in flight, the oldest on the device for %v, longer than its bound of %v",
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
			failures = append(failures, fmt.Errorf("%s: %d batches in flight and no progress for %v, longer than AckWait (%v)",
				w.Name, w.InHand, idle.Round(time.Millisecond), w.AckWait))
		}
	}
	return errors.Join(failures...)
}

// Ready returns nil while the worker accepts payloads. It returns an error while the worker is starting, draining,
// disconnected from NATS, stalled or not live. It also returns an error if payloads have been held back for longer than
// AckWait.
func (h *Health) Ready() error {
	h.mu.Lock()
	started, draining, waiting := h.started, h.draining, h.waiting
	h.mu.Unlock()
	switch {
	case draining:
		return errDraining
	case !started && waiting != nil:
		return fmt.Errorf("%w: waiting for NATS: %w", errStarting, waiting)
	case !started:
		return errStarting
	case !h.o.Connected():
		return errDisconnected
	}
	if h.o.Stalled != nil {
		if err := h.o.Stalled(); err != nil {
			return err
		}
	}
	return errors.Join(h.heldBack(), h.Live())
}

// heldBack returns an error if payloads have been held back for longer than AckWait, as observed by the probes.
func (h *Health) heldBack() error {
	now := h.o.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var failures []error
	for _, w := range h.o.Work() {
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

// The states of a Condition.
const (
	conditionReady        = "ready"
	conditionStarting     = "starting"
	conditionWaiting      = "waiting" // starting, but the worker waits for NATS; Why has the reason
	conditionStopping     = "stopping"
	conditionDisconnected = "disconnected" // disconnected from NATS
	conditionFailing      = "failing"      // not ready for another reason
)

// Condition is the readiness of the worker, as /readyz reports it, and the time of its last change.
type Condition struct {
	State string
	Why   string    // the text of /readyz; empty in the state ready
	Since time.Time // time when the state was first observed
}

// watchEvery is the interval between the checks of Watch.Run. It is also the maximum delay of Condition.Since.
const watchEvery = time.Second

// Watch observes the readiness of a worker and the time of its last change. Its methods are safe for concurrent use.
type Watch struct {
	ready func() error
	now   func() time.Time

	mu   sync.Mutex
	last Condition
}

// NewWatch returns a Watch of the function ready, such as Health.Ready. The argument now may be nil, which means
// time.Now.
func NewWatch(ready func() error, now func() time.Time) *Watch {
	if now == nil {
		now = time.Now
	}
	return &Watch{ready: ready, now: now}
}

// Run checks the worker every second until ctx is done, so Since is correct even if no client requests the page.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		w.Condition()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Condition checks the worker and returns its condition.
func (w *Watch) Condition() Condition {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.ready()
	if state := stateOf(err); state != w.last.State {
		w.last = Condition{State: state, Since: w.now()}
	}
	w.last.Why = ""
	if err != nil {
		w.last.Why = shortened(err.Error(), maxErrorBytes)
	}
	return w.last
}

// stateOf returns the state for an error of Health.Ready.
func stateOf(err error) string {
	switch {
	case err == nil:
		return conditionReady
	case errors.Is(err, errStarting) && err.Error() != errStarting.Error():
		return conditionWaiting
	case errors.Is(err, errStarting):
		return conditionStarting
	case errors.Is(err, errDraining):
		return conditionStopping
	case errors.Is(err, errDisconnected):
		return conditionDisconnected
	}
	return conditionFailing
}
