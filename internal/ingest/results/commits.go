package results

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
)

// Commits stores the results and dead letters of one lease on a partition exactly once (adr/0046). One goroutine may call Settled
// and Keep while another one stores results.
type Commits struct {
	*Writer
	kind topology.Commits // kind of commits at the start of the lease

	earlier   store.Letters    // dead letters stored by earlier leases
	leftovers *store.Leftovers // results stored by earlier leases after their last marker

	busy    chan struct{} // holds a token during requests of the chains
	results *store.Chain
	letters *store.Chain   // nil if dead letters have ids but no markers
	settled store.Position // position up to which all results are stored
	state   *decider       // nil without a stateful operator

	resultAge, letterAge markerAge
}

type markerAge struct {
	max    time.Duration // the stream's MaxAge; 0 means no limit
	stored time.Time     // time of the lease's last marker, or of its start
}

// isDue reports whether the marker must be stored again, which is after a quarter of max.
func (a *markerAge) isDue() bool { return a.max > 0 && time.Since(a.stored) >= a.max/4 }

// NewCommits returns a Commits of w that stores to the chains results and letters. letters may be nil.
func NewCommits(w *Writer, results, letters *store.Chain) *Commits {
	c := &Commits{
		Writer: w, kind: topology.Commits(w.way.Load()), busy: make(chan struct{}, 1),
		results: results, letters: letters, leftovers: results.Leftovers(), settled: results.At(),
	}
	c.resultAge.stored, c.letterAge.stored = time.Now(), time.Now()
	if letters != nil {
		c.earlier = letters.Letters()
	}
	return c
}

// lock waits until no other goroutine uses the chains.
func (c *Commits) lock() (unlock func()) {
	c.busy <- struct{}{}
	return func() { <-c.busy }
}

// Found returns the position p up to which earlier leases have settled all inputs. ok is false if the position isn't known.
func (c *Commits) Found() (p store.Position, ok bool) { return c.results.Found() }

// Beyond returns the sequence of the last input for which earlier leases may have stored a message. It may exceed the position
// that Found returns.
func (c *Commits) Beyond() uint64 {
	last := c.results.Beyond()
	for _, in := range c.earlier {
		last = max(last, in.Sequence)
	}
	return last
}

func position(d *inflight.Delivery) store.Position {
	return store.Position{Sequence: d.Sequence, Stored: d.Stored.UnixNano()}
}

// Known reports whether an earlier lease has stored the result or the dead letter of d, so that nothing must be computed for d. It sets d.Parts to
// the ids of the stored parts of an incomplete result. With a stateful operator, an input above the last marker may have a result or a dead letter
// that the state doesn't know. Known then sets d.Done and returns false.
func (c *Commits) Known(ctx context.Context, d *inflight.Delivery) (bool, error) {
	in := position(d)
	if at, ok := c.results.Found(); ok && at.Covers(in) {
		return true, nil
	}
	if c.earlier.Has(store.Letter{Input: in, Record: store.WholeMessage}) {
		d.Done = c.earlier.IsDecided(in)
		return !d.Done, nil
	}
	done, parts, err := c.leftovers.Find(ctx, in, store.MapSubject(c.o.ResultPrefix, d.Subject), MessageID(d))
	d.Parts = parts
	d.Done = done && c.state != nil
	return done && !d.Done, err
}

// commit stores b with its marker. Without an error, all of b is stored. With an error, stored reports for each message of b whether it
// is stored.
func (c *Commits) commit(ctx context.Context, b store.Batch) (stored []bool, err error) {
	defer c.lock()()
	for _, m := range b.Messages {
		c.ownID(m)
	}
	if c.state != nil {
		if err := c.state.commitLog(ctx, c.results, &b); err != nil {
			return make([]bool, len(b.Messages)), err
		}
	}
	if stored, err = c.results.Commit(ctx, b); err != nil {
		return stored, err
	}
	if c.state != nil {
		c.state.committed(c.results)
		c.o.Observer.StateLogged(c.state.bytes)
	}
	c.settled, c.resultAge.stored = b.At, time.Now()
	return stored, c.keepLetters(ctx)
}

