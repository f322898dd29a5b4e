package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"millrace/internal/device"
	"millrace/internal/streams"
)

// A worker must end even if a device hangs. Every call that may wait for a device therefore has a time limit. When the process
// ends, its remaining resources are released, and the server redelivers the payloads after AckWait.

const (
	// endGrace is the maximum time between the drain timeout and the end of the worker.
	endGrace = 2 * time.Second

	// closeDevicesWithin is the maximum time for all devices together to finish and to free their memory. The sum of the drain
	// timeout, endGrace and closeDevicesWithin fits in the grace period that the Helm chart gives a pod.
	closeDevicesWithin = 7 * time.Second

	// minClose is the minimum time for each device, even if other devices have used up closeDevicesWithin. A lost
	// device closes at once.
	minClose = 100 * time.Millisecond

	// closeOther is the maximum time for each other part.
	closeOther = 30 * time.Second
)

// closer closes a part of the app.
type closer struct {
	device string // the ID of the device that close may wait for; empty for none
	close  func() error
}

// onClose registers f. close calls it before the functions that were registered earlier.
func (a *app) onClose(f func() error) { a.closers = append(a.closers, closer{close: f}) }

// onCloseDevice is onClose for a function that may wait for the device with the given ID.
func (a *app) onCloseDevice(id string, f func() error) {
	a.closers = append(a.closers, closer{device: id, close: f})
}

// close closes all parts. It gives up on a part that does not close in time.
func (a *app) close() error { return a.closeAll(closeDevicesWithin, closeOther) }

// closeAll is like close, but with other time limits. The limit devices applies to all devices together, and the limit
// other applies to each other part.
func (a *app) closeAll(devices, other time.Duration) error {
	var errs []error
	left := devices
	for i := len(a.closers) - 1; i >= 0; i-- {
		c := a.closers[i]
		began := time.Now()
		if c.device == "" {
			errs = append(errs, a.closeWithin(other, c))
			continue
		}
		errs = append(errs, a.closeWithin(max(left, minClose), c))
		left -= time.Since(began)
	}
	a.closers = nil
	return errors.Join(errs...)
}

// closeWithin calls c.close. It returns an error if the call takes longer than limit. If c waits for a device, the
// error is device.ErrLost.
func (a *app) closeWithin(limit time.Duration, c closer) error {
	closed := make(chan error, 1)
	go func() { closed <- c.close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(limit):
	}
	select { // c.close may have returned at the same moment
	case err := <-closed:
		return err
	default:
	}
	if c.device == "" {
		return fmt.Errorf("a part of the worker did not close within %v", limit)
	}
	a.log.Error("the device did not finish in time: the worker ends without closing it", "device", c.device, "within", limit.String())
	return device.Errorf("close", c.device, device.ErrLost, "it did not finish its work within %v", limit)
}

// closeDevice closes a device. It does not close a device that hangs, because Close would block, and would free memory
// that the device may still use. The loss of a device is reported elsewhere, so closeDevice does not return it.
func (a *app) closeDevice(d device.Device) error {
	for i, pipe := range a.pipes {
		if a.devices[i] == d && pipe.Hung() != nil {
			a.log.Warn("the device hangs: the worker ends without closing it", "device", d.Info().ID)
			return nil
		}
	}
	err := d.Close()
	if errors.Is(err, device.ErrLost) || d.Err() != nil {
		return nil
	}
	return err
}

// logLoss logs the loss of the pipeline's device at once, because the process may then drain for a long time. It closes
// the returned channel when the pipeline has ended and any loss is logged.
func (a *app) logLoss(pipe *streams.Pipeline) <-chan struct{} {
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		<-pipe.Over()
		if err := pipe.Err(); errors.Is(err, device.ErrLost) {
			attributes := []any{"device", pipe.Device().ID, "error", err}
			if name := device.FailedOperator(err); name != "" {
				attributes = append(attributes, "operator", name)
			}
			a.log.Error("the device is lost: its payloads are given back, other devices finish their work, and the process ends with exit status 70",
				attributes...)
		}
	}()
	return logged
}

// awaitLossLogs waits until all losses so far are logged, because the process ends soon after.
func (a *app) awaitLossLogs() {
	for i, pipe := range a.pipes {
		select {
		case <-pipe.Over():
			<-a.lossLogged[i]
		default:
		}
	}
}

// runToEnd runs the worker until it ends or is overdue. A call to a device that hangs may never return.
func (a *app) runToEnd(ctx context.Context) error {
	defer a.awaitLossLogs()
	ended := make(chan error, 1)
	go func() { ended <- a.worker.Run(ctx) }()
	following, stop := context.WithCancel(ctx)
	defer stop()
	go a.followStreams(following)
	select {
	case err := <-ended:
		return err
	case <-a.overdue(ctx):
	}
	errs := []error{device.Errorf("run", "", device.ErrLost,
		"the worker did not end within %v of the drain timeout; the server redelivers its payloads after AckWait", endGrace)}
	for _, pipe := range a.pipes {
		if err := pipe.Err(); errors.Is(err, device.ErrLost) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// overdue returns a channel that is closed when the worker should have ended. The time limit is the drain timeout plus
// endGrace, from the moment when ctx is done or a device is lost.
func (a *app) overdue(ctx context.Context) <-chan struct{} {
	over := make(chan struct{})
	begin := sync.OnceFunc(func() {
		time.AfterFunc(a.cfg.DrainTimeout+endGrace, func() { close(over) })
	})
	context.AfterFunc(ctx, begin)
	for _, pipe := range a.pipes {
		go func() {
			<-pipe.Over()
			begin()
		}()
	}
	return over
}
