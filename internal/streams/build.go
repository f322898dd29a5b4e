package streams

import (
	"errors"
	"fmt"

	"millrace/internal/alloc"
	"millrace/internal/device"
)

// build takes everything the pipeline needs, once. What it took before a failure, free gives back.
func (p *Pipeline) build() error {
	for _, op := range p.cfg.Operators {
		k, err := p.dev.Kernel(op.Name(), op.Params())
		if err != nil {
			return fmt.Errorf("operator %s: %w", op, err)
		}
		p.kernels = append(p.kernels, k)
	}
	var err error
	if p.scratch, err = alloc.NewScratch(p.dev, p.cfg.ScratchLimit); err != nil {
		return err
	}
	region := alignUp(p.cfg.BatchBytes, tableAlign) + 4*(p.cfg.BatchPayloads+1)
	results := p.largestResult()
	batches := p.schedule.Lanes * p.schedule.Buffers
	p.slab, err = alloc.NewSlab(p.dev, alloc.Layout{Buffers: batches, InBytes: region, OutBytes: results})
	if err != nil {
		return err
	}
	stages, err := p.stageStreams()
	if err != nil {
		return err
	}
	for i := range p.schedule.Lanes {
		if err := p.addLane(i, stages, region, results); err != nil {
			return fmt.Errorf("lane %d: %w", i, err)
		}
	}
	p.freeSlots = make(chan struct{}, batches)
	p.completed = make(chan *Batch, batches)
	for range batches {
		p.freeSlots <- struct{}{}
	}
	return nil
}

// largestResult is the result room of the largest batch the bounds allow, in bytes.
func (p *Pipeline) largestResult() int {
	bytes := 0
	shape := device.Shape{Rows: p.cfg.BatchPayloads, Bytes: p.cfg.BatchBytes, Longest: p.cfg.BatchBytes}
	for _, k := range p.kernels {
		bytes = alignUp(bytes+k.Needs(shape).Result, resultAlign)
	}
	return max(bytes, resultAlign)
}

// stageStreams makes the streams that lanes share, in the topology that has such.
func (p *Pipeline) stageStreams() (stages [NumEngines]device.Stream, err error) {
	if p.schedule.Topology != StreamPerStage {
		return stages, nil
	}
	for e := range NumEngines {
		if stages[e], err = p.newStream(e.String()); err != nil {
			return stages, err
		}
	}
	return stages, nil
}

func (p *Pipeline) newStream(name string) (device.Stream, error) {
	s, err := p.dev.NewStream(name)
	if err == nil {
		p.streams = append(p.streams, s)
	}
	return s, err
}

func (p *Pipeline) addLane(i int, stages [NumEngines]device.Stream, region, results int) error {
	l := &lane{
		index: i, idle: make(chan struct{}, 1),
		in: stages[CopyInEngine], kern: stages[ComputeEngine], out: stages[CopyOutEngine],
	}
	p.lanes = append(p.lanes, l)
	if l.in == nil {
		s, err := p.newStream(fmt.Sprintf("lane-%d", i))
		if err != nil {
			return err
		}
		l.in, l.kern, l.out = s, s, s
	}
	var err error
	if l.input, err = p.dev.Alloc(region); err != nil {
		return err
	}
	if l.result, err = p.dev.Alloc(results); err != nil {
		return err
	}
	for range p.schedule.Buffers {
		if err := p.addBatch(l); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pipeline) addBatch(l *lane) error {
	slot := len(p.slots)
	b := &Batch{
		pipe: p, lane: l, slot: slot, in: p.slab.In(slot), out: p.slab.Out(slot),
		offsets: make([]uint32, 0, p.cfg.BatchPayloads+1),
		results: make([]resultSpan, 0, len(p.kernels)),
	}
	p.slots = append(p.slots, b)
	l.batches = append(l.batches, b)
	for _, e := range b.events() {
		var err error
		if *e, err = p.dev.NewEvent(true); err != nil {
			return err
		}
	}
	return nil
}

// events are the marks between the stages, in order.
func (b *Batch) events() [4]*device.Event {
	return [...]*device.Event{&b.start, &b.copiedIn, &b.computed, &b.copiedOut}
}

// Close ends the pipeline: it waits for work on the device, whose batches do not come back any more, and
// gives all memory back. Batches in the caller's hand must not be touched afterwards. Errors of a device
// that is lost are left out, since Err has told them. A second Close returns nil.
func (p *Pipeline) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	lost := p.err != nil
	if !lost {
		p.err = ErrClosed
		close(p.over)
	}
	p.moved.Broadcast()
	p.mu.Unlock()

	var errs []error
	for _, l := range p.lanes {
		errs = append(errs, l.drain())
	}
	p.stop()
	<-p.stopped
	errs = append(errs, p.free())
	if lost {
		return nil
	}
	return errors.Join(errs...)
}

// free gives back whatever build took. Nothing may be in flight.
func (p *Pipeline) free() error {
	var errs []error
	for _, b := range p.slots {
		for _, e := range b.events() {
			if *e != nil {
				errs = append(errs, (*e).Close())
			}
		}
	}
	for _, s := range p.streams {
		errs = append(errs, s.Close())
	}
	for _, l := range p.lanes {
		for _, m := range []device.Memory{l.input, l.result} {
			if m.Bytes > 0 {
				errs = append(errs, p.dev.Free(m))
			}
		}
	}
	if p.slab != nil {
		errs = append(errs, p.slab.Close())
	}
	if p.scratch != nil {
		errs = append(errs, p.scratch.Close())
	}
	for _, k := range p.kernels {
		errs = append(errs, k.Close())
	}
	return errors.Join(errs...)
}
