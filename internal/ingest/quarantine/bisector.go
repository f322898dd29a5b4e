package quarantine

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// failed is a batch that an operator failed on, on a device that is well.
type failed struct {
	pipe *streams.Pipeline
	g    *inflight.Batch // its deliveries. They count against the memory until each of them is settled
}

// Bisector takes batches that came to nothing, and looks for the payloads to blame, one batch after another.
type Bisector struct {
	queue chan failed
	trier *tester
}

// NewBisector makes a bisector that lets most batches wait. Others are given back.
func NewBisector(i Isolation, most int) *Bisector {
	return &Bisector{queue: make(chan failed, most), trier: newTester(i)}
}

// Refused takes over a batch that came to nothing. What no payload can be blamed for is given back. Otherwise
// the payload to blame is looked for; but of all batches only a few may wait for that, or fresh ones would find
// none, and others are given back to come again later.
func (s *Bisector) Refused(pipe *streams.Pipeline, g *inflight.Batch, err error) {
	if OperatorFailed(err) {
		select {
		case s.queue <- failed{pipe, g}:
			s.trier.Log.Error("an operator failed on a batch; looking for the payload to blame, once the device has proved to be well", "payloads", len(g.Items), "error", err)
			return
		default:
		}
	}
	s.giveBack(g, err)
	if !streams.Ended(err) {
		s.trier.Log.Error("the device refused a batch; its payloads are delivered again later", "error", err)
	}
}

// Run finds the payloads to blame in one failed batch after another, until done.
func (s *Bisector) Run(done <-chan struct{}, hard context.Context) {
	for {
		select {
		case f := <-s.queue:
			err := s.trier.probe(hard, f.pipe)
			if err == nil {
				err = s.trier.try(hard, f.pipe, f.g, f.g.Unsettled())
			}
			if err == nil {
				err = context.Canceled
			}
			s.giveBack(f.g, err) // what a lost device or the end of the drain left
		case <-done:
			return
		}
	}
}

// giveBack gives back what is left of a batch.
func (s *Bisector) giveBack(g *inflight.Batch, why error) {
	for _, i := range g.Unsettled() {
		g.Settle(i)
		s.trier.Ends.GiveBack(&g.Items[i], why)
	}
	s.trier.Pool.Recycle(g)
}
