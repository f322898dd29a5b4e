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

// direction is the direction of copies, or both at once.
type direction struct {
	name     string
	in, out  bool
	pageable bool // the host's memory is not pinned
}

var (
	pinnedIn   = direction{name: "pinned-in", in: true}
	pinnedOut  = direction{name: "pinned-out", out: true}
	pinnedBoth = direction{name: "pinned-both", in: true, out: true}
	pageableIn = direction{name: "pageable-in", in: true, pageable: true}
)

// copyBuffers is how many buffers the copies of one direction use in turn, as batches do.
const copyBuffers = 2

// copyShare is the part of a turn that copies are measured for, as 1 over copyShare: they need no time to settle.
const copyShare = 4

// copies measures copies between host and device while nothing else runs: the ceiling of every pipeline.
type copies struct {
	t         *target
	direction direction
	bytes     int

	streams [2]device.Stream // in, out
	from    [copyBuffers]device.HostBuffer
	to      [copyBuffers]device.HostBuffer
	sink    device.Memory // the target of copies in
	source  device.Memory // the source of copies out
	unmap   func() error  // for pageable memory
}

// copies makes a case that makes copies of that many bytes.
func (t *target) copies(d direction, bytes int) *Case {
	k := &copies{t: t, direction: d, bytes: bytes}
	return &Case{
		Row:     report.Row{Name: d.name, Device: t.info.ID, BatchBytes: bytes},
		Measure: k.measure, Close: k.close,
	}
}

// open takes streams and memory, once. After a failure, close frees what open has taken.
func (k *copies) open() (err error) {
	if k.streams[0] != nil {
		return nil
	}
	dev := k.t.dev
	if k.direction.pageable && k.t.info.Kind != "host" {
		return Unable("this device copies only from pinned memory")
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

// openFrom takes the memory to copy in from: pinned memory, or memory mapped from the system, because a device must not
// get memory of the Go heap.
func (k *copies) openFrom() (err error) {
	if !k.direction.pageable {
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
		if k.from[i].Len() > 0 && !k.direction.pageable {
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

// measure implements Case.Measure.
func (k *copies) measure(_ context.Context, c *Case, seed uint64) error {
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
	if err := c.timed(k.t.Turn()/copyShare, copyBuffers, k.burst); err != nil {
		return err
	}
	return k.verify((c.paced() - 1) % copyBuffers)
}

// burst makes n copies in each direction, one after the other, and waits for all.
func (k *copies) burst(n int) (time.Duration, error) {
	start := time.Now()
	for i := range n {
		if k.direction.in {
			if err := k.streams[0].CopyIn(k.sink, k.from[i%copyBuffers]); err != nil {
				return 0, err
			}
		}
		if k.direction.out {
			if err := k.streams[1].CopyOut(k.to[i%copyBuffers], k.source); err != nil {
				return 0, err
			}
		}
	}
	err := errors.Join(k.streams[0].Synchronize(), k.streams[1].Synchronize())
	return time.Since(start), err
}

// verify checks the bytes of the last copy in each direction, which used the host buffers of that number.
func (k *copies) verify(last int) error {
	if k.direction.out && !bytes.Equal(k.to[last].Bytes(), k.from[0].Bytes()) {
		return errWrong{fmt.Errorf("WRONG RESULT: %d bytes copied out differ from those on the device", k.bytes)}
	}
	if !k.direction.in {
		return nil
	}
	if err := k.streams[0].CopyOut(k.to[0], k.sink); err != nil {
		return err
	}
	if err := k.streams[0].Synchronize(); err != nil {
		return err
	}
	if !bytes.Equal(k.to[0].Bytes(), k.from[last].Bytes()) {
		return errWrong{fmt.Errorf("WRONG RESULT: %d bytes copied in and out again differ", k.bytes)}
	}
	return nil
}
