package bench

import (
	"context"
	"fmt"
	"time"

	"millrace/internal/streams"
)

// eachBalanced calls measure for each batch size with the kernel that is balanced for that size.
func (t *target) eachBalanced(ctx context.Context, measure func(m mix, bytes int) error) error {
	for _, bytes := range t.sizes() {
		m, err := t.balanced(ctx, bytes)
		if err != nil {
			return err
		}
		if err := measure(m, bytes); err != nil {
			return err
		}
	}
	return nil
}

// balanced returns the mix with a kernel that alone takes as long as copying a batch: the mean of copy in and copy out.
// It is determined once for each size, from the stages of the serial schedule.
func (t *target) balanced(ctx context.Context, bytes int) (mix, error) {
	if t.MixRounds > 0 {
		return mix{rounds: t.MixRounds}, nil
	}
	if t.balance[bytes] == 0 {
		t.Progress(fmt.Sprintf("balancing the kernel against copies of %s on %s", bytesText(bytes), t.info.ID))
		rounds, err := t.findBalance(ctx, bytes)
		if err != nil {
			return mix{}, fmt.Errorf("balancing the kernel against copies of %s on %s: %w", bytesText(bytes), t.info.ID, err)
		}
		if rounds == 1 {
			t.Note("The kernel is not balanced for %s on %s: with a single round it already takes longer than a copy.", bytesText(bytes), t.info.ID)
		}
		t.balance[bytes] = rounds
	}
	return mix{rounds: t.balance[bytes]}, nil
}

// findBalance doubles the rounds until the kernel takes as long as a copy, and then bisects the interval, to 2 %.
func (t *target) findBalance(ctx context.Context, bytes int) (int, error) {
	low, high := 0, maxMixRounds // the kernel is faster than a copy at low
	for high-low > 1+low/64 {
		rounds := min(max(2*low, 1), (low+high)/2)
		slower, err := t.kernelIsSlower(ctx, bytes, rounds)
		if err != nil {
			return 0, err
		}
		if slower {
			high = rounds
		} else {
			low = rounds
		}
	}
	return high, nil
}

// balanceBatches is the number of batches that each step of the search measures.
const balanceBatches = 15

// kernelIsSlower reports whether the kernel takes longer than a copy with the given number of rounds.
func (t *target) kernelIsSlower(ctx context.Context, bytes, rounds int) (slower bool, err error) {
	c, err := t.try(ctx, newWords(mix{rounds: rounds}, bytes), balanceBatches)
	if err != nil {
		return false, err
	}
	for e, values := range c.stages {
		if len(values) == 0 {
			return false, Unable("the batches have no %s to balance", streams.Engine(e))
		}
	}
	copyTime := (median(c.stages[streams.CopyInEngine]) + median(c.stages[streams.CopyOutEngine])) / 2
	return median(c.stages[streams.ComputeEngine]) >= copyTime, nil
}

// try measures some batches of l with the serial schedule. The result appears in no row.
func (t *target) try(ctx context.Context, l load, batches int) (*Case, error) {
	c, f := t.flow("", l, streams.Serial)
	c.times, f.quiet = batches, true
	return c, f.measure(ctx, c, t.seed())
}

// affordableShare limits the time of one round of the smallest pipeline to that multiple of a row's time, because each
// of its batches must run several times.
const affordableShare = 2

// afford returns the largest batch size, at most bytes, with which operators can be measured in about the time of a
// row. If that size is smaller than requested, afford adds a note. A GPU can use every size; a CPU may take seconds
// where a GPU takes milliseconds.
func (t *target) afford(ctx context.Context, what string, bytes, batches int, loadOf func(bytes int) load) (int, error) {
	const probe = 16 << 10
	if bytes <= probe || t.isGPU() {
		return bytes, nil
	}
	c, err := t.try(ctx, loadOf(probe), 3)
	if err != nil {
		return 0, fmt.Errorf("%s: trying a small batch: %w", what, err)
	}
	perByte := median(c.seconds) / probe
	budget := affordableShare * t.Turn() / time.Duration(batches)
	size := bytes
	for size > probe && perByte*float64(size) > budget.Seconds() {
		size /= 2
	}
	if size < bytes {
		t.Note("%s: batches of %s, because larger ones take too long on %s.", what, bytesText(size), t.info.ID)
	}
	return size, nil
}
