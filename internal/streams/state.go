package streams

import (
	"errors"
	"time"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// NewState creates an empty state of an operator on the pipeline's device. records is the number of records per generation. One call of
// State.Apply accepts the records of at most one batch. The caller must close the state before the pipeline's device.
//
// If a state call reports that the device is lost, the pipeline ends with that error. The pipeline also ends if a call takes longer than
// Deadline.Max. On a hung device, that call may never return, every later call fails, and Close frees nothing.
func (p *Pipeline) NewState(op operator.Stateful, records int) (device.State, error) {
	s, err := p.dev.NewState(op.Name(), op.Kernel().Params(), p.stateSize(records))
	if err != nil {
		return nil, p.noteLoss("new state", op.Name(), err)
	}
	return &state{State: s, pipe: p, operator: op.Name()}, nil
}

// StateBytes returns the size of the memory that NewState allocates.
func (p *Pipeline) StateBytes(op operator.Stateful, records int) (device.StateMemory, error) {
	return p.dev.StateBytes(op.Name(), op.Kernel().Params(), p.stateSize(records))
}

func (p *Pipeline) stateSize(records int) device.StateSize {
	return device.StateSize{Records: records, Batch: min(records, p.BatchPayloads())}
}

// noteLoss returns err, the error of a call of the operator's state. If err is a loss of the device, noteLoss also ends the pipeline.
func (p *Pipeline) noteLoss(call, operator string, err error) error {
	if errors.Is(err, device.ErrLost) {
		_ = p.Lose(call, attributeFault(err, operator)) // returns the pipeline's error, which may be a different error
	}
	return err
}

// attributeFault adds the operator's name to a loss of the device that a kernel has caused.
func attributeFault(loss error, operator string) error {
	if !errors.Is(loss, device.ErrKernelFault) {
		return loss
	}
	return device.Attribute(loss, operator)
}

// state is a device.State whose calls the pipeline watches.
type state struct {
	device.State
	pipe     *Pipeline
	operator string // name of the operator
}

// stateCall is a call of a state in progress.
type stateCall struct {
	of   *state
	name string
	ran  time.Duration // value of Pipeline.ran when the call began
}

// call makes a call of the state.
func (s *state) call(name string, f func() error) error {
	c := &stateCall{of: s, name: name}
	if err := s.pipe.beginCall(c); err != nil {
		return err
	}
	err := f()
	s.pipe.endCall(c)
	return s.pipe.noteLoss(name, s.operator, err)
}

func (p *Pipeline) beginCall(c *stateCall) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hung != nil {
		return p.hung
	}
	c.ran = p.ran
	p.calls[c] = struct{}{}
	return nil
}

func (p *Pipeline) endCall(c *stateCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, c)
}

// overdueCall returns a call of a state that takes longer than Deadline.Max, or nil.
func (p *Pipeline) overdueCall() *stateCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.calls {
		if p.ran-c.ran > p.o.Deadline.Max {
			return c
		}
	}
	return nil
}

// Apply implements device.State.
func (s *state) Apply(positions []device.Position, keys []byte) (decisions device.Decisions, err error) {
	err = s.call("apply", func() error {
		decisions, err = s.State.Apply(positions, keys)
		return err
	})
	return decisions, err
}

// Undo implements device.State.
func (s *state) Undo() error { return s.call("undo", s.State.Undo) }

// Replay implements device.State.
func (s *state) Replay(entry []byte) error {
	return s.call("replay", func() error { return s.State.Replay(entry) })
}

// Close implements device.State.
func (s *state) Close() error {
	if s.pipe.Hung() != nil {
		return nil
	}
	return s.State.Close()
}
