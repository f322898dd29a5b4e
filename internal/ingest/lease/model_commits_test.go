package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/store"
)

// In two thirds of the runs, the streams of results and dead letters accept commit markers. The leases then store
// with real chains, and the model checks more invariants. No result or dead letter is stored twice, even if the
// consumer has forgotten the delivery of its input. Both are in the order of their inputs.

// modelChain simulates a stream of results or dead letters, which may have the partition's markers. The sequences of its messages start at 1.
type modelChain struct {
	name      string
	ids       map[string]time.Time // time at which each message was stored, by its id
	fullUntil int                  // step until which the stream has no room
	messages  []modelStoredMessage
	newest    uint64           // highest input with a message
	open      []modelOpenBatch // fast batches that the server has begun but not completed
}

// modelOpenBatch is the remainder of a fast batch. The server stores its messages without a condition.
type modelOpenBatch struct {
	marker uint64 // sequence of the last marker when the batch began, which is the id of the batch
	rest   []modelBatchMessage
	slow   bool // whether the next owner usually begins before these messages arrive
}

// modelBatchMessage is a message of a batch.
type modelBatchMessage struct {
	store   func() (at uint64)
	confirm bool // whether it is sent only after the server has confirmed all earlier messages, as the last part of a result is
}

// modelStoredMessage is a message of a stream. It is a marker, or an input's result or dead letter.
type modelStoredMessage struct {
	subject string
	header  nats.Header
	data    []byte // only of log entries
	marker  *store.Marker
	until   uint64 // last input of the fast batch that this message begins; otherwise 0
}

func (c *modelChain) last() (at uint64) {
	for i, m := range c.messages {
		if m.marker != nil {
			at = uint64(i + 1)
		}
	}
	return at
}

// modelCommits is the Commits of a lease.
type modelCommits struct {
	*results.Commits
	e *modelLease
}

func (c *modelCommits) Known(ctx context.Context, d *inflight.Delivery) (bool, error) {
	settled, err := c.Commits.Known(ctx, d)
	if settled {
		c.e.w.m.did("settled by an earlier lease")
	}
	m := c.e.w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.server.chains[0].ids {
		if err != nil || settled || !strings.HasPrefix(id, results.MessageID(d)+"/") {
			continue
		}
		if m.did("part of an earlier lease"); len(d.Parts) == 0 {
			m.violate("lease %d of %s doesn't know the stored part %s", c.e.n, c.e.w.id, id)
		}
	}
	return settled, err
}

func (e *modelLease) openCommits(ctx context.Context, p results.Partition) (leaseCommits, error) {
	m := e.w.m
	if !m.once {
		return nil, nil
	}
	m.notes.Lock()
	e.opened = m.steps
	m.notes.Unlock()
	o := store.ChainOptions{Owner: fmt.Sprint(e.w.id, " ", e.n), Created: time.Unix(1, 0), Way: m.way, Again: func(context.Context, store.Markers, int, error) bool { return true }, Start: store.Position{Sequence: p.Floor}, LookUp: p.Delivered, Entry: m.entry()}
	of, letters, err := store.OpenChains(ctx, o, &modelStore{e: e, chain: &m.server.chains[0]}, &modelStore{e: e, chain: &m.server.chains[1]})
	if err != nil {
		return nil, err
	}
	c := results.NewCommits(e.Writer, of, letters)
	if err := e.restore(ctx, p, c); err != nil {
		return nil, err
	}
	return &modelCommits{Commits: c, e: e}, nil
}

// commitCall is the prefix of the names of calls that store messages with a marker.
const commitCall = "commit to "

type modelStore struct {
	e     *modelLease
	chain *modelChain
}

