// Package conformance is the test suite that every operator must pass on every device, built in or not
// (docs/adr/0040-operators-of-your-own.md).
//
// It drives an operator through the interfaces of package device alone. It reports findings instead of failing a test, because the command
// `worker operator test` uses it too. Start reading with Open, then Runner.Test. memory.go says what surrounds a batch.
package conformance

import (
	"errors"
	"time"

	"millrace/internal/device"
	"millrace/internal/operator/compiled"
)

// Subject is an operator on a device.
type Subject struct {
	Device   device.Device      // it knows the operator by its name
	Operator *compiled.Operator // what the operator declares, with its parameters

	// Patience bounds the time of one batch on the device; 0 means one minute.
	Patience time.Duration

	// Waiting is called when a batch still runs after Notice, once for each run. A Notice of 0 means three seconds.
	Waiting func()
	Notice  time.Duration

	// Apart allocates each part of a batch separately, with exactly the bytes that it needs. Without it, the parts are spans of one
	// allocation, and tools that check addresses don't see an access from one part to another.
	Apart bool

	// Before is called before each batch with its name and -1, and before a record that is computed alone with its index. Code that
	// crashes ends the process, so this is how another process knows where.
	Before func(batch string, record int)

	// Brief leaves out batches with a record of a megabyte or more, and most runs of single records.
	Brief bool
}

// Runner runs batches of an operator on a device. It isn't safe for concurrent use, and no other goroutine may wait for completions of its
// device.
type Runner struct {
	subject    Subject
	kernel     device.Kernel
	stream     device.Stream
	begin, end device.Event // around the kernel
	buffers    buffers
	token      uint64
}

// Open binds the operator to its device. The caller closes the result before the device.
func Open(s Subject) (r *Runner, err error) {
	if s.Patience == 0 {
		s.Patience = time.Minute
	}
	if s.Notice == 0 {
		s.Notice = 3 * time.Second
	}
	if s.Before == nil {
		s.Before = func(string, int) {}
	}
	if s.Waiting == nil {
		s.Waiting = func() {}
	}
	r = &Runner{subject: s, buffers: buffers{device: s.Device, apart: s.Apart}}
	defer func() {
		if err != nil {
			_ = r.Close() // err is the error to report
		}
	}()
	if r.kernel, err = s.Device.Kernel(s.Operator.Name(), s.Operator.Params()); err != nil {
		return nil, err
	}
	if r.stream, err = s.Device.NewStream("conformance"); err != nil {
		return nil, err
	}
	for _, e := range []*device.Event{&r.begin, &r.end} {
		if *e, err = s.Device.NewEvent(device.Timed); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Close frees everything that the Runner has on its device.
func (r *Runner) Close() error {
	var errs []error
	if r.stream != nil {
		errs = append(errs, r.stream.Close())
	}
	for _, e := range []device.Event{r.begin, r.end} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if r.kernel != nil {
		errs = append(errs, r.kernel.Close())
	}
	return errors.Join(append(errs, r.buffers.free())...)
}

// operator returns what the operator declares.
func (r *Runner) operator() *compiled.Operator { return r.subject.Operator }

// resultBytes returns the bytes of the result of a batch, which the operator's declaration determines.
func resultBytes(o *compiled.Operator, s device.Shape) int { return o.Layout(s.Rows, s.Bytes).End }
