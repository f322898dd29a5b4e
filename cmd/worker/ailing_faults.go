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

// ailmentVariable has the device of a worker built for tests fail, from a batch on and for good: "launch@20" refuses the 20th
// and all that follow. It is empty for a device that is well.
const ailmentVariable = "AILING_DEVICE"

// ailments are the ways to fail. A foreign error is of no kind that this program knows.
var ailments = map[string]error{
	"launch":  device.Errorf("launch", "ailing", device.ErrLaunch, "injected"),
	"invalid": device.Errorf("launch", "ailing", device.ErrInvalid, "injected"),
	"foreign": errors.New("injected error of an unknown kind (code 810)"),
	"lost":    device.Errorf("launch", "ailing", device.ErrLost, "injected"),
}

// standInFor is the CPU device, or one that fails as ailmentVariable says.
func standInFor(d device.Device) (device.Device, error) {
	text := os.Getenv(ailmentVariable)
	if text == "" {
		return d, nil
	}
	kind, from, _ := strings.Cut(text, "@")
	n, err := strconv.Atoi(from)
	if ailments[kind] == nil || err != nil {
		return nil, errors.Join(fmt.Errorf("%s=%q: want one of the ways to fail, @, and the first batch that does", ailmentVariable, text), d.Close())
	}
	return &ailingDevice{Device: d, fails: ailments[kind], from: n}, nil
}

// ailingDevice is a device on which everything fails from a batch on.
type ailingDevice struct {
	device.Device
	fails error
	from  int

	mu      sync.Mutex
	batches int
}

func (d *ailingDevice) Enqueue(commands []device.Command) error {
	d.mu.Lock()
	d.batches++
	ill := d.batches >= d.from
	d.mu.Unlock()
	if ill {
		return d.fails
	}
	return d.Device.Enqueue(commands)
}

func (d *ailingDevice) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.batches >= d.from && errors.Is(d.fails, device.ErrLost) {
		return d.fails
	}
	return d.Device.Err()
}

func (d *ailingDevice) Check(ctx context.Context) error {
	if err := d.Err(); err != nil {
		return err
	}
	return d.Device.Check(ctx)
}