func (s *modelStore) Write(ctx context.Context, way store.Way, expected uint64, msgs []*nats.Msg, marker *store.Marker) (at uint64, err error) {
	copied, c, m, first := *marker, s.chain, s.e.w.m, s.e.storing(msgs)
	var messages []modelBatchMessage
	for _, each := range modelSent(msgs) {
		last := each.Header.Get(store.HeaderPart) != "" && !strings.Contains(store.IDOf(each.Header), "/")
		messages = append(messages, modelBatchMessage{confirm: last, store: func() uint64 {
			if each.Subject == modelLog {
				return c.append(modelStoredMessage{subject: each.Subject, header: each.Header, data: each.Data})
			}
			m.publishes(s.e, first)
			m.server.receive(s.e.w, s.e, c, each)
			return c.append(modelStoredMessage{subject: each.Subject, header: each.Header})
		}})
	}
	last := modelBatchMessage{store: func() uint64 { return c.append(modelStoredMessage{marker: &copied}) }}
	if way != store.Fast {
		return s.send(ctx, way, modelOpenBatch{marker: expected, rest: append(messages, last)})
	}
	if len(msgs) > 0 {
		begin := modelBatchMessage{store: func() uint64 { return c.append(modelStoredMessage{until: copied.Until}) }}
		if _, err := s.send(ctx, way, modelOpenBatch{marker: expected, rest: append([]modelBatchMessage{begin}, messages...)}); err != nil {
			return 0, err
		}
	}
	return s.send(ctx, way, modelOpenBatch{marker: expected, rest: []modelBatchMessage{last}})
}

// send sends a batch and returns the sequence of its last message.
func (s *modelStore) send(ctx context.Context, way store.Way, batch modelOpenBatch) (at uint64, err error) {
	err = s.call(ctx, commitCall, func(m *leaseModel) error {
		if s.chain.isFull(m, "a "+commitCall) {
			return errModelFull
		}
		m.server.notice(s.e.w, 0)
		c, all := s.chain, len(batch.rest)
		if way == store.Fast && c.endBatch(batch.marker) {
			m.did("batch ended by another")
			if all > 1 {
				m.violate("two batches have the id %d in %s", batch.marker, c.name)
			}
			if m.random.IntN(2) == 0 {
				return errModelCut
			}
		}
		if last := c.last(); last != batch.marker {
			m.did("commit refused")
			return &store.WrongLastError{Last: last}
		}
		at, err = batch.arrive(m, way)
		if left := len(batch.rest); err != nil && way == store.Fast && left < all && m.random.IntN(4) > 0 {
			if batch.slow = m.random.IntN(3) == 0; left > 0 {
				c.open = append(c.open, batch)
			}
			return errModelSilent
		}
		return err
	})
	if err != nil {
		return 0, err // a late request may still write to at
	}
	return at, nil
}

// arrive stores a batch. With a fault it stores only some messages.
func (b *modelOpenBatch) arrive(m *leaseModel, way store.Way) (at uint64, err error) {
	maximum, all := len(b.rest), len(b.rest)
	parts := slices.IndexFunc(b.rest, func(msg modelBatchMessage) bool { return msg.confirm })
	switch {
	case !m.faults:
	case parts > 1 && m.random.IntN(2) == 0:
		maximum = parts
		m.did("batch cut before a last part")
	case m.cutting && all > 2 && m.random.IntN(2) == 0:
		maximum = 2 + m.random.IntN(all-2)
		m.did("batch cut")
	case m.random.IntN(8) == 0:
		maximum = m.random.IntN(maximum)
		m.did("batch cut")
	}
	if way != store.Fast && maximum < all {
		return 0, errModelCut
	}
	for i := range maximum {
		switch {
		case err != nil && b.rest[0].confirm:
			b.rest = nil
			return 0, err
		case way == store.Fast && m.refuses():
			err = errModelRefused
		default:
			at = b.rest[0].store()
		}
		b.rest = b.rest[1:]
		if i == 0 && err != nil {
			b.rest = nil // the server must confirm the first message before it gets later ones
			return 0, err
		}
	}
	if len(b.rest) > 0 {
		if maximum == 1 {
			b.rest = nil // as above
		}
		for i, msg := range b.rest {
			if msg.confirm && (i > 0 || err != nil) {
				b.rest = b.rest[:i]
				break
			}
		}
		return 0, errModelCut
	}
	m.did("committed")
	return at, err
}

