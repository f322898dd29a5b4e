package streams_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// broken is a kernel that fails on a batch whose first payload is "bad", or on every batch if always is set. On a batch
// whose first payload is "endless", it ends only after ends is closed.
type broken struct {
	device.HostKernel
	ends   <-chan struct{}
	always bool
}

func (b broken) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := b.HostKernel.Bind(params)
	return brokenBound{bound, b}, err
}

type brokenBound struct {
	device.BoundHostKernel
	kernel broken
}

func (b brokenBound) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	switch first := string(rows[:offsets[1]]); {
	case first == "bad", b.kernel.always:
		return errors.New("the payload is bad")
	case first == "endless":
		<-b.kernel.ends
	}
	return b.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
}

// silent hides the name of the failed kernel, as a GPU does, in the calls with which a pipeline detects a loss. Calls
// on streams and events still return the name.
type silent struct{ device.Device }

func (s silent) Err() error { return withoutOperator(s.Device.Err()) }

func (s silent) Enqueue(commands []device.Command) error {
	return withoutOperator(s.Device.Enqueue(commands))
}

func (s silent) WaitCompletion(ctx context.Context) (uint64, error) {
	token, err := s.Device.WaitCompletion(ctx)
	return token, withoutOperator(err)
}

func withoutOperator(err error) error {
	var e *device.Error
	if !errors.As(err, &e) {
		return err
	}
	return &device.Error{Op: e.Op, Device: e.Device, Kind: e.Kind, Code: e.Code}
}

// openBroken opens a host device that doesn't report which kernel failed. The kernel with the given name is broken.
func openBroken(t *testing.T, name string, ends <-chan struct{}) device.Device {
	t.Helper()
	return openWith(t, name, broken{ends: ends})
}

func openWith(t *testing.T, name string, b broken) device.Device {
	t.Helper()
	kernels := operator.HostKernels()
	i := slices.IndexFunc(kernels, func(k device.HostKernel) bool { return k.Name() == name })
	b.HostKernel = kernels[i]
	kernels[i] = b
	d, err := host.Open(host.Options{Cores: 2, Kernels: kernels})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // the device is lost
	return silent{d}
}

const bothOperators = "crc32c,minhash?hashes=8"

// TestTheOperatorThatFailsIsNamed checks that the error names the operator only if it is known. The device reports the loss, but not the
// kernel that caused it.
func TestTheOperatorThatFailsIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		list, broken, want string
		steps, beside      bool
	}{
		"the first of two, in steps":       {list: bothOperators, broken: "crc32c", steps: true, want: "crc32c"},
		"the last of two, in steps":        {list: bothOperators, broken: "minhash", steps: true, want: "minhash"},
		"of two, not in steps":             {list: bothOperators, broken: "minhash"},
		"of two, in steps, beside another": {list: bothOperators, broken: "minhash", steps: true, beside: true},
		"the only one":                     {list: "minhash?hashes=8", broken: "minhash", want: "minhash"},
	} {
		t.Run(name, func(t *testing.T) {
			ends := make(chan struct{})
			d := openBroken(t, c.broken, ends)
			seen := &recorder{}
			p := newPipeline(t, d, streams.Options{Operators: operators(t, c.list), Lanes: 2, Observer: seen})
			if c.beside {
				submitBatch(t, acquire(t, p, [][]byte{[]byte("endless")}))
			}
			b := acquire(t, p, [][]byte{[]byte("bad")})
			if c.steps {
				b.StepThrough(nil)
			}
			err := b.Submit(streams.ClosedByCount)
			<-p.Over()
			close(ends)
			if got := device.FailedOperator(p.Err()); got != c.want {
				t.Errorf("the pipeline's error names %q, want %q: %v", got, c.want, p.Err())
			}
			if named := device.FailedOperator(err); err != nil && named != c.want && named != c.broken { // errors of stream calls contain the name
				t.Errorf("Submit's error names %q, want %q: %v", device.FailedOperator(err), c.want, err)
			}
			if c.want != "" && !strings.Contains(p.Err().Error(), "operator "+c.want+": ") {
				t.Errorf("the text doesn't name %s: %v", c.want, p.Err())
			}
			if !errors.Is(p.Err(), device.ErrKernelFault) {
				t.Errorf("the loss changed to %v", p.Err())
			}
			if kinds := seen.errors(); !slices.Equal(kinds, []string{"lost"}) {
				t.Errorf("device errors %v, want one loss", kinds)
			}
		})
	}
}