// Restore reads the log up to the last marker into a replica of the partition's state, which becomes the lease's state. batch is the
// maximum number of records in one call of State.Apply. Restore returns a *statelog.LostError if the log doesn't have the state that the
// marker describes. If the log lacks entries because a later owner has trimmed it, Restore returns store.ErrFenced.
//
// If the marker describes no state, or if begin is set, the replica must be empty, and a new log begins.
func (c *Commits) Restore(ctx context.Context, r *statelog.Replica, batch int, begin bool) error {
	at, state := c.results.Last()
	if state == nil || begin {
		state = &store.State{Spec: r.Spec(), Begins: at}
	}
	err := r.CatchUp(ctx, at, state)
	if errors.As(err, new(*statelog.LostError)) {
		err = cmp.Or(c.results.Current(ctx), err)
	}
	if err != nil {
		return err
	}
	limit := min(maxEntry, c.size.maxBytes()-entryHeaders)
	c.state = &decider{replica: r, op: c.stateful, batch: batch, entry: limit, stored: *state}
	if c.letters != nil {
		c.state.letters = &c.earlier
	}
	return nil
}

// Undecide removes decisions that aren't in the log from the state, after the end of the lease. It returns false if the state has
// failed, or if decisions on the same batch are, or may be, in the log. The state must not be used if Undecide returns false.
func (c *Commits) Undecide() bool { return c.state != nil && c.state.undecide() }

// Keep stores the last markers again before the streams remove them because of their age. It does nothing during a commit.
func (c *Commits) Keep(ctx context.Context) error {
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	default:
		return nil // a marker is being stored
	}
	if c.resultAge.isDue() {
		c.resultAge.stored = time.Now()
		if _, err := c.results.Commit(ctx, store.Batch{At: c.settled}); store.EndsChain(err) {
			return err
		}
	}
	return c.keepLetters(ctx)
}

// keepLetters renews the last marker of the dead letters if it is due. commit calls it too, because commits may follow each other
// without a pause for Keep.
func (c *Commits) keepLetters(ctx context.Context) error {
	if c.letters == nil || !c.letterAge.isDue() {
		return nil
	}
	c.letterAge.stored = time.Now()
	if err := c.letters.CommitLetters(ctx, nil, nil, c.settled); store.EndsChain(err) {
		return err
	}
	return nil // after any other error, the chain has stored a fence
}

// ownID moves the id of m from the server's id header to store.HeaderID, unless Options.ResultIDs is set.
func (c *Commits) ownID(m *nats.Msg) {
	if !c.o.ResultIDs {
		m.Header[store.HeaderID] = m.Header[jetstream.MsgIDHeader]
		delete(m.Header, jetstream.MsgIDHeader)
	}
}

// chain is the protocol with commit markers, for one batch. Each write is a commit.
type chain struct {
	*Commits
	// looked is the sequence of the last delivery that was looked up. Once is enough, because no other worker can store results of the
	// partition now.
	looked  uint64
	doubted bool // whether the stream has an unexpected result, so that all inputs must be looked up
	changed bool // whether the result stream's settings may have changed since the last write

	checked, progressed bool // whether the last commit was checked, and whether some of its messages are stored
}

// Store is like Writer.Store, but stores exactly once. After an error, the lease must end.
func (c *Commits) Store(ctx context.Context, b *inflight.Batch, s *Buffers, sink Sink) error {
	c.server.Refresh(ctx, false)
	return (&task{Writer: c.Writer, protocol: &chain{Commits: c}, b: b, s: s, sink: sink}).run(ctx)
}

// isUncertain implements protocol. A result that may not be published unchecked gets HeaderDeliveries, which lookups need.
func (p *chain) isUncertain(d *inflight.Delivery, now time.Time) bool {
	certain := d.Sequence <= p.looked || d.First || p.results.IsCertain(position(d))
	if !p.clearance.results.mayPublishUnchecked(d, now, p.clearance.results.publishFor(now)) {
		d.First = false
	}
	return !certain || p.doubted
}