// refuses reports whether the server lacks space and refuses a message in the middle of a fast batch.
func (m *leaseModel) refuses() bool {
	if !m.narrow || !m.faults || m.random.IntN(8) > 0 {
		return false
	}
	m.did("message refused in a batch")
	return true
}

// endBatch ends the batch with the given id, and reports whether that batch existed.
func (c *modelChain) endBatch(id uint64) bool {
	before := len(c.open)
	c.open = slices.DeleteFunc(c.open, func(b modelOpenBatch) bool { return b.marker == id })
	return len(c.open) < before
}

// proceed stores messages of open batches, or ends these batches, as the server does after some time.
func (c *modelChain) proceed(m *leaseModel) {
	for i := range c.open {
		if b := &c.open[i]; m.random.IntN(2) == 0 && !b.waits(m) {
			m.did("batch proceeded")
			if !m.refuses() {
				b.rest[0].store()
			}
			b.rest = b.rest[1:]
		}
	}
	c.open = slices.DeleteFunc(c.open, func(b modelOpenBatch) bool { return len(b.rest) == 0 || m.random.IntN(8) == 0 && !b.waits(m) })
}

// waits reports whether a slow batch makes no progress yet.
func (b *modelOpenBatch) waits(m *leaseModel) bool { return b.slow && m.random.IntN(8) > 0 }

func (c *modelChain) append(stored modelStoredMessage) (at uint64) {
	c.messages = append(c.messages, stored)
	return uint64(len(c.messages))
}

func (s *modelStore) call(ctx context.Context, what string, apply func(m *leaseModel) error) error {
	return s.e.w.call(ctx, what+s.chain.name, false, func() error {
		s.chain.proceed(s.e.w.m)
		return apply(s.e.w.m)
	})
}

var errModelCut = errors.New("the batch was cut")

var errModelRefused = errors.New("the stream has no room")

// errModelSilent means that a batch is not complete, so the worker gets no answer yet. Some workers freeze or crash
// during that time.
var errModelSilent = errors.New("the batch is under way")

func (s *modelStore) Last(ctx context.Context) (last store.StoredMarker, err error) {
	err = s.call(ctx, "last marker of ", func(*leaseModel) error {
		if at := s.chain.last(); at > 0 {
			last = store.StoredMarker{Marker: *s.chain.messages[at-1].marker, At: at}
		}
		return nil
	})
	if err != nil {
		return store.StoredMarker{}, err
	}
	return last, nil
}

func (s *modelStore) Next(ctx context.Context, behind uint64, subject string) (at uint64, h nats.Header, err error) {
	err = s.call(ctx, "read back ", func(m *leaseModel) error {
		for i := behind; i < uint64(len(s.chain.messages)); i++ {
			if stored := s.chain.messages[i]; stored.subject == subject {
				m.did("read back")
				at, h = i+1, stored.header
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	return at, h, nil
}

func (s *modelStore) Begun(ctx context.Context, behind, before uint64) (until uint64, err error) {
	err = s.call(ctx, "batches begun in ", func(*leaseModel) error {
		for _, stored := range s.chain.messages[behind:before] {
			until = max(until, stored.until)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return until, nil
}

// arrived checks that a message of an input is stored once and in order.
func (m *leaseModel) arrived(c *modelChain, sequence uint64, known bool) {
	if known {
		m.violate("a message of input %d is stored a second time in %s", sequence, c.name)
	}
	if sequence < c.newest && !m.narrow {
		m.violate("a message of input %d is stored in %s after one of %d", sequence, c.name, c.newest)
	}
	c.newest = sequence
}
