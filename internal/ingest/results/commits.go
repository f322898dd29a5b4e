package results

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
)

// Commits is what one lease stores of a partition, exactly once (adr/0046). One goroutine calls Settled and Keep, and passes the inputs that
// aren't settled to another one, which stores.
type Commits struct {
	w      *Writer
	prefix string           // of results' subjects
	way    topology.Commits // how the result stream took batches when the lease began

	earlier   commit.Letters    // dead letters that earlier leases have stored
	leftovers *commit.Leftovers // results that they have stored behind their last marker

	mu      sync.Mutex // held while a chain is used, also while its server is away
	results *commit.Chain
	letters *commit.Chain   // nil: dead letters have only their ids
	settled commit.Position // up to which results are stored

	resultAge, letterAge markerAge // of the last marker of each chain
}

// markerAge is how old the last marker of a chain is.
type markerAge struct {
	most   time.Duration // how long the stream keeps a marker; 0: for ever
	stored time.Time     // when the lease last stored one, or began
}

// due reports whether the marker must be stored again, long before the stream removes it.
func (a *markerAge) due() bool { return a.most > 0 && time.Since(a.stored) >= a.most/4 }

// NewCommits returns what a lease stores with these chains. letters may be nil. prefix is that of results' subjects.
func NewCommits(results, letters *commit.Chain, prefix string) *Commits {
	c := &Commits{results: results, letters: letters, prefix: prefix, leftovers: results.Leftovers(), settled: results.At()}
	c.resultAge.stored, c.letterAge.stored = time.Now(), time.Now()
	if letters != nil {
		c.earlier = letters.Letters()
	}
	return c
}

// Found returns the position up to which earlier leases have stored everything. ok is false if that isn't known.
func (c *Commits) Found() (p commit.Position, ok bool) { return c.results.Found() }

// Beyond returns the last input for which earlier leases may have stored something. Found covers it or not.
func (c *Commits) Beyond() uint64 {
	last := c.results.Beyond()
	for _, in := range c.earlier {
		last = max(last, in.Sequence)
	}
	return last
}

// position returns the position of a delivery's input.
func position(d *inflight.Delivery) commit.Position {
	return commit.Position{Sequence: d.Sequence, Stored: d.Stored.UnixNano()}
}

// Settled reports whether an earlier lease has stored the result or the dead letter of an input. If it has stored only parts of the result, Settled
// sets d.Parts.
func (c *Commits) Settled(ctx context.Context, d *inflight.Delivery) (bool, error) {
	in := position(d)
	if at, ok := c.results.Found(); ok && at.Covers(in) || c.earlier.Has(commit.Letter{Input: in, Record: commit.WholeMessage}) {
		return true, nil
	}
	done, parts, err := c.leftovers.Find(ctx, in, topology.MapSubject(c.prefix, d.Subject), MessageID(d))
	d.Parts = parts
	return done, err
}

// certain reports whether it is known that an input which isn't settled has no result.
func (c *Commits) certain(d *inflight.Delivery) bool {
	return d.First || c.results.Certain(position(d))
}

// resultBatch is the messages of one commit.
type resultBatch struct {
	items []int           // the deliveries that are settled with it
	ends  []int           // for each of them the number of messages up to its last one
	msgs  []*nats.Msg     // their results
	at    commit.Position // the position of the marker

	checked bool // the server may not take one of the messages
}

// done returns the deliveries of which all messages are stored.
func (b *resultBatch) done(stored []bool) (items []int) {
	first := 0
	for k, end := range b.ends {
		if !slices.Contains(stored[first:end], false) {
			items = append(items, b.items[k])
		}
		first = end
	}
	return items
}

// commit stores results, with a marker at their position.
func (c *Commits) commit(ctx context.Context, batch resultBatch) (stored []bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	write := c.results.Commit
	if batch.checked {
		write = c.results.CommitChecked
	}
	if stored, err = write(ctx, batch.msgs, batch.at); err != nil {
		return stored, err
	}
	c.settled, c.resultAge.stored = batch.at, time.Now()
	return stored, c.keepLetters(ctx)
}

// Keep stores the last markers again before their streams remove them for their age.
func (c *Commits) Keep(ctx context.Context) error {
	if !c.mu.TryLock() {
		return nil // a marker is being stored
	}
	defer c.mu.Unlock()
	if c.resultAge.due() {
		c.resultAge.stored = time.Now()
		if _, err := c.results.Commit(ctx, nil, c.settled); commit.Over(err) {
			return err
		}
	}
	return c.keepLetters(ctx)
}

// keepLetters is Keep for the chain of dead letters. Results may come without a pause while no dead letter does, so commit calls it too.
func (c *Commits) keepLetters(ctx context.Context) error {
	if c.letters == nil || !c.letterAge.due() {
		return nil
	}
	c.letterAge.stored = time.Now()
	if err := c.letters.CommitLetters(ctx, nil, nil, c.settled); commit.Over(err) {
		return err
	}
	return nil // after another error, the chain has stored a fence
}

// ownID moves the id of a message to our own header, unless the user wants the server to remember it. It returns the message.
func (c *Commits) ownID(m *nats.Msg) *nats.Msg {
	if !c.w.s.ResultIDs {
		m.Header[commit.HeaderID] = m.Header[jetstream.MsgIDHeader]
		delete(m.Header, jetstream.MsgIDHeader)
	}
	return m
}
