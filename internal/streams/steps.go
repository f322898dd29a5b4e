package streams

import (
	"errors"
	"runtime"
	"time"

	"millrace/internal/device"
)

// This file finds the operator to blame when a kernel fails or doesn't end. A device reports the failure of some kernel, not of
// which. So a batch that may fail is computed in steps: the next operator starts after the one before it has completed. If nothing
// else is on the device, the operator of the current step is to blame. In all other cases the operator stays unknown, unless there
// is only one.

// firstStepPause and lastStepPause bound the interval at which a step is polled.
const (
	firstStepPause = 10 * time.Microsecond
	lastStepPause  = time.Millisecond
)

// StepThrough makes the next submissions of the batch run one operator after another, so that the error of a failure names the
// operator. While nothing else is on the device, Submit waits for each operator but the last. Beside other batches it waits for none,
// because a loss of the device couldn't be attributed anyway. When end is closed, Submit waits no more. Release undoes it.
func (b *Batch) StepThrough(end <-chan struct{}) { b.stepping, b.stepped, b.stepsEnd = true, true, end }

// beginSteps hands the work before the first operator to the device, so that a later refusal is the operator's.
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

// step hands the launch of operator i to the device, and waits until it has completed if another operator follows.
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

// refused returns the error of a launch of operator i that the device refused with err.
func (b *Batch) refused(i int, err error) error {
	p := b.pipe
	switch lost := p.dev.Err(); {
	case lost != nil:
		p.fail(lost)
		return p.Err()
	case errors.Is(err, device.ErrLaunch), errors.Is(err, device.ErrInvalid):
		return device.Attribute(err, p.cfg.Operators[i].Name())
	}
	return err
}

// awaitStep returns once the current operator has completed, or with the error that ended the pipeline. It also returns when another
// batch is in flight, and when the caller of StepThrough ends the steps.
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

// isAlone reports whether b is computed in steps with nothing else on the device.
func (p *Pipeline) isAlone(b *Batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lone == b
}

// endSteps makes the rest of the submission run as usual. The operator of a failure is unknown from then on.
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

// attribute adds the operator to the loss of the device if it is known: there is only one, or a batch was alone on the device and
// computed in steps. The caller holds p.mu.
func (p *Pipeline) attribute(loss error) error {
	switch {
	case !errors.Is(loss, device.ErrKernelFault) || device.FailedOperator(loss) != "":
		return loss
	case len(p.cfg.Operators) == 1:
		return device.Attribute(loss, p.cfg.Operators[0].Name())
	case p.lone != nil && p.lone.current > 0 && p.lone.phase == inFlight:
		return device.Attribute(loss, p.cfg.Operators[p.lone.current-1].Name())
	}
	return loss
}
