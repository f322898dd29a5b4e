//go:build faults

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"millrace/internal/device"
)

// failureVariable makes the device of a test build fail permanently. With "launch@20", the device refuses the 20th batch and all later
// batches. With "state@20", the 20th decision of all states reports that the device is lost. With "state_hangs@20", that decision never
// returns. If the variable is empty, the device works.
const failureVariable = "FAILING_DEVICE"

// failures maps the name of each kind of failure to the error that the device returns. The program can't classify the
// error of the kind "foreign".
var failures = map[string]error{
	"launch":  device.Errorf("launch", "failing", device.ErrLaunch, "injected"),
	"invalid": device.Errorf("launch", "failing", device.ErrInvalid, "injected"),
	"foreign": errors.New("injected error of an unknown kind (code 810)"),
	"lost":    device.Errorf("launch", "failing", device.ErrLost, "injected"),
	"state":   device.Errorf("apply", "failing", device.ErrLost, "injected"),

	stateHangs: device.Errorf("apply", "failing", device.ErrLost, "never returned"),
}

const stateHangs = "state_hangs"

// injectFailures returns d, or a device on d that fails as failureVariable specifies.
func injectFailures(d device.Device) (device.Device, error) {
	text := os.Getenv(failureVariable)
	if text == "" {
		return d, nil
	}
	kind, from, _ := strings.Cut(text, "@")
	n, err := strconv.Atoi(from)
	if failures[kind] == nil || err != nil {
		return nil, errors.Join(fmt.Errorf("%s=%q: want a kind of failure, @, and the number of the first batch that fails", failureVariable, text), d.Close())
	}
	return &failingDevice{Device: d, fails: failures[kind], from: n, ofStates: strings.HasPrefix(kind, "state"), hangs: kind == stateHangs}, nil
}

// failingDevice fails the batch with the number in from, and every later batch. If ofStates is set, it counts decisions of states instead.
type failingDevice struct {
	device.Device
	fails    error
	from     int
	ofStates bool
	hangs    bool // decisions don't return

	mu    sync.Mutex
	count int
}

// failing counts a batch or a decision, and reports whether it fails.
func (f *failingDevice) failing(ofState bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ofState == f.ofStates {
		f.count++
	}
	return f.count >= f.from
}

func (f *failingDevice) Enqueue(commands []device.Command) error {
	if f.failing(false) && !f.hangs {
		return f.fails
	}
	return f.Device.Enqueue(commands)
}

func (f *failingDevice) NewState(name string, params []byte, size device.StateSize) (device.State, error) {
	if err := f.Err(); err != nil {
		return nil, err
	}
	s, err := f.Device.NewState(name, params, size)
	return failingState{s, f}, err
}

type failingState struct {
	device.State
	dev *failingDevice
}

func (s failingState) Apply(positions []device.Position, keys []byte) (device.Decisions, error) {
	switch failing := s.dev.failing(true); {
	case failing && s.dev.hangs:
		select {}
	case failing:
		return nil, s.dev.fails
	}
	return s.State.Apply(positions, keys)
}

func (f *failingDevice) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count >= f.from && errors.Is(f.fails, device.ErrLost) && !f.hangs {
		return f.fails
	}
	return f.Device.Err()
}

func (f *failingDevice) Check(ctx context.Context) error {
	if err := f.Err(); err != nil {
		return err
	}
	return f.Device.Check(ctx)
}
