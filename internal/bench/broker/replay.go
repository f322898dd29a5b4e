package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/bench"
	"millrace/internal/device"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// maxReplayed is the maximum number of records in a log. A record has at most 170 bytes in the log, which is also in memory.
const maxReplayed = 16 << 20

// runReplay measures how fast a device restores its state from the log of one partition.
func (b *Bench) runReplay(ctx context.Context, session *bench.Session, s *server) error {
	op := bench.Parse("neardup")[0].(operator.Stateful)
	k := kind{name: rowReplay, exclusive: true, exactlyOnce: true, ops: []operator.Operator{op}, device: true}
	r := replay{server: s, kind: k, op: op, dev: session.Devices[0]}
	r.batch = pipelineConfig(session, r.dev.Info(), k.ops).BatchPayloads
	session.Note("The log of %s is that of batches of %d records, of which %.0f %% are near-duplicates. All its records are in one generation.", rowReplay, r.batch, 100*copiesShare)
	c := k.newCase(session, 0, func(ctx context.Context, c *bench.Case, seed uint64) error {
		n, err := c.Pace(session.Turn(), 1, max(maxReplayed/r.batch, 1), func(n int) (time.Duration, error) {
			figures, err := r.round(ctx, ^seed, n)
			return figures.both, err
		})
		if err != nil {
			return err
		}
		figures, err := r.round(ctx, seed, n)
		if err != nil {
			return err
		}
		records := float64(n * r.batch)
		c.Add(figureRecords, "1/s", records/figures.both.Seconds())
		c.Add(figureRead, "1/s", records/figures.read.Seconds())
		c.Add(figureReplayed, "1/s", records/figures.replayed.Seconds())
		c.Add(figureWire, "B/s", float64(figures.bytes)/figures.both.Seconds())
		c.Add(bench.FigureCores, "", figures.cpu.Seconds()/figures.both.Seconds())
		return nil
	})
	c.Row.Lanes = 0 // a state has no lanes
	if err := session.Measure(ctx, c); err != nil {
		return err
	}
	session.Report(c)
	return nil
}

// replay measures one row.
type replay struct {
	server *server
	kind   kind
	op     operator.Stateful
	dev    device.Device
	batch  int // records per batch
}

// replayFigures are the times of one round.
type replayFigures struct {
	both     time.Duration // time to read and replay the log
	cpu      time.Duration // processor time of the process in that time
	read     time.Duration // time to read the log
	replayed time.Duration // time to replay the log from memory
	bytes    int           // size of all entries
}

// storedLog is a log in the stream, with the data for checking a restored state.
type storedLog struct {
	entries [][]byte
	bytes   int         // size of all entries
	state   store.State // state at the end of the log
	at      uint64      // stream sequence of the last marker
	values  []byte      // values of the batch after the log
}