// mayBeDecided implements protocol. The inputs whose results are stored are settled already.
func (p *chain) mayBeDecided(d *inflight.Delivery) bool {
	return d.Frame != nil && !d.First && (p.letters == nil || p.earlier.Lists(position(d)))
}

const (
	// maxAtomic is the maximum number of messages in an atomic batch, including the marker. It is nats-server's default.
	maxAtomic = 1000

	// maxFast is the maximum number of messages in a fast batch, including the marker.
	maxFast = 4096

	// maxCommittedBytes is the maximum number of bytes in the result bodies of one commit, unless a single input has more.
	maxCommittedBytes = 4 << 20
)

func (p *chain) state() *decider { return p.Commits.state }

func (p *chain) limits() (messages, bytes int) {
	messages = maxAtomic
	if p.results.Way == store.Fast {
		messages = maxFast
	}
	if p.Commits.state != nil {
		messages -= maxEntries
	}
	return messages, maxCommittedBytes
}

// write implements protocol. It stores a marker even without results, so that later markers need not list the batch's dead letters. A
// single result is checked from its second attempt on, which shows whether it can be stored.
func (p *chain) write(ctx context.Context, t *task, attempt int) error {
	p.doubted = false
	if len(t.b.Items) == 0 {
		return nil // the batch has only a part of a frame
	}
	last := t.to - 1
	p.looked = t.b.Items[last].Sequence
	if len(t.items) < len(t.s.left) {
		last = t.items[len(t.items)-1]
	}
	p.checked = attempt > 1 && len(t.items) == 1
	stored, err := make([]bool, len(t.s.msgs)), p.checkCurrent(ctx)
	if err == nil {
		stored, err = p.commit(ctx, store.Batch{Messages: t.s.msgs, At: position(&t.b.Items[last]), Checked: p.checked})
	}
	p.progressed = slices.Contains(stored, true)
	for _, ok := range stored {
		a := store.Answer{}
		if !ok {
			a.Err = err
		}
		t.s.answers = append(t.s.answers, a)
	}
	return err
}

// checkCurrent returns errSettingsChanged if the kind of commit has changed since the start of the lease.
func (p *chain) checkCurrent(ctx context.Context) error {
	if !p.changed {
		return nil
	}
	p.changed = false
	p.server.Refresh(ctx, true)
	if topology.Commits(p.way.Load()) != p.kind {
		return errSettingsChanged
	}
	return nil
}

// errSettingsChanged means that the lease must end because the result stream's settings require a different kind of commit.
var errSettingsChanged = errors.New("the result stream's settings have changed")

const (
	// codeDuplicate is JetStream's error code for an atomic batch with an id that the stream already has.
	codeDuplicate jetstream.ErrorCode = 10201

	// codeTooMany is JetStream's error code for an atomic batch with too many messages.
	codeTooMany jetstream.ErrorCode = 10199
)

// recover implements protocol. The server doesn't say which result of a commit can't be stored, so the commits get smaller until the
// result is alone.
func (p *chain) recover(t *task, err error) recovery {
	all, n := len(t.b.Items), len(t.items)
	var refused *jetstream.APIError
	never, incomplete := store.Unstorable(err), store.IncompleteBatch(err) && !p.checked // never: no retry stores all of t.items
	if errors.As(err, &refused) {
		never = never || incomplete || refused.ErrorCode == codeTooMany
	}
	switch {
	case store.EndsChain(err), errors.Is(err, errSettingsChanged):
		return recovery{over: fmt.Errorf("store results of a partition: %w", err)}
	case never && n == 1 && incomplete:
		return recovery{limit: 1} // the next commit is checked
	case never && n == 1:
		return recovery{limit: all, unstorable: []unstorable{{t.items[0], err}}}
	case never && p.progressed:
		return recovery{limit: 1} // the first delivery in s.left is the cause
	case never && n > 1:
		return recovery{limit: (n + 1) / 2}
	case refused != nil && refused.ErrorCode == codeDuplicate:
		p.doubted = true
		return recovery{limit: all}
	}
	p.changed = true
	return recovery{limit: all, pause: true}
}

