package quarantine

import (
	"context"
)

// Search is how a search for the payloads to blame runs parts of a failed batch again.
type Search interface {
	// Run computes items of the batch in one of their own, and keeps the results where they come right.
	Run(ctx context.Context, items []int) error

	// Probe has the device prove that it is well.
	Probe(ctx context.Context) error

	// Aside takes items that could not be computed, though no operator failed on them. An error ends the search.
	Aside(ctx context.Context, items []int, err error) error
}

// Failing is a payload on which the operators failed alone.
type Failing struct {
	Item int // of the group
	Err  error
}

// FindFailing finds those of items on which the operators fail alone, where together they failed with err. All others have been
// tried when it returns, and before and after each failure alone that counts the device has computed payloads of known
// content right. With an error nobody is accused, and some items may not have been tried.
func FindFailing(ctx context.Context, r Search, items []int, err error) ([]Failing, error) {
	if err := r.Probe(ctx); err != nil {
		return nil, err
	}
	suspects, err := search(ctx, r, items, err, nil)
	if err != nil {
		return nil, err
	}
	return confirm(ctx, r, suspects)
}

// search tries each half of items, on which the operators failed with err, down to the payloads that fail alone, and adds
// those to found.
func search(ctx context.Context, r Search, items []int, err error, found []Failing) ([]Failing, error) {
	if len(items) == 1 {
		return append(found, Failing{items[0], err}), nil
	}
	half := len(items) / 2
	for _, part := range [][]int{items[:half], items[half:]} {
		err := r.Run(ctx, part)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case OperatorFailed(err):
			found, err = search(ctx, r, part, err, found)
		default:
			err = r.Aside(ctx, part, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// confirm runs each suspect alone once more, with probes before and behind, and returns those on which the operators fail
// again.
func confirm(ctx context.Context, r Search, suspects []Failing) (guilty []Failing, err error) {
	for _, s := range suspects {
		if err := r.Probe(ctx); err != nil {
			return nil, err
		}
		one := []int{s.Item}
		err := r.Run(ctx, one)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case OperatorFailed(err):
			guilty = append(guilty, Failing{s.Item, err})
			err = nil
		default:
			err = r.Aside(ctx, one, err)
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
