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

// rate returns a case that measures how fast a kind of worker is with payloads of one size.
func (s *server) rate(session *bench.Session, k kind, size int) *bench.Case {
	return s.rateOf(session, k, size, figurePayloads, func(seed uint64) content { return unframed{seed, size} })
}

// rateOf returns a case that measures how fast a kind of worker is with messages that of makes. The figure called records is the
// number of records per second. Workers that compute nothing are references for the others.
func (s *server) rateOf(session *bench.Session, k kind, size int, records string, of func(seed uint64) content) *bench.Case {
	least := max(partitions, payloadsPerCore*runtime.GOMAXPROCS(0))
	measure := func(ctx context.Context, c *bench.Case, seed uint64) error {
		n, err := s.pace(ctx, session, c, k, least, of(^seed))
		if err != nil {
			return err
		}
		l := load{n, of(seed)}
		r, err := s.round(ctx, k, l)
		if err != nil {
			return err
		}
		seconds, all := r.took.Seconds(), float64(n*l.records())
		c.Add(records, "1/s", all/seconds)
		c.Add(figureBytes, "B/s", all*float64(l.recordBytes())/seconds)
		if _, framed := l.content.(*frames); framed {
			c.Add(figureWire, "B/s", float64(n*l.bytes())/seconds)
			c.Add(figureCompression, "", float64(l.records()*l.recordBytes())/float64(l.bytes()))
		}
		if !k.foreign {
			c.Add(bench.FigureCores, "", r.cpu.Seconds()/seconds)
		}
		if r.groups > 0 {
			c.Add(figureFill, "", all/float64(r.groups))
		}
		return nil
	}
	return &bench.Case{Row: row(session, k, size), Reference: k.ops == nil, Measure: measure}
}

// pace returns the number of messages that a kind of worker moves in a turn, but at least least. The first round
// determines the number and is a warm-up.
func (s *server) pace(ctx context.Context, session *bench.Session, c *bench.Case, k kind, least int, of content) (n int, err error) {
	most := min(mostPayloads, max(mostBytes/(of.records()*of.recordBytes()), least))
	return c.Pace(session.Turn(), least, most, func(n int) (time.Duration, error) {
		r, err := s.round(ctx, k, load{n, of})
		return r.took, err
	})
}
