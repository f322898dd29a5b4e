package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
)

// way is a direction of copies, or both at once.
type way struct {
	name     string
	in, out  bool
	pageable bool // the host's memory is not pinned
}

var (
	pinnedIn   = way{name: "pinned-in", in: true}
	pinnedOut  = way{name: "pinned-out", out: true}
	pinnedBoth = way{name: "pinned-both", in: true, out: true}
	pageableIn = way{name: "pageable-in", in: true, pageable: true}
)

// copyBuffers is how many buffers copies of one direction go through in turn, as batches would.
const copyBuffers = 2

// copyShare is how much shorter than others a copy is measured: nothing about it needs to settle.
const copyShare = 4

// copies measures copies between host and device with nothing beside them: the ceiling of every pipeline.
type copies struct {
	t     *target
	way   way
	bytes int
	times int // a round, each way; 0 until the first round has found it

	streams [2]device.Stream // in, out
	from    [copyBuffers]device.HostBuffer
	to      [copyBuffers]device.HostBuffer
	sink    device.Memory // what is copied in lands here
	source  device.Memory // what is copied out comes from here
	unmap   func() error  // for pageable memory
}

// copies makes a contender of copies of bytes.
func (t *target) copies(w way, bytes int) *contender {
	k := &copies{t: t, way: w, bytes: bytes}
	return &contender{
		row:     report.Row{Group: "copy", Name: w.name, Device: t.info.ID, BatchBytes: bytes},
		measure: k.measure, close: k.close,
	}
}

// open takes streams and memory, once. What it took before a failure, close gives back.
func (k *copies) open() (err error) {
	if k.streams[0] != nil {
		return nil
	}
	dev := k.t.dev
	if k.way.pageable && k.t.info.Kind != "host" {
		return errUnable{errors.New("this device copies from pinned memory alone")}
	}
	for i, name := range []string{"bench in", "bench out"} {
		if k.streams[i], err = dev.NewStream(name); err != nil {
			return err
		}
	}
	for i := range copyBuffers {
		if k.to[i], err = dev.AllocHost(k.bytes); err != nil {
			return err
		}
	}
	if err := k.openFrom(); err != nil {
		return err
	}
	if k.sink, err = dev.Alloc(k.bytes); err != nil {
		return err
	}
	k.source, err = dev.Alloc(k.bytes)
	return err
}

// openFrom takes the memory to copy in from: pinned, or the system's own, since a device must not be handed Go's.
func (k *copies) openFrom() (err error) {
	if !k.way.pageable {
		for i := range copyBuffers {
			if k.from[i], err = k.t.dev.AllocHost(k.bytes); err != nil {
				return err
			}
		}
		return nil
	}
	memory, err := syscall.Mmap(-1, 0, copyBuffers*k.bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("pageable memory of %d bytes: %w", copyBuffers*k.bytes, err)
	}
	k.unmap = func() error { return syscall.Munmap(memory) }
	whole := device.NewHostBuffer(memory, device.Pageable, nil)
	for i := range copyBuffers {
		k.from[i] = whole.Slice(i*k.bytes, k.bytes)
	}
	return nil
}

func (k *copies) close() error {
	var errs []error
	for _, s := range k.streams {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	for i := range copyBuffers {
		if k.to[i].Len() > 0 {
			errs = append(errs, k.t.dev.FreeHost(k.to[i]))
		}
		if k.from[i].Len() > 0 && !k.way.pageable {
			errs = append(errs, k.t.dev.FreeHost(k.from[i]))
		}
	}
	for _, m := range []device.Memory{k.sink, k.source} {
		if m.Bytes > 0 {
			errs = append(errs, k.t.dev.Free(m))
		}
	}
	if k.unmap != nil {
		errs = append(errs, k.unmap())
	}
	return errors.Join(errs...)
}

// measure implements contender.measure.
func (k *copies) measure(_ context.Context, c *contender, seed uint64) error {
	if err := k.open(); err != nil {
		return err
	}
	for i := range k.from {
		random(k.from[i].Bytes(), derive(seed, i), 0, ^uint64(0))
	}
	if err := k.streams[0].CopyIn(k.source, k.from[0]); err != nil {
		return err
	}
	if err := k.streams[0].Synchronize(); err != nil {
		return err
	}
	var err error
	if k.times == 0 {
		k.times, err = pace(k.t.turn()/copyShare, copyBuffers, k.burst)
	} else {
		_, err = k.burst(copyBuffers)
	}
	if err != nil {
		return err
	}
	took, err := k.burst(k.times)
	if err != nil {
		return err
	}
	c.row.Batches += k.times
	c.seconds = append(c.seconds, took.Seconds()/float64(k.times))
	return k.verify()
}

// burst makes n copies each way, one behind the other, and waits for all.
func (k *copies) burst(n int) (time.Duration, error) {
	start := time.Now()
	for i := range n {
		if k.way.in {
			if err := k.streams[0].CopyIn(k.sink, k.from[i%copyBuffers]); err != nil {
				return 0, err
			}
		}
		if k.way.out {
			if err := k.streams[1].CopyOut(k.to[i%copyBuffers], k.source); err != nil {
				return 0, err
			}
		}
	}
	err := errors.Join(k.streams[0].Synchronize(), k.streams[1].Synchronize())
	return time.Since(start), err
}

// verify looks whether the last bytes copied each way are those that were to be copied.
func (k *copies) verify() error {
	if k.way.out && !bytes.Equal(k.to[(k.times-1)%copyBuffers].Bytes(), k.from[0].Bytes()) {
		return errWrong{fmt.Errorf("WRONG RESULT: %d bytes copied out differ from those on the device", k.bytes)}
	}
	if !k.way.in {
		return nil
	}
	if err := k.streams[0].CopyOut(k.to[0], k.sink); err != nil {
		return err
	}
	if err := k.streams[0].Synchronize(); err != nil {
		return err
	}
	if !bytes.Equal(k.to[0].Bytes(), k.from[(k.times-1)%copyBuffers].Bytes()) {
		return errWrong{fmt.Errorf("WRONG RESULT: %d bytes copied in and out again differ", k.bytes)}
	}
	return nil
}
