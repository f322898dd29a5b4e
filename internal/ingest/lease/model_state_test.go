package lease

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"millrace/internal/device"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
	"millrace/internal/record"
	"millrace/internal/streams"
	"millrace/internal/table"
)

// In a third of the runs with commit markers, the results also depend on the state of a stateful operator. The leases
// then use the real states, replicas and logs. At the end, every result must be that of an undisturbed run, in which
// the reference decides on one record after the other, and the last marker must describe that state. The log must never
// be lost, although the leases trim it.

const (
	modelMarkers = "commits"
	modelLog     = modelMarkers + ".state"

	// modelGeneration is the number of records of a generation. A frame may have more.
	modelGeneration = 11
)

// modelValues are the results of an input whose values the model checks at the end.
type modelValues struct {
	statuses []record.Status
	parts    []*nats.Msg
}

func (m *leaseModel) stateful() operator.Stateful {
	op, _ := m.operators[len(m.operators)-1].(operator.Stateful)
	return op // nil without a stateful operator
}

// newStates returns the states of a worker, or nil without a stateful operator.
func (w *leaseWorker) newStates() *states {
	op := w.m.stateful()
	if op == nil {
		return nil
	}
	log := &modelStateLog{&modelStore{e: &modelLease{w: w}, chain: &w.m.server.chains[0]}}
	return &states{
		StateOptions: &StateOptions{Operator: op, Records: modelGeneration, Standby: w.m.random.IntN(2) == 0},
		o:            &Options{Topology: topology.Topology{Partitions: 1}, Observer: &modelLease{w: w}}, pipes: []*streams.Pipeline{w.device.pipe}, spec: "a state", most: 1, log: w.m.log,
		newState: func(int) (device.State, error) {
			s, err := w.device.pipe.NewState(op, modelGeneration)
			return &modelState{State: s, w: w}, err
		},
		source:     func(int) statelog.Source { return log },
		lastMarker: func(ctx context.Context, _ int) (store.StoredMarker, error) { return log.Last(ctx) },
		copies:     map[int]*replica{}, freed: make(chan struct{}),
	}
}

// modelState is a state that may fail although its device works. It is unusable then.
type modelState struct {
	device.State
	w      *leaseWorker
	broken error
}

func (s *modelState) Apply(positions []device.Position, keys []byte) (device.Decisions, error) {
	if err := s.fail("apply"); err != nil {
		return nil, err
	}
	return s.State.Apply(positions, keys)
}

func (s *modelState) Undo() error {
	if err := s.fail("undo"); err != nil {
		return err
	}
	return s.State.Undo()
}

func (s *modelState) Replay(entry []byte) error {
	if err := s.fail("replay"); err != nil {
		return err
	}
	return s.State.Replay(entry)
}

// fail returns an error if the state fails now, or has failed.
func (s *modelState) fail(call string) error {
	if s.broken != nil {
		return s.broken
	}
	ctx, cancel := context.WithTimeout(s.w.drain, callTimeout) // between the parts of a run, no call is answered
	defer cancel()
	err := s.w.call(ctx, call, true, func() error {
		if m := s.w.m; m.faults && m.random.IntN(40) == 0 {
			m.did("state failed")
			return errModelState
		}
		return nil
	})
	if err != nil {
		s.broken = device.Errorf(call, "", device.ErrLaunch, "%v", err)
	}
	return s.broken
}

var errModelState = errors.New("the state fails")

// restore gives a lease its state.
func (e *modelLease) restore(ctx context.Context, p results.Partition, c *results.Commits) error {
	if e.w.states == nil {
		return nil
	}
	err := e.w.states.restore(ctx, p, c)
	if lost := (*statelog.LostError)(nil); errors.As(err, &lost) {
		e.w.m.violate("lease %d of %s: %v", e.n, e.w.id, err)
	}
	return err
}

// modelStateLog implements statelog.Source.
type modelStateLog struct{ *modelStore }

func (l *modelStateLog) Read(ctx context.Context, after, before uint64) iter.Seq2[statelog.Stored, error] {
	var found []statelog.Stored
	err := l.call(ctx, "read the log of ", func(m *leaseModel) error {
		for i := after; i < min(before-1, uint64(len(l.chain.messages))); i++ {
			if stored := l.chain.messages[i]; stored.subject == modelLog {
				entry, err := statelog.Parse(i+1, stored.header, stored.data)
				if err != nil {
					return err
				}
				m.did("log entry read")
				found = append(found, entry)
			}
		}
		return nil
	})
	return func(yield func(statelog.Stored, error) bool) {
		if err != nil {
			yield(statelog.Stored{}, err) // a late request may still write to found
			return
		}
		for _, entry := range found {
			if !yield(entry, nil) {
				return
			}
		}
	}
}

