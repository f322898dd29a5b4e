package streams

// What moves batches into flight and out of it again when a submission fails, and what lets a submission wait
// for others' memory. complete.go has the ordinary way out.

// submitted takes a filling batch into flight.
func (p *Pipeline) submitted(b *Batch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	b.lane.move(b, inFlight)
	b.submitting = true
	p.inFlight++
	return nil
}

// notify enqueues the batch's completion, and with that lets the batch go.
func (p *Pipeline) notify(b *Batch) error {
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return p.err
	}
	b.submitting = false
	p.mu.Unlock()

	err := b.lane.out.Notify(uint64(b.slot))
	if err == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.phase != inFlight {
		return nil // the device was lost in between, and the batch came back through Completed with that
	}
	b.submitting = true
	return err
}

// withdrawn gives a batch whose submission failed back to the caller, and ends the pipeline where the device
// is lost.
func (p *Pipeline) withdrawn(b *Batch, err error) {
	p.mu.Lock()
	b.submitting = false
	p.leaveFlight(b, filling)
	p.mu.Unlock()
	if lost := p.dev.Err(); lost != nil {
		p.fail(lost)
		return
	}
	p.reportError(err)
}

// completions counts the batches that have left flight.
func (p *Pipeline) completions() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// awaitCompletion waits until a batch has left flight since completions said seen. It returns false where
// waiting is in vain: every batch in flight waits here too, or the device is lost.
func (p *Pipeline) awaitCompletion(seen uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starved++
	p.moved.Broadcast() // who waits already may now be waiting in vain
	defer func() { p.starved-- }()
	for p.ended == seen && p.inFlight > p.starved && p.err == nil {
		p.moved.Wait()
	}
	return p.ended != seen
}
