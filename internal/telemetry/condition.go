package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"
)

// The states of a Condition.
const (
	conditionReady        = "ready"
	conditionStarting     = "starting"
	conditionWaiting      = "waiting" // starting, and waiting for what Why says
	conditionStopping     = "stopping"
	conditionDisconnected = "disconnected" // from NATS
	conditionFailing      = "failing"      // not ready for another reason
)

// Condition says whether the worker accepts payloads, like /readyz, and since when.
type Condition struct {
	State string
	Why   string    // the text of /readyz; empty in the state ready
	Since time.Time // when the state was first observed
}

// watchEvery is how often Watch.Run checks the worker, which is also how late Condition.Since may be.
const watchEvery = time.Second

// Watch observes the readiness of a worker in order to know since when it is as it is. Its methods are safe for
// concurrent use.
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

// Run checks the worker every second until ctx is done, so that Since is known even if nobody looks at the page.
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
