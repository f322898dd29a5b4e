package quarantine

import (
	"context"
	"errors"

	"millrace/internal/device"
	"millrace/internal/streams"
)

// Search runs parts of a failed batch again. A Rerun implements it.
type Search interface {
	// Run computes rows in a separate batch, and keeps their results if the batch succeeds.
	Run(ctx context.Context, rows []int) error

	// Probe checks that the device works.
	Probe(ctx context.Context) error

	// SetAside handles rows that failed with err, where err isn't an operator failure. If SetAside returns an error, the search ends.
	SetAside(ctx context.Context, rows []int, err error) error
}

// Failing is a payload or a record on which the operators failed when it ran alone.
type Failing struct {
	Row int // index in the batch
	Err error
}

// FindFailing returns the rows on which the operators fail alone, after they failed with err on a batch of rows. After it has
// tried all rows, it confirms each failure, and probes the device before and after the confirmation. On an error, it returns no
// rows, and some rows may not have been tried.
func FindFailing(ctx context.Context, r Search, rows []int, err error) ([]Failing, error) {
	if err := r.Probe(ctx); err != nil {
		return nil, err
	}
	suspects, err := search(ctx, r, rows, err, nil)
	if err != nil {
		return nil, err
	}
	return confirm(ctx, r, suspects)
}

// OperatorFailed reports whether a payload may be the cause of err. It returns false if the device is lost or not ready, memory
// ran out, or the context ended.
func OperatorFailed(err error) bool {
	return err != nil && !streams.Ended(err) && !errors.Is(err, device.ErrOutOfMemory) && !errors.Is(err, device.ErrNotReady) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// search bisects rows after the operators failed on them with err. It appends the rows that fail alone to found.
func search(ctx context.Context, r Search, rows []int, err error, found []Failing) ([]Failing, error) {
	if len(rows) == 1 {
		return append(found, Failing{rows[0], err}), nil
	}
	half := len(rows) / 2
	for _, part := range [][]int{rows[:half], rows[half:]} {
		err := r.Run(ctx, part)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case OperatorFailed(err):
			found, err = search(ctx, r, part, err, found)
		default:
			err = r.SetAside(ctx, part, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// confirm runs each suspect alone once more, between probes, and returns the rows on which the operators fail again.
func confirm(ctx context.Context, r Search, suspects []Failing) (guilty []Failing, err error) {
	for _, s := range suspects {
		if err := r.Probe(ctx); err != nil {
			return nil, err
		}
		one := []int{s.Row}
		err := r.Run(ctx, one)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case OperatorFailed(err):
			guilty = append(guilty, Failing{s.Row, err})
			err = nil
		default:
			err = r.SetAside(ctx, one, err)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(guilty) == 0 {
		return nil, nil
	}
	return guilty, r.Probe(ctx)
}