// round stores the log of n batches in a new pair of streams, and restores the state from it.
func (r *replay) round(ctx context.Context, seed uint64, n int) (f replayFigures, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	all, err := r.server.newPairs(ctx, r.kind)
	if err != nil {
		return f, err
	}
	p := all[0]
	t := p.topology()
	markers := topology.CommitSubject(t.CommitPrefix, t.ResultStream, t.Stream, t.Consumer, 0)
	batches := r.newBatches(seed, n)
	log, err := r.store(ctx, p, markers, batches)
	if err != nil {
		return f, fmt.Errorf("write the log of a state: %w", err)
	}
	nc, err := p.connect("millrace-bench")
	if err != nil {
		return f, err
	}
	defer nc.Close()
	js, err := p.api.New(nc)
	if err != nil {
		return f, err
	}
	source := func() statelog.Source {
		return lease.NewStateLog(js, nc, t.ResultStream, markers, func(int) {}, quiet)
	}
	runtime.GC() // so that reading doesn't collect the garbage of writing
	start := now()
	if f.bytes, err = readLog(ctx, source()); err != nil {
		return f, err
	}
	f.read = now().at.Sub(start.at)
	if f.bytes != log.bytes {
		return f, fmt.Errorf("WRONG RESULT: %d of %d bytes of the log were read", f.bytes, log.bytes)
	}
	f.replayed, _, err = r.timed(batches, log, func(s device.State) error {
		for _, e := range log.entries {
			if err := s.Replay(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return f, err
	}
	f.both, f.cpu, err = r.timed(batches, log, func(s device.State) error {
		return statelog.NewReplica(s, log.state.Spec, source()).CatchUp(ctx, log.at, &log.state)
	})
	return f, err
}

// readLog reads a log and returns the size of its entries in bytes.
func readLog(ctx context.Context, log statelog.Source) (n int, err error) {
	for entry, err := range log.Read(ctx, 0, math.MaxUint64) {
		if err != nil {
			return n, err
		}
		n += len(entry.Entry)
	}
	return n, nil
}

// timed returns the time that restore needs for a new state. It checks the restored state's decisions on the next batch.
func (r *replay) timed(batches *keyBatches, log *storedLog, restore func(device.State) error) (took, cpu time.Duration, err error) {
	s, err := r.newState(batches)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	start := now()
	if err := restore(s); err != nil {
		return 0, 0, err
	}
	end := now()
	values, err := batches.decide(s, batches.n)
	if err == nil && !bytes.Equal(values, log.values) {
		err = errors.New("WRONG RESULT: the restored state's decisions differ from those of the state that wrote the log")
	}
	return end.at.Sub(start.at), end.cpu - start.cpu, err
}

// newState returns an empty state with space for all batches of the log and the batch after it.
func (r *replay) newState(b *keyBatches) (device.State, error) {
	return r.dev.NewState(r.op.Name(), r.op.Kernel().Params(), device.StateSize{Records: b.parameters.Records, Batch: r.batch})
}

// store decides on all batches, and stores their entries with a marker after each batch. Markers have no content, because no code reads
// them.
func (r *replay) store(ctx context.Context, p *pair, markers string, batches *keyBatches) (log *storedLog, err error) {
	s, err := r.newState(batches)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	log = &storedLog{state: store.State{Spec: r.op.Name()}}
	limit := int(p.nc.MaxPayload()) - maxHeader
	err = p.publish(ctx, limit, func(yield func(*nats.Msg, error) bool) {
		for i := range batches.n {
			positions, keys := batches.batch(i)
			first := len(log.entries)
			if err := log.decide(s, positions, keys, limit); err != nil {
				yield(nil, err)
				return
			}
			for _, e := range log.entries[first:] {
				if !yield(statelog.Message(markers, false, log.at, &log.state, e), nil) {
					return
				}
			}
			if !yield(&nats.Msg{Subject: markers}, nil) {
				return
			}
			last := positions[len(positions)-1]
			log.at += uint64(len(log.entries)-first) + 1
			log.state.Records, log.state.Sequence, log.state.Record = log.state.Records+uint64(len(positions)), last.Sequence, last.Record
		}
	})
	if err != nil {
		return nil, err
	}
	log.values, err = batches.decide(s, batches.n)
	return log, err
}

// decide decides on a batch and keeps its log entries. Each entry has at most limit bytes.
func (l *storedLog) decide(s device.State, positions []device.Position, keys []byte, limit int) error {
	decided, err := s.Apply(positions, keys)
	if err != nil {
		return err
	}
	first := len(l.entries)
	l.entries, err = decided.AppendLog(l.entries, 0, len(positions), limit)
	for _, e := range l.entries[first:] {
		l.bytes += len(e)
	}
	return err
}

// keyBatches generates batches of records with random keys. Any batch can be generated alone. Near-duplicates have three quarters of the
// keys of an earlier record of their batch.
type keyBatches struct {
	parameters neardup.Parameters
	seed       uint64
	n          int // number of batches in the log
	records    int // records per batch

	positions []neardup.Position // memory for a batch
	bytes     []byte
}

func (r *replay) newBatches(seed uint64, n int) *keyBatches {
	p, err := neardup.ParseBlock(r.op.Kernel().Params(), (n+1)*r.batch)
	if err != nil {
		panic("broker: " + err.Error()) // the operator has its own parameters
	}
	return &keyBatches{parameters: p, seed: seed, n: n, records: r.batch, positions: make([]neardup.Position, r.batch)}
}

// batch returns the positions and keys of batch i. They are valid until the next call.
func (b *keyBatches) batch(i int) (positions []neardup.Position, keys []byte) {
	random := rand.New(rand.NewPCG(b.seed, uint64(i)))
	bands, stride := b.parameters.Bands, b.parameters.Bands*neardup.KeyBytes
	some := b.parameters.AppendKeys(nil, make([]uint32, bands*b.parameters.Rows))
	b.bytes = b.bytes[:0]
	for r := range b.records {
		b.positions[r] = neardup.Position{Sequence: uint64(i + 1), Record: uint64(r)}
		for _, key := range some { // only its lowest byte contains the band
			b.bytes = binary.LittleEndian.AppendUint64(b.bytes, key^random.Uint64()<<8)
		}
		if r > 0 && random.Float64() < copiesShare {
			copy(b.bytes[r*stride:][:bands*3/4*neardup.KeyBytes], b.bytes[random.IntN(r)*stride:])
		}
	}
	return b.positions, b.bytes
}

// decide returns the values of batch i.
func (b *keyBatches) decide(s device.State, i int) (values []byte, err error) {
	positions, keys := b.batch(i)
	decided, err := s.Apply(positions, keys)
	if err != nil {
		return nil, err
	}
	for r := range positions {
		values = decided.AppendValue(values, r)
	}
	return values, nil
}
