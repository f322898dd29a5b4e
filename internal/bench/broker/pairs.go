package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"millrace/internal/bench"
	"millrace/internal/frame"
	"millrace/internal/operator"
)

const (
	rowPairsNull      = "pairs-null"
	rowPairsShared    = "pairs-shared"
	rowPairsExclusive = "pairs-exclusive"
)

// pairsEntries are the rows that measure a worker of several pairs of streams.
var pairsEntries = []bench.Entry{
	{Name: rowPairsNull, Shows: "null with one pair of streams, and four with a pair each: single messages of 256 bytes, and messages of 512 KiB that hold records of 256 bytes"},
	{Name: rowPairsShared, Shows: "one millrace-shared with crc32c, with one and with four pairs and the same messages"},
	{Name: rowPairsExclusive, Shows: "one millrace-exclusive with crc32c, with one and with four pairs and the same messages"},
}

// severalPairs are the numbers of pairs that the rows compare.
var severalPairs = []int{1, 4}

// runPairs measures workers with one pair of streams and with several.
func (b *Bench) runPairs(ctx context.Context, session *bench.Session, s *server) error {
	ops := bench.Parse(operatorLists[0])
	framed := form{framing: frame.NewlineDelimited, format: operator.Arrow}.filled(frameRecordBytes, b.frameBytes)
	for _, f := range []form{single(frameRecordBytes), framed} {
		var all [][]*bench.Case // by number of pairs: null, shared, exclusive
		for _, n := range severalPairs {
			var cases []*bench.Case
			for _, k := range []kind{b.severalNulls(session, n), b.millraceKind(session, rowPairsShared, false, ops), b.millraceKind(session, rowPairsExclusive, true, ops)} {
				k.pairs = n
				cases = append(cases, s.rate(session, k, f))
			}
			all = append(all, cases)
		}
		if err := session.Measure(ctx, slices.Concat(all...)...); err != nil {
			return err
		}
		for _, cases := range all {
			for i, c := range cases {
				if i > 0 {
					c.Compare(figureOverNull, figureRecords, cases[0])
				}
				c.Compare(figureOverPair, figureRecords, all[0][i])
			}
		}
		session.Report(slices.Concat(all...)...)
	}
	return nil
}

// severalNulls returns the kind that runs a null worker for each of n pairs.
func (b *Bench) severalNulls(session *bench.Session, n int) kind {
	k := b.plainKind(session, rowPairsNull, nil)
	one := k.make
	k.make = func() worker { return &several{make: one} }
	return k
}

// pairs are the pairs of streams of a round.
type pairs []*pair

// newPairs creates the pairs of a round. Then it removes the pairs of earlier rounds and of interrupted runs. The order matters: when an
// account's last stream is deleted, the server removes the folder of streams. A stream that is created at that moment has no folder.
func (s *server) newPairs(ctx context.Context, k kind) (all pairs, err error) {
	name := newName()
	for i := range max(k.pairs, 1) {
		p, err := s.newPair(ctx, k, fmt.Sprint(name, i))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, s.removeExcept(ctx, name)
}

// fill stores every message of l in each input stream.
func (p pairs) fill(ctx context.Context, l load) error {
	filling, ctx := errgroup.WithContext(ctx)
	for _, one := range p {
		filling.Go(func() error { return one.fill(ctx, l) })
	}
	return filling.Wait()
}

// several is a worker for each pair.
type several struct {
	make func() worker
	all  []worker
}

func (s *several) prepare(ctx context.Context, p pairs, l load) error {
	for _, one := range p {
		w := s.make()
		s.all = append(s.all, w)
		if err := w.prepare(ctx, pairs{one}, l); err != nil {
			return err
		}
	}
	return nil
}

func (s *several) run(ctx context.Context, l load) error {
	running, ctx := errgroup.WithContext(ctx)
	for _, w := range s.all {
		running.Go(func() error { return w.run(ctx, l) })
	}
	return running.Wait()
}

func (s *several) close() error {
	var errs []error
	for _, w := range s.all {
		errs = append(errs, w.close())
	}
	return errors.Join(errs...)
}

func (s *several) batches() (n int64) {
	for _, w := range s.all {
		n += w.batches()
	}
	return n
}
