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

// failureVariable makes the device of a test build fail permanently. With "launch@20", the device refuses the 20th
// batch and all later ones. If the variable is empty, the device works.
const failureVariable = "FAILING_DEVICE"

// failures maps the name of each kind of failure to the error that the device returns. The program can't classify the
// error of the kind "foreign".
var failures = map[string]error{
	"launch":  device.Errorf("launch", "failing", device.ErrLaunch, "injected"),
	"invalid": device.Errorf("launch", "failing", device.ErrInvalid, "injected"),
	"foreign": errors.New("injected error of an unknown kind (code 810)"),
	"lost":    device.Errorf("launch", "failing", device.ErrLost, "injected"),
}

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
	return &failingDevice{Device: d, fails: failures[kind], from: n}, nil
}

// failingDevice fails the batch with the number in from, and every later batch.
type failingDevice struct {
	device.Device
	fails error
	from  int

	mu      sync.Mutex
	batches int
}

func (f *failingDevice) Enqueue(commands []device.Command) error {
	f.mu.Lock()
	f.batches++
	failing := f.batches >= f.from
	f.mu.Unlock()
	if failing {
		return f.fails
	}
	return f.Device.Enqueue(commands)
}

func (f *failingDevice) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.batches >= f.from && errors.Is(f.fails, device.ErrLost) {
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
