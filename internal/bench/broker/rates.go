package broker

import (
	"context"
	"runtime"
	"slices"
	"time"

	"millrace/internal/bench"
)

// rateEntries are the rows that tell how fast workers are.
func rateEntries() []bench.Entry {
	return []bench.Entry{
		{Name: rowAsync, Shows: "a worker that computes nothing: each result stored by itself, each input acknowledged by itself"},
		{Name: rowBatch, Shows: "the same with one batch stored for a group of inputs"},
		{Name: rowAckAll, Shows: "the same in 8 partitions with one acknowledgement a group too"},
		{Name: rowPinned, Shows: "the same with each partition's consumer pinned to this worker, as with exclusive delivery"},
		{Name: rowShared, Shows: "Millrace on the device, with crc32c, and with crc32c and minhash"},
		{Name: rowExclusive, Shows: "the same with 8 partitions to itself: results in order, one acknowledgement a batch"},
		{Name: rowSharedMore, Shows: "millrace-shared with 2 connections to the server instead of 1"},
		{Name: rowExclusiveOne, Shows: "millrace-exclusive with 1 connection to the server instead of 4"},
		{Name: rowPlain, Shows: "the same operators in plain Go on all cores, of the shape of null-async"},
	}
}

// payloadSizes are the payloads' sizes unless others are asked for, in bytes.
var payloadSizes = []int{256, 2 << 10, 64 << 10, 512 << 10}

// Bounds of a round: it has at least a payload for each partition and several for each core, so that none is idle for
// want of them, and at most mostBytes in the input stream. These let a round with the largest payloads last for two seconds
// where the server is fast: in a much shorter one, what a worker does once for each partition is a part that shows.
const (
	payloadsPerCore = 4
	mostPayloads    = 1 << 20
	mostBytes       = 4 << 30
)

// runRates has all kinds of workers race with payloads of one size after the other.
func (b *Bench) runRates(ctx context.Context, t *bench.Track) error {
	s, err := b.open(ctx)
	if err != nil {
		return err
	}
	s.note(t)
	for _, size := range t.Sizes(payloadSizes...) {
		if err := s.race(ctx, t, size); err != nil {
			return err
		}
	}
	return nil
}

// note says what all figures are of.
func (s *site) note(t *bench.Track) {
	t.Note("%s", s.where)
	if s.links != usualLinks {
		t.Note("Every worker has %d connections to the server, but for those in whose rows' names a number is.", s.links.shared)
	}
}

// race is one of all kinds with payloads of one size.
func (s *site) race(ctx context.Context, t *bench.Track, size int) error {
	var null []*bench.Contender
	for _, k := range s.links.nulls(t) {
		null = append(null, s.rate(t, k, size))
	}
	async, batch, pinned := null[0], null[1], null[3]
	var together, alone, plain []*bench.Contender // by list of operators
	for _, list := range operatorLists {
		ops := parse(list)
		together = append(together, s.rate(t, s.links.together(t, ops), size))
		alone = append(alone, s.rate(t, s.links.alone(t, ops), size))
		plain = append(plain, s.rate(t, inPlainGo(ops), size))
	}
	first := parse(operatorLists[0])
	more := s.rate(t, over(usualLinks.together(t, first), 2, rowSharedMore), size)
	one := s.rate(t, over(usualLinks.alone(t, first), 1, rowExclusiveOne), size)

	all := slices.Concat(null, together, alone, []*bench.Contender{more, one}, plain)
	if err := t.Race(ctx, all...); err != nil {
		return err
	}
	for _, c := range all[len(null):] {
		c.Compare(figureOverAsync, figurePayloads, async)
	}
	for _, c := range append(together, more) {
		c.Compare(figureOverNull, figurePayloads, batch)
	}
	for _, c := range append(alone, one) {
		c.Compare(figureOverNull, figurePayloads, pinned)
	}
	for i, p := range plain {
		together[i].Compare(figureOverPlain, figurePayloads, p)
		alone[i].Compare(figureOverPlain, figurePayloads, p)
		alone[i].Compare(figureOverShared, figurePayloads, together[i])
	}
	if s.links == usualLinks {
		more.Compare(figureOverUsual, figurePayloads, together[0])
		one.Compare(figureOverUsual, figurePayloads, alone[0])
	}
	t.Finish(all...)
	return nil
}

// rate is the contender of a kind that measures how fast it is. Workers that compute nothing are measured though
// nobody asks for them: the others are compared with them.
func (s *site) rate(t *bench.Track, k kind, size int) *bench.Contender {
	n := 0 // payloads a round, once that is known
	return t.Contender(row(t, k, size), k.ops == nil, func(ctx context.Context, c *bench.Contender, seed uint64) error {
		if n == 0 {
			var err error
			least := max(partitions, payloadsPerCore*runtime.GOMAXPROCS(0))
			if n, err = s.pace(ctx, t, k, least, load{seed: ^seed, size: size}); err != nil {
				return err
			}
		}
		l := load{seed: seed, n: n, size: size}
		r, err := s.round(ctx, k, l)
		if err != nil {
			return err
		}
		seconds := r.took.Seconds()
		c.Add(figurePayloads, "1/s", float64(n)/seconds)
		c.Add(figureBytes, "B/s", float64(n*size)/seconds)
		c.Add(figureCores, "", r.cpu.Seconds()/seconds)
		if r.groups > 0 {
			c.Add(figureFill, "", float64(n)/float64(r.groups))
		}
		return nil
	})
}

// pace finds how many payloads a kind moves in a turn, at least least. What it tries is a warm-up too.
func (s *site) pace(ctx context.Context, t *bench.Track, k kind, least int, l load) (n int, err error) {
	return t.Pace(least, min(mostPayloads, max(mostBytes/l.size, least)), func(n int) (time.Duration, error) {
		l.n = n
		r, err := s.round(ctx, k, l)
		return r.took, err
	})
}
