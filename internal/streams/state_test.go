package streams_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// moodyDevice is a device whose states call apply instead of Apply, and call closed at the beginning of Close. If create isn't nil,
// NewState fails with that error.
type moodyDevice struct {
	device.Device
	create error
	apply  func() error
	closed func()
}

func (m moodyDevice) NewState(name string, params []byte, size device.StateSize) (device.State, error) {
	if m.create != nil {
		return nil, m.create
	}
	s, err := m.Device.NewState(name, params, size)
	return moodyState{s, m}, err
}

type moodyState struct {
	device.State
	of moodyDevice
}

func (m moodyState) Apply([]device.Position, []byte) (device.Decisions, error) {
	return nil, m.of.apply()
}

func (m moodyState) Close() error {
	m.of.closed()
	return m.State.Close()
}

// moodyPipeline returns a pipeline with the operator neardup on m, and sets m's device to a simulated device.
func moodyPipeline(t *testing.T, m moodyDevice) (*streams.Pipeline, operator.Stateful) {
	t.Helper()
	m.Device = hangingSim(t, sim.Options{})
	ops := operators(t, "neardup?bands=2&rows=2&k=5")
	return hangingPipeline(t, m, streams.Options{Lanes: 1, Operators: ops, Deadline: deadline}), ops[0].(operator.Stateful)
}

// A loss that only a state call has noticed ends the pipeline, because no other call may ever use the device. The error names the operator
// if a kernel may be the cause.
func TestAStateThatLosesItsDeviceEndsThePipeline(t *testing.T) {
	for _, c := range []struct {
		loss     error
		operator string
	}{{device.ErrLost, ""}, {device.ErrKernelFault, "neardup"}} {
		loss := device.Errorf("apply", "sim-0", c.loss, "on purpose")
		for name, m := range map[string]moodyDevice{"create": {create: loss}, "apply": {apply: func() error { return loss }}} {
			p, op := moodyPipeline(t, m)
			s, err := p.NewState(op, 1000)
			if err == nil {
				_, err = s.Apply(nil, nil)
			}
			if !errors.Is(err, loss) {
				t.Errorf("%s: got %v, want %v", name, err, loss)
			}
			<-p.Over()
			if err := p.Err(); !errors.Is(err, c.loss) || device.FailedOperator(err) != c.operator {
				t.Errorf("%s: the pipeline's error is %v, want %v of operator %q", name, err, c.loss, c.operator)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Other errors of a state don't end the pipeline.
func TestAStateThatFailsKeepsThePipeline(t *testing.T) {
	closed := 0
	p, op := moodyPipeline(t, moodyDevice{apply: func() error { return device.ErrInvalid }, closed: func() { closed++ }})
	s, err := p.NewState(op, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(nil, nil); !errors.Is(err, device.ErrInvalid) || p.Err() != nil {
		t.Errorf("the state's error is %v, and the pipeline's is %v", err, p.Err())
	}
	for _, closes := range []func() error{s.Close, p.Close} {
		if err := closes(); err != nil || closed != 1 {
			t.Errorf("%v; the state was closed %d times, want 1", err, closed)
		}
	}
}

// If a state call doesn't end, the device counts as hung after the largest bound. Then later calls fail at once, and nothing is freed.
func TestAStateThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let, ended := make(chan struct{}), make(chan error)
		p, op := moodyPipeline(t, moodyDevice{apply: func() error { <-let; return nil }, closed: func() { t.Error("a state of a hung device is closed") }})
		s, err := p.NewState(op, 1000)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		go func() {
			_, err := s.Apply(nil, nil)
			ended <- err
		}()
		<-p.Over()
		if took := time.Since(began); took < deadline.Max || took > deadline.Max+3*time.Second {
			t.Errorf("the pipeline ended after %v, want about %v", took, deadline.Max)
		}
		wantHung(t, p.Err(), "operator neardup", "the state of neardup", "MILLRACE_BATCH_DEADLINE_MAX")
		if p.Hung() == nil {
			t.Error("the pipeline isn't hung")
		}
		if err := s.Replay([]byte("no entry")); !errors.Is(err, device.ErrHung) {
			t.Errorf("a call of a hung device: %v", err)
		}
		for _, closes := range []func() error{s.Close, p.Close} {
			if err := closes(); err != nil {
				t.Error(err)
			}
		}
		close(let)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
