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

// How the worker ends although a device hangs: whatever may wait for the device has a bound, and the end of the process
// does the rest. What was in hand is delivered again after AckWait.

const (
	// endGrace is how long the worker may take to end beyond the time for draining.
	endGrace = 2 * time.Second

	// closeDevices bounds how long all devices together may take to finish and to give their memory back. With the drain
	// and endGrace it is within the grace period that the chart gives a pod.
	closeDevices = 7 * time.Second

	// closeLeast is left for each device when others have used up all of that: one that is lost closes at once.
	closeLeast = 100 * time.Millisecond

	// closeOther bounds how long each other part may take.
	closeOther = 30 * time.Second
)

// closer closes a part of the plant.
type closer struct {
	device string // the device that it may wait for; empty for none
	close  func() error
}

// onClose has f called by close, before what was given earlier.
func (p *plant) onClose(f func() error) { p.closers = append(p.closers, closer{close: f}) }

// onCloseDevice is onClose for what may wait for the device of that ID.
func (p *plant) onCloseDevice(id string, f func() error) {
	p.closers = append(p.closers, closer{device: id, close: f})
}

// close takes everything down again. What does not come to an end in time is left to the end of the process.
func (p *plant) close() error { return p.closeAll(closeDevices, closeOther) }

// closeAll is close with these bounds on all devices together and on each other part.
func (p *plant) closeAll(devices, other time.Duration) error {
	var errs []error
	left := devices
	for i := len(p.closers) - 1; i >= 0; i-- {
		c := p.closers[i]
		began := time.Now()
		if c.device == "" {
			errs = append(errs, p.closeWithin(other, c))
			continue
		}
		errs = append(errs, p.closeWithin(max(left, closeLeast), c))
		left -= time.Since(began)
	}
	p.closers = nil
	return errors.Join(errs...)
}

// closeWithin calls c's close. It fails where that does not return within limit: with device.ErrLost where it waits for a
// device.
func (p *plant) closeWithin(limit time.Duration, c closer) error {
	closed := make(chan error, 1)
	go func() { closed <- c.close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(limit):
	}
	select { // it may have returned just now
	case err := <-closed:
		return err
	default:
	}
	if c.device == "" {
		return fmt.Errorf("a part of the worker did not close within %v, and is left to the end of the process", limit)
	}
	p.log.Error("the device did not finish in time and is left to the end of the process", "device", c.device, "within", limit.String())
	return device.Errorf("close", c.device, device.ErrLost, "it did not finish what it has within %v", limit)
}

// closeDevice closes a device; one that is lost has nothing left to say. One that hangs is left alone: it may still use
// the memory that Close would free, and Close would wait for it.
func (p *plant) closeDevice(d device.Device) error {
	for i, pipe := range p.pipes {
		if p.devices[i] == d && pipe.Hung() != nil {
			p.log.Warn("the device hangs, and is left to the end of the process", "device", d.Info().ID)
			return nil
		}
	}
	err := d.Close()
	if errors.Is(err, device.ErrLost) || d.Err() != nil {
		return nil
	}
	return err
}

// logLoss reports the loss of a pipeline's device as it happens: the process may be draining for long after that.
func (p *plant) logLoss(pipe *streams.Pipeline) {
	go func() {
		<-pipe.Over()
		if err := pipe.Err(); errors.Is(err, device.ErrLost) {
			p.log.Error("the device is lost: what is on it is given back, other devices finish what they have, and the process ends with exit status 70",
				"device", pipe.Device().ID, "error", err)
		}
	}()
}

// runToEnd runs the worker until it has ended, or should have: a call to a device that hangs may never return.
func (p *plant) runToEnd(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- p.worker.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-p.overdue(ctx):
	}
	errs := []error{device.Errorf("run", "", device.ErrLost,
		"the worker has not ended %v after the time for draining; what it has in hand is delivered again after AckWait", endGrace)}
	for _, pipe := range p.pipes {
		if err := pipe.Err(); errors.Is(err, device.ErrLost) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// overdue is closed when the worker should have ended: the time for draining, and endGrace, after ctx is done or a
// device is lost.
func (p *plant) overdue(ctx context.Context) <-chan struct{} {
	over := make(chan struct{})
	begin := sync.OnceFunc(func() {
		time.AfterFunc(p.cfg.DrainTimeout+endGrace, func() { close(over) })
	})
	context.AfterFunc(ctx, begin)
	for _, pipe := range p.pipes {
		go func() {
			<-pipe.Over()
			begin()
		}()
	}
	return over
}