func submitBatch(t *testing.T, b *streams.Batch) {
	t.Helper()
	if err := b.Submit(streams.ClosedByCount); err != nil {
		t.Fatal(err)
	}
}

// TestTheOperatorThatHangsIsNamed checks that the error names the operator only if it is known.
func TestTheOperatorThatHangsIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		list, hangs, want string
		steps             bool
	}{
		"the first of two, in steps": {list: bothOperators, hangs: "crc32c", steps: true, want: "crc32c"},
		"the last of two, in steps":  {list: bothOperators, hangs: "minhash", steps: true, want: "minhash"},
		"of two, not in steps":       {list: bothOperators, hangs: "minhash"},
		"the only one":               {list: "crc32c", hangs: "crc32c", want: "crc32c"},
	} {
		t.Run(name, func(t *testing.T) {
			ends := make(chan struct{})
			d := openBroken(t, c.hangs, ends)
			t.Cleanup(func() { close(ends) }) // runs before the device is closed
			p := newPipeline(t, d, streams.Options{Operators: operators(t, c.list), Deadline: streams.Deadline{Min: 20 * time.Millisecond, Max: 50 * time.Millisecond}})
			b := acquire(t, p, [][]byte{[]byte("endless")})
			if c.steps {
				b.StepThrough(nil)
			}
			if err := b.Submit(streams.ClosedByCount); err == nil {
				b = <-p.Completed()
				if got := device.FailedOperator(b.Err()); got != c.want {
					t.Errorf("the batch's error names %q, want %q: %v", got, c.want, b.Err())
				}
			} else if got := device.FailedOperator(err); got != c.want {
				t.Errorf("Submit's error names %q, want %q: %v", got, c.want, err)
			}
			if err := p.Hung(); !errors.Is(err, device.ErrHung) || device.FailedOperator(err) != c.want {
				t.Errorf("Hung = %v, want a hang of %q", err, c.want)
			}
			if err := p.Hung(); c.want == "" && !strings.Contains(err.Error(), "operators crc32c,minhash") {
				t.Errorf("%v doesn't say which operators ran", err)
			}
		})
	}
}

// TestARefusedLaunchNamesTheOperator also shows that the device continues to work.
func TestARefusedLaunchNamesTheOperator(t *testing.T) {
	for launch, want := range map[int]string{1: "crc32c", 2: "minhash"} {
		d := openSim(t, sim.Options{Faults: []sim.Fault{{Kind: sim.LaunchFailure, Nth: launch}}})
		p := newPipeline(t, d, streams.Options{Operators: operators(t, bothOperators)})
		rows := someRows(3, 20, 2000)
		b := acquire(t, p, rows)
		b.StepThrough(nil)
		err := b.Submit(streams.ClosedByCount)
		if !errors.Is(err, device.ErrLaunch) || device.FailedOperator(err) != want {
			t.Fatalf("launch %d: Submit = %v, want a refused launch of %s", launch, err, want)
		}
		submitBatch(t, b)
		got := <-p.Completed()
		wantResults(t, got, operators(t, bothOperators), rows)
		got.Release()
	}
}

// TestStepsEndWithTheirCaller checks that a submission stops waiting for a kernel when its caller's stop channel is closed.
func TestStepsEndWithTheirCaller(t *testing.T) {
	ends, stop := make(chan struct{}), make(chan struct{})
	d := openBroken(t, "crc32c", ends)
	p := newPipeline(t, d, streams.Options{Operators: operators(t, bothOperators)})
	b := acquire(t, p, [][]byte{[]byte("endless")})
	b.StepThrough(stop)
	submitted := make(chan error, 1)
	go func() { submitted <- b.Submit(streams.ClosedByCount) }()
	close(stop)
	if err := <-submitted; err != nil {
		t.Errorf("Submit = %v", err)
	}
	close(ends)
	b = <-p.Completed()
	if err := b.Err(); err != nil {
		t.Error(err)
	}
	b.Release()
}

// TestAProbeNamesTheOperatorThatFails checks that a probe finds such an operator before the worker pulls any payload.
func TestAProbeNamesTheOperatorThatFails(t *testing.T) {
	for _, name := range []string{"crc32c", "minhash"} {
		p := newPipeline(t, openWith(t, name, broken{always: true}), streams.Options{Operators: operators(t, bothOperators)})
		if err := p.Probe(t.Context()); !errors.Is(err, device.ErrKernelFault) || device.FailedOperator(err) != name {
			t.Errorf("Probe = %v, want a loss by %s", err, name)
		}
		if p.LostAt().IsZero() {
			t.Error("LostAt is zero after a loss")
		}
	}
}
