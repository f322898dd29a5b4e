package streams

import (
	"errors"
	"runtime"
	"time"

	"millrace/internal/device"
)

// This file finds the operator whose kernel failed or doesn't end, because a device doesn't report it. A batch that may
// fail is computed in steps: an operator starts only after the previous operator has completed. If the batch is alone
// on the device, the operator of the current step failed. Otherwise the operator is unknown, unless the pipeline has
// only one.

// firstStepPause and lastStepPause bound the interval between polls of a step.
const (
	firstStepPause = 10 * time.Microsecond
	lastStepPause  = time.Millisecond
)

// StepThrough makes the next submissions of the batch run one operator after another, so that a failure's error names
// the operator. While the batch is alone on the device, Submit waits for each operator except the last. With other
// batches in flight, Submit doesn't wait, because a loss of the device couldn't be attributed. Closing end stops the
// waiting. Release undoes StepThrough.
func (b *Batch) StepThrough(end <-chan struct{}) { b.stepping, b.stepped, b.stepsEnd = true, true, end }

// beginSteps enqueues the work before the first operator. If the device refuses later work, that work belongs to an
// operator.
func (b *Batch) beginSteps() error {
	p := b.pipe
	if err := b.flush(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight == 1 {
		p.lone = b
	}
	return nil
}

// step enqueues the launch of operator i. If another operator follows, step waits until operator i has completed.
func (b *Batch) step(i int) error {
	p := b.pipe
	p.mu.Lock()
	b.current = i + 1
	p.mu.Unlock()
	b.recordEvent(b.route.kern, b.computed)
	if err := b.flush(); err != nil {
		return b.refused(i, err)
	}
	if i == len(p.kernels)-1 {
		return nil
	}
	return b.awaitStep()
}

// refused returns the error for a launch of operator i that the device refused with err. If the device is lost, refused
// returns that loss. Otherwise it returns err, with the operator's name if the launch itself is at fault.
func (b *Batch) refused(i int, err error) error {
	p := b.pipe
	switch lost := p.dev.Err(); {
	case lost != nil:
		p.fail(lost)
		return p.Err()
	case errors.Is(err, device.ErrLaunch), errors.Is(err, device.ErrInvalid):
		return device.Attribute(err, p.o.Operators[i].Name())
	}
	return err
}

// awaitStep waits until the current operator has completed. It returns early, without an error, if another batch is in
// flight or the channel passed to StepThrough is closed. If the pipeline ends, it returns the pipeline's error.
func (b *Batch) awaitStep() error {
	p := b.pipe
	for pause := firstStepPause; p.isAlone(b); pause = min(2*pause, lastStepPause) {
		done, err := b.computed.Done()
		switch lost := p.dev.Err(); {
		case lost != nil:
			p.fail(lost)
			return p.Err()
		case err != nil || done:
			return err
		}
		runtime.Gosched()
		select {
		case <-p.over:
			return p.Err()
		case <-b.stepsEnd:
			b.endSteps()
			return nil
		case <-time.After(pause):
		}
	}
	return nil
}

// isAlone reports whether b is computed in steps and is alone on the device.
func (p *Pipeline) isAlone(b *Batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lone == b
}

// endSteps makes the remaining operators of the submission run without waiting. A later failure can't be attributed to
// an operator.
func (b *Batch) endSteps() {
	b.stepping = false
	p := b.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	b.current = 0
	if p.lone == b {
		p.lone = nil
	}
}

// attribute adds the name of the failed operator to a loss of the device by a kernel fault. The operator is known if
// the pipeline has only one, or if a batch is computed in steps, alone on the device. The caller holds p.mu.
func (p *Pipeline) attribute(loss error) error {
	switch {
	case !errors.Is(loss, device.ErrKernelFault) || device.FailedOperator(loss) != "":
		return loss
	case len(p.o.Operators) == 1:
		return device.Attribute(loss, p.o.Operators[0].Name())
	case p.lone != nil && p.lone.current > 0 && p.lone.phase == inFlight:
		return device.Attribute(loss, p.o.Operators[p.lone.current-1].Name())
	}
	return loss
}
