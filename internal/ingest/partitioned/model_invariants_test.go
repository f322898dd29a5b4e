package partitioned

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"millrace/internal/frame"
	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
)

// This file has the model's records of its leases, and the invariants that it checks with them.

// count adds n to the number of active leases.
func (m *leaseModel) count(n int) {
	m.mu.Lock()
	m.active += n
	m.mu.Unlock()
}

func (m *leaseModel) held(e *modelLease, d *inflight.Delivery) {
	m.notes.Lock()
	calm, before := m.calm, m.takes[d.Sequence]
	m.takes[d.Sequence] = append(before, e)
	m.notes.Unlock()
	msg := d.Msg.(*modelMessage)
	switch {
	case slices.Contains(before, e):
		m.violate("lease %d of %s takes input %d twice", e.n, e.w.id, d.Sequence)
	case msg.turn != 0 && msg.turn != e.l.reader.turn:
		m.violate("lease %d of %s takes input %d of another turn", e.n, e.w.id, d.Sequence)
	}
	if !calm {
		return
	}
	m.notes.Lock()
	defer m.notes.Unlock()
	for other, sequence := range m.clean {
		if other != e && d.Sequence <= sequence && m.broken == "" {
			m.broken = fmt.Sprintf("%s gets input %d, which %s has acknowledged", e.w.id, d.Sequence, other.w.id)
		}
	}
}

func (m *leaseModel) acknowledging(e *modelLease, d *modelMessage) {
	m.note("%s acknowledges %d of %d", e.w.id, d.number, d.sequence)
	m.notes.Lock()
	if m.calm {
		m.clean[e] = max(m.clean[e], d.sequence)
	}
	m.notes.Unlock()
}

// publishes records that the server receives a lease's results for inputs from first on.
func (m *leaseModel) publishes(e *modelLease, first uint64) {
	for _, in := range m.server.inputs {
		if in < first && m.server.results[in] == "" && slices.Contains(m.takes[in], e) {
			m.violate("%s publishes input %d before input %d", e.w.id, first, in)
		}
	}
}

// splitter returns the Splitter for the messages of the run.
func (m *leaseModel) splitter() frame.Splitter {
	if m.framed {
		return modelSplitter
	}
	return frame.Splitter{}
}

func (m *leaseModel) published(e *modelLease, r modelResult) {
	d := &r.Delivery
	if m.input(d.Sequence).framed {
		m.server.wantFrame(r)
	}
	if at, stored := m.server.storedAt[d.Sequence]; d.First && stored && at < d.Msg.(*modelMessage).sent && !m.server.forgotten[d.Sequence] {
		m.violate("%s publishes input %d as one that was never delivered before, and it has had a result since step %d", e.w.id, d.Sequence, at)
	}
	m.server.store(d, results.MessageID(d))
}

func (m *leaseModel) ended(e *modelLease, err error) {
	m.note("lease %d of %s ends: %v", e.n, e.w.id, err)
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	if errors.Is(err, commit.ErrFenced) {
		err = commit.ErrFenced
	}
	m.did(err.Error())
	m.notes.Lock()
	calm := m.calm
	m.notes.Unlock()
	if calm && !e.w.isGone() && !e.repaired {
		m.violate("lease %d of %s ends while nothing is wrong: %v", e.n, e.w.id, err)
	}
}
