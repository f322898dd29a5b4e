package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/streams"
)

// balanced is the mix whose kernel alone takes as long as a copy of a batch of bytes: the mean of copy in and copy
// out. It is found by the stages of the serial schedule, once for each size.
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
			t.note("the balanced kernel takes longer than a copy of %s whatever it does on %s: it is not balanced", bytesText(bytes), t.info.ID)
		}
		t.balance[bytes] = rounds
	}
	return mix{rounds: t.balance[bytes]}, nil
}

// findBalance doubles the rounds until the kernel takes as long as a copy, and then halves the interval.
func (t *target) findBalance(ctx context.Context, bytes int) (int, error) {
	low, high := 0, 1 // the kernel is faster than a copy at low
	for ; high < maxMixRounds; low, high = high, 2*high {
		slower, err := t.kernelIsSlower(ctx, bytes, high)
		if err != nil {
			return 0, err
		}
		if slower {
			break
		}
	}
	for high-low > 1+low/64 { // to 2 %
		middle := (low + high) / 2
		slower, err := t.kernelIsSlower(ctx, bytes, middle)
		if err != nil {
			return 0, err
		}
		if slower {
			high = middle
		} else {
			low = middle
		}
	}
	return high, nil
}

// balanceBatches is how many batches each guess at the balance is judged by.
const balanceBatches = 15

// kernelIsSlower says whether mix takes longer than a copy with that many rounds.
func (t *target) kernelIsSlower(ctx context.Context, bytes, rounds int) (slower bool, err error) {
	c, f := t.flow("", "", newWords(mix{rounds: rounds}, bytes), streams.Serial)
	f.batches = balanceBatches
	f.quiet = true
	if err := f.measure(ctx, c, t.seed()); err != nil {
		return false, err
	}
	for e, samples := range c.stages {
		if len(samples) == 0 {
			return false, errUnable{fmt.Errorf("the batches have no %s to balance", streams.Engine(e))}
		}
	}
	copyTime := (median(c.stages[streams.CopyInEngine]) + median(c.stages[streams.CopyOutEngine])) / 2
	return median(c.stages[streams.ComputeEngine]) >= copyTime, nil
}

// affordableShare is how much longer than a row's time one round of the smallest pipeline may take: every batch of
// it must run a few times, whatever it takes.
const affordableShare = 2

// afford is the size of the largest batches, at most bytes, with which the operators of a load can be measured in
// about the time that a row has. It says so where they are smaller than asked for: a CPU takes seconds for what a
// GPU, which can afford everything, does in milliseconds.
func (t *target) afford(ctx context.Context, what string, bytes, batches int, loadOf func(bytes int) load) (int, error) {
	const probe = 16 << 10
	if bytes <= probe || t.isGPU() {
		return bytes, nil
	}
	c, f := t.flow("", "", loadOf(probe), streams.Serial)
	f.batches = 3
	f.quiet = true
	if err := f.measure(ctx, c, t.seed()); err != nil {
		return 0, errors.Join(fmt.Errorf("%s: trying a small batch", what), err)
	}
	perByte := median(c.seconds) / probe
	budget := affordableShare * t.turn() / time.Duration(batches)
	size := bytes
	for size > probe && perByte*float64(size) > budget.Seconds() {
		size /= 2
	}
	if size < bytes {
		t.note("%s: batches of %s: larger ones take too long on %s", what, bytesText(size), t.info.ID)
	}
	return size, nil
}