func (l *modelStateLog) Purge(ctx context.Context, below uint64) error {
	return l.call(ctx, "trim ", func(m *leaseModel) error {
		for i := range l.chain.messages[:below-1] {
			if stored := &l.chain.messages[i]; stored.subject == modelLog {
				m.did("log trimmed")
				stored.subject, stored.data = "", nil
			}
		}
		return nil
	})
}

// keys returns the keys of consecutive records.
func (m *leaseModel) keys(records [][]byte) (keys []byte) {
	for _, r := range records {
		keys = m.stateful().Kernel().AppendReference(keys, r)
	}
	return keys
}

// undisturbed decides on records with the reference.
type undisturbed struct {
	*neardup.Reference
	store.State // after the records so far
}

func (m *leaseModel) newUndisturbed() *undisturbed {
	var p [4]uint32
	for i := range p {
		p[i] = binary.LittleEndian.Uint32(m.stateful().Params()[4*i:])
	}
	return &undisturbed{Reference: neardup.NewReference(neardup.Parameters{
		Bands: int(p[0]), Rows: int(p[1]), K: int(p[2]), Seed: p[3], Records: modelGeneration,
	})}
}

// decide returns the table of an input. Records with another status than OK aren't in the state.
func (u *undisturbed) decide(m *leaseModel, sequence uint64, in *modelInput, statuses []record.Status) *table.Table {
	t := new(table.Table)
	t.Reset(m.operators, len(in.records))
	for i, r := range in.records {
		t.SetLength(i, len(r))
		t.SetStatus(i, statuses[i])
		if statuses[i] != record.OK {
			continue
		}
		var keys []uint64
		for k := m.keys(in.records[i : i+1]); len(k) > 0; k = k[8:] {
			keys = append(keys, binary.LittleEndian.Uint64(k))
		}
		verdict := u.Apply(device.Position{Sequence: sequence, Record: uint64(i)}, keys)
		if verdict.Bands > 0 {
			m.did("near-duplicate")
		}
		t.PutValue(0, i, m.operators[0].AppendReference(nil, r))
		t.PutValue(1, i, verdict.AppendValue(nil))
		u.Records, u.Sequence, u.Record = u.Records+1, sequence, uint64(i)
	}
	return t
}

// wantVerdicts checks the values of all results, and the state of the last marker.
func (m *leaseModel) wantVerdicts() {
	u := m.newUndisturbed()
	for _, sequence := range m.server.inputs {
		v, ok := m.server.values[sequence]
		if !ok {
			continue // its dead letter is that of the whole message
		}
		in := m.input(sequence)
		want := u.decide(m, sequence, in, v.statuses)
		if in.framed {
			m.server.wantParts(sequence, in, v.parts, want)
		} else if !bytes.Equal(v.parts[0].Data, want.AppendSingle(nil, operator.Binary)) {
			m.violate("input %d has another verdict than in an undisturbed run", sequence)
		}
	}
	chain := &m.server.chains[0]
	if last := chain.messages[chain.last()-1].marker.State; last == nil || last.Records != u.Records || last.Sequence != u.Sequence || last.Record != u.Record {
		m.violate("the last marker describes the state %+v, want %+v", last, u.State)
	}
	entries := slices.IndexFunc(chain.messages, func(s modelStoredMessage) bool { return s.subject == modelLog })
	if entries < 0 && u.Records > 0 {
		m.violate("the log is empty")
	}
	m.counts["generation"] += int(u.Records / modelGeneration)
}

// modelText returns what makes a record a near-duplicate of some others, with a stateful operator.
func (m *leaseModel) modelText(n int) string {
	if m.stateful() == nil {
		return ""
	}
	return " " + strings.Repeat(fmt.Sprint("text ", n%17, " "), 1+n%5)
}

// entry is the Options.Entry of chains.
func (m *leaseModel) entry() func(behind uint64, state *store.State, entry []byte) *nats.Msg {
	if m.stateful() == nil {
		return nil
	}
	return func(behind uint64, state *store.State, entry []byte) *nats.Msg {
		return statelog.Message(modelMarkers, false, behind, state, entry)
	}
}
