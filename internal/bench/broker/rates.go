package broker

import (
	"context"
	"runtime"
	"slices"
	"time"

	"millrace/internal/bench"
)

// rateEntries returns the rows that show how fast workers are.
func rateEntries() []bench.Entry {
	return []bench.Entry{
		{Name: rowAsync, Shows: "a worker that computes nothing: it stores each result and acknowledges each input separately"},
		{Name: rowBatch, Shows: "the same, but it stores the results of a group of inputs in one batch"},
		{Name: rowAckAll, Shows: "the same in 8 partitions, and it acknowledges a group at once"},
		{Name: rowPinned, Shows: "the same with each partition's consumer pinned to this worker, as with exclusive delivery"},
		{Name: rowShared, Shows: "Millrace on the device, with crc32c, and with crc32c and minhash"},
		{Name: rowExclusive, Shows: "the same with exclusive delivery of 8 partitions: results in order, one acknowledgement per batch"},
		{Name: rowSharedMore, Shows: "millrace-shared with 2 connections to the server instead of 1"},
		{Name: rowExclusiveOne, Shows: "millrace-exclusive with 1 connection to the server instead of 4"},
		{Name: rowPlain, Shows: "the same operators in plain Go on all cores, with the shape of null-async"},
	}
}

// payloadSizes are the default sizes of payloads, in bytes.
var payloadSizes = []int{256, 2 << 10, 64 << 10, 512 << 10}

// Bounds of a round. It has at least one payload for each partition and several for each core, so that none is idle,
// and at most mostBytes in the input stream. With the largest payloads and a fast server that lasts for two seconds. In
// a much shorter round, the one-time work for each partition would distort the figures.
const (
	payloadsPerCore = 4
	mostPayloads    = 1 << 20
	mostBytes       = 4 << 30
)

// runRates measures all kinds of workers, with payloads of one size after the other.
func (b *Bench) runRates(ctx context.Context, session *bench.Session) error {
	s, err := b.open(ctx, session)
	if err != nil {
		return err
	}
	for _, size := range session.Sizes(payloadSizes...) {
		if err := s.runRatesOf(ctx, session, size); err != nil {
			return err
		}
	}
	return nil
}

// runRatesOf measures all kinds of workers with payloads of one size.
func (s *server) runRatesOf(ctx context.Context, session *bench.Session, size int) error {
	var null []*bench.Case
	for _, k := range s.connections.nulls(session) {
		null = append(null, s.rate(session, k, size))
	}
	async, batch, pinned := null[0], null[1], null[3]
	var shared, exclusive, plain []*bench.Case // by list of operators
	for _, list := range operatorLists {
		ops := bench.Parse(list)
		shared = append(shared, s.rate(session, s.connections.sharedDelivery(session, ops), size))
		exclusive = append(exclusive, s.rate(session, s.connections.exclusiveDelivery(session, ops), size))
		plain = append(plain, s.rate(session, inPlainGo(ops), size))
	}
	first := bench.Parse(operatorLists[0])
	more := s.rate(session, connectionsOf(2).sharedDelivery(session, first).named(rowSharedMore), size)
	one := s.rate(session, connectionsOf(1).exclusiveDelivery(session, first).named(rowExclusiveOne), size)

	all := slices.Concat(null, shared, exclusive, []*bench.Case{more, one}, plain)
	if err := session.Measure(ctx, all...); err != nil {
		return err
	}
	for _, c := range all[len(null):] {
		c.Compare(figureOverAsync, figurePayloads, async)
	}
	for _, c := range append(shared, more) {
		c.Compare(figureOverNull, figurePayloads, batch)
	}
	for _, c := range append(exclusive, one) {
		c.Compare(figureOverNull, figurePayloads, pinned)
	}
	for i, p := range plain {
		shared[i].Compare(figureOverPlain, figurePayloads, p)
		exclusive[i].Compare(figureOverPlain, figurePayloads, p)
		exclusive[i].Compare(figureOverShared, figurePayloads, shared[i])
	}
	if s.connections == usualConnections {
		more.Compare(figureOverUsual, figurePayloads, shared[0])
		one.Compare(figureOverUsual, figurePayloads, exclusive[0])
	}
	session.Report(all...)
	return nil
}

// rate returns a case that measures how fast a kind of worker is. Workers that compute nothing are references for the
// others.
func (s *server) rate(session *bench.Session, k kind, size int) *bench.Case {
	least := max(partitions, payloadsPerCore*runtime.GOMAXPROCS(0))
	measure := func(ctx context.Context, c *bench.Case, seed uint64) error {
		n, err := s.pace(ctx, session, c, k, least, load{seed: ^seed, size: size})
		if err != nil {
			return err
		}
		r, err := s.round(ctx, k, load{seed: seed, n: n, size: size})
		if err != nil {
			return err
		}
		seconds := r.took.Seconds()
		c.Add(figurePayloads, "1/s", float64(n)/seconds)
		c.Add(figureBytes, "B/s", float64(n*size)/seconds)
		c.Add(bench.FigureCores, "", r.cpu.Seconds()/seconds)
		if r.groups > 0 {
			c.Add(figureFill, "", float64(n)/float64(r.groups))
		}
		return nil
	}
	return &bench.Case{Row: row(session, k, size), Reference: k.ops == nil, Measure: measure}
}

// pace returns the number of payloads that a kind of worker moves in a turn, but at least least. The first round
// determines the number and is a warm-up.
func (s *server) pace(ctx context.Context, session *bench.Session, c *bench.Case, k kind, least int, l load) (n int, err error) {
	most := min(mostPayloads, max(mostBytes/l.size, least))
	return c.Pace(session.Turn(), least, most, func(n int) (time.Duration, error) {
		l.n = n
		r, err := s.round(ctx, k, l)
		return r.took, err
	})
}
