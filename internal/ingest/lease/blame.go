package lease

import (
	"context"
	"errors"
	"fmt"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
)

// errHeldBack ends a lease if a payload fails alone and no other payload has succeeded since the failure. The next
// lease compares the payload with later ones.
var errHeldBack = errors.New("an operator fails on the first payload alone, and no other has come right since")

// rescue computes the payloads of a failed batch again. Afterwards g has the results of all payloads except the failing
// ones, which become dead letters. If rescue returns an error, the lease ends and no payload becomes a dead letter.
func (s *storer) rescue(ctx context.Context, g *inflight.Batch) error {
	s.o.Devices.report(g)
	failure := fmt.Errorf("a batch of %d payloads from sequence %d on failed: %w", g.Messages(), g.Source(0).Sequence, g.Err)
	switch {
	case quarantine.OperatorFailed(g.Err):
		s.log.Error("an operator failed on a batch; looking for the payload to blame, once the device has proved to be well",
			"payloads", g.Messages(), "error", g.Err)
	case g.Record.Parts == 1 || s.device.lost() != nil:
		return failure
	default: // an input of another partition may be the cause, for example one that needs too much memory
		s.log.Warn("a batch of several partitions failed; computing this partition's payloads apart", "payloads", g.Messages(), "error", g.Err)
	}
	r, all := s.rerun(g), g.UnsettledRows()
	if err := r.Probe(ctx); err != nil {
		return err
	}
	if err := r.Compute(ctx, all); err != nil { // the failure may have been random
		return fmt.Errorf("%w, and computing it again: %w", failure, err)
	}
	r.Collect(all)
	return nil
}

// rerun returns a Rerun of g.
func (s *storer) rerun(g *inflight.Batch) *quarantine.Rerun {
	return &quarantine.Rerun{Batch: g, Pipe: s.pipe, Device: s.device, Judge: s.o.Judge, Policy: s, Limit: s.o.Limit}
}

// SetAside implements quarantine.Policy. Its error ends the lease.
func (s *storer) SetAside(_ context.Context, _ *quarantine.Rerun, _ []int, err error) error {
	return err
}

// HoldBack implements quarantine.Policy. Its error ends the lease.
func (s *storer) HoldBack(context.Context, *quarantine.Rerun, quarantine.Failing) error {
	return errHeldBack
}

// Compare implements quarantine.Policy. It compares a payload that failed alone with payloads that follow in the stream.
func (s *storer) Compare(ctx context.Context, r *quarantine.Rerun, failing []quarantine.Failing, since uint64) (quarantine.Comparison, error) {
	if len(quarantine.Sources(r.Batch, failing)) > 1 || s.o.Judge.Batches(s.pipe) != since || s.caution.comparing {
		return quarantine.Comparison{Since: since, Idle: func() bool { return false }}, nil
	}
	return s.compare(ctx, r.Batch, since)
}

// readMax is the maximum number of messages that compare reads.
const readMax = 64

// compare computes payloads that follow the group in the stream, one by one, until one succeeds. The group itself has
// no other payload to compare with. compare drops the results, because the payloads are computed again later. An
// annotation exists while compare runs. If the worker dies during that time, the next owner doesn't compare.
func (s *storer) compare(ctx context.Context, g *inflight.Batch, since uint64) (quarantine.Comparison, error) {
	c := quarantine.Comparison{Since: since}
	if err := s.notes.annotate(ctx, map[string]string{annotationBeside: fmt.Sprint(g.Source(0).Sequence)}); err != nil {
		return c, err
	}
	reader, found := s.server.reader(), 0
	from := g.Source(g.Rows() - 1).Sequence
	for reads := 0; reads < readMax && found < quarantine.MaxInRow && s.o.Judge.Batches(s.pipe) == since; reads++ {
		raw, err := reader.read(ctx, from+1)
		if err != nil {
			return c, fmt.Errorf("read a payload to compare with: %w", err)
		}
		if raw == nil {
			break
		}
		from = raw.Sequence
		if !s.stored.matches(raw.Subject) || s.isTooLarge(len(raw.Data)) {
			continue
		}
		found++
		d := s.stored.delivery(raw, 0)
		s.o.Pool.Unpack(&d)
		beside := g.NewPart()
		beside.Add(d)
		err = s.rerun(beside).Run(ctx, []int{0})
		s.o.Pool.Release(&d)
		switch {
		case quarantine.OperatorFailed(err):
			c.Others++
		case err != nil:
			return c, err
		}
	}
	c.Idle = func() bool { return found == 0 }
	return c, s.notes.annotate(ctx, map[string]string{annotationBeside: ""})
}