// PublishDeadLetter is like Writer.PublishDeadLetter. It also stores a marker at d's position. All earlier inputs must be settled.
func (c *Commits) PublishDeadLetter(ctx context.Context, d *inflight.Delivery, why Reason, cause error) error {
	l := c.newDeadLetter(d, why, cause)
	if _, err := c.storeLetters(ctx, []*deadLetter{l}, new(partials)); err != nil {
		if ctx.Err() == nil {
			c.logUnstoredDeadLetter(l, err)
		}
		return err
	}
	_, err := c.commit(ctx, store.Batch{At: position(d)})
	return err
}

// letter returns the marker's entry for the dead letter.
func (l *deadLetter) letter() store.Letter {
	return store.Letter{Input: position(l.d), Record: l.record, Decided: l.isDecided()}
}

// isDecided reports whether the state of a stateful operator has taken records of a message that has a dead letter as a whole.
func (l *deadLetter) isDecided() bool {
	return l.w.stateful >= 0 && l.record == noRecord && l.d.Frame != nil && l.d.Frame.Decided()
}

// storeLetters implements protocol.
func (c *Commits) storeLetters(ctx context.Context, letters []*deadLetter, known *partials) (unstored []*deadLetter, err error) {
	if c.letters == nil {
		return c.publishLetters(ctx, letters, known)
	}
	return c.commitLetters(ctx, slices.DeleteFunc(letters, c.hasLetter))
}

func (c *Commits) hasLetter(l *deadLetter) bool {
	defer c.lock()()
	return c.letters.Letters().Has(l.letter())
}

// commitLetters stores letters in one commit. If the server refuses a dead letter, commitLetters stores each in a separate commit,
// in the first form that the server accepts. With an error, it returns the dead letters that aren't stored.
func (c *Commits) commitLetters(ctx context.Context, letters []*deadLetter) (unstored []*deadLetter, err error) {
	var msgs []*nats.Msg
	for _, l := range letters {
		l.store = func(ctx context.Context, m *nats.Msg) error {
			return c.writeLetters(ctx, []*deadLetter{l}, []*nats.Msg{m})
		}
		msgs = append(msgs, l.message(true, whole.omitted(), l.body))
	}
	if len(letters) == 0 {
		return nil, nil
	}
	err = c.writeLetters(ctx, letters, msgs)
	if err == nil {
		for _, l := range letters {
			l.stored()
		}
		return nil, nil
	}
	if !store.Unstorable(err) && !store.IncompleteBatch(err) {
		return letters, err
	}
	for n, l := range letters {
		if err := l.publishAlone(ctx); err != nil {
			return letters[n:], fmt.Errorf("dead letter on %q: %w", l.subject, err)
		}
		l.stored()
	}
	return nil, nil
}

// writeLetters stores msgs, the messages of letters, in one commit. It makes at most deadLetterAttempts attempts.
func (c *Commits) writeLetters(ctx context.Context, letters []*deadLetter, msgs []*nats.Msg) (err error) {
	defer c.lock()()
	ids := make([]store.Letter, len(letters))
	for i, l := range letters {
		ids[i] = l.letter()
		c.ownID(msgs[i])
	}
	for attempt := 1; ; attempt++ {
		err = c.letters.CommitLetters(ctx, msgs, ids, c.settled)
		switch {
		case err == nil:
			c.letterAge.stored = time.Now()
			return nil
		case store.EndsChain(err), store.Unstorable(err), store.IncompleteBatch(err) && len(msgs) > 1, errors.Is(err, jetstream.ErrNoStreamResponse), attempt >= deadLetterAttempts,
			!retry.Sleep(ctx, retry.Delay(attempt)):
			return err
		}
	}
}
