package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/retry"
)

// ChainOptions identifies a chain's owner.
type ChainOptions struct {
	Owner   string    // ID of the lease, unique among all leases
	Created time.Time // time when the input stream was created
	Way     Way       // method of storing batches

	// Again is called before each retry to store a marker in s. attempts is the number of attempts so far, and err is
	// the last error. If Again returns false, the lease ends. Otherwise the lease waits, because the stream may be full
	// or its server unavailable.
	Again func(ctx context.Context, s Markers, attempts int, err error) bool

	// Start is the position of the last acknowledged input. A chain without a marker has this position.
	Start Position

	// LookUp is the sequence of the last delivered input. Workers without markers may have stored results up to it. It
	// applies if Loose is set or if there is no marker.
	LookUp uint64
	Loose  bool // whether workers without markers owned the partition since the last marker

	// Entry returns the message that stores an entry of the log of the partition's state. behind is the stream sequence of the marker
	// after which its commit begins, and state is the state in that marker, or nil. Entry is nil without a stateful operator.
	Entry func(behind uint64, state *State, entry []byte) *nats.Msg
}

// Chain is the sequence of commit markers of one partition in one stream. It stores the batches of one lease exactly once, each with
// a marker. A marker is a message with the position up to which every input is settled. The server accepts a batch only if the
// partition's last marker is the expected one. A new owner first stores its own marker, a fence. From then on, the server refuses
// the batches of earlier owners.
//
// The results have a chain, and the dead letters have another one if they have their own stream. A Chain is not safe for concurrent
// use.
type Chain struct {
	ChainOptions
	stream Markers

	found   StoredMarker // the last marker of earlier owners
	last    uint64       // stream sequence of the last marker
	at      Position     // position of the last marker
	letters Letters      // dead letters that the last marker lists
	state   *State       // state that the last marker describes
	lookUp  uint64       // see Marker.LookUp
	number  uint64       // number of the last marker that was sent
	since   uint64       // stream sequence after which the stream may already have messages of inputs after the position at; 0 if it has none
	beyond  uint64       // last input that may have such messages
	left    Leftovers
}

// OpenChains takes over the chains of a partition. The first chain contains the results. The second one contains the dead
// letters, and is nil if letters is nil. In each chain, OpenChains stores a fence, which is a marker with the position of the
// last one. Afterwards the server refuses the batches of earlier owners. OpenChains waits while a stream is full or
// unavailable. It fails with ErrFenced if another worker takes over the partition at the same time.
//
// OpenChains reads the last markers of both chains before it stores the first fence. Otherwise each of two workers could get
// one of the chains, and an input could get both a result and a dead letter.
func OpenChains(ctx context.Context, o ChainOptions, results, letters Markers) (*Chain, *Chain, error) {
	opening := opening{results: &Chain{ChainOptions: o, stream: results}}
	if letters != nil {
		o.Way = Atomic
		opening.letters = &Chain{ChainOptions: o, stream: letters}
	}
	for attempt := 1; ; attempt++ {
		failed, err := opening.take(ctx)
		if err == nil {
			return opening.results, opening.letters, nil
		}
		if errors.Is(err, ErrFenced) || !failed.mayRetry(ctx, attempt, err) {
			return nil, nil, fmt.Errorf("store a commit marker: %w", err)
		}
	}
}

// opening is the progress of one call of OpenChains.
type opening struct {
	results, letters *Chain
	fenced           bool // whether the fence of the results is stored
}

// take reads the last markers and stores the missing fences. On an error, it also returns the chain that failed.
func (o *opening) take(ctx context.Context) (failed *Chain, err error) {
	var letters, results StoredMarker
	if o.letters != nil {
		if letters, err = o.letters.stream.Last(ctx); err != nil {
			return o.letters, err
		}
	}
	if results, err = o.results.stream.Last(ctx); err != nil {
		return o.results, err
	}
	if o.fenced && results.Owner != o.results.Owner {
		return o.results, ErrFenced
	}
	if err := o.results.fence(ctx, results); err != nil {
		return o.results, err
	}
	o.fenced = true
	if o.letters == nil {
		return nil, nil
	}
	return o.letters, o.letters.fence(ctx, letters)
}

// fence stores a fence after the last marker, unless the last marker is the fence of an earlier attempt. It also
// prepares the leftovers of earlier owners.
func (c *Chain) fence(ctx context.Context, last StoredMarker) (err error) {
	if last.At == 0 || last.Owner != c.Owner {
		c.found, c.last = last, last.At
		c.at, c.letters, c.state, c.lookUp = c.Start, nil, nil, c.LookUp
		if last.of(c.Created) {
			c.at, c.letters, c.state, c.lookUp, c.since = last.Position, last.Letters, last.State, last.LookUp, last.begins()
			if c.Entry == nil {
				c.state = nil // without a stateful operator, the state misses the inputs from here on
			}
			if c.Loose {
				c.lookUp = max(c.lookUp, c.LookUp)
			}
		}
		if c.Entry != nil && last.Owner == "" {
			if c.state, err = c.lostState(ctx); err != nil {
				return err
			}
		}
		way := Atomic
		if last.Fast {
			way = Fast // a fast batch of the last owner may be open
		}
		if last.At, err = c.stream.Write(ctx, way, c.last, nil, c.next(c.at, c.letters)); err != nil {
			return err
		}
	}
	c.last = last.At
	if c.since == 0 {
		return nil
	}
	c.beyond, err = c.stream.Begun(ctx, c.since, c.last)
	c.left = Leftovers{readings: readings{stream: c.stream, behind: c.since, before: c.last}, until: c.beyond}
	return err
}

// LostSpec is the Spec of a state whose markers are gone. Markers expire if no worker stores them again in time.
const LostSpec = "settings that are unknown, because its commit markers have expired (max_age) or were purged"

// lostState returns the state of a partition without a marker. If the partition has a log, the state can't be restored,
// and its Spec is LostSpec. Otherwise the state is nil.
func (c *Chain) lostState(ctx context.Context) (*State, error) {
	entry, _, err := c.stream.Next(ctx, 0, c.Entry(0, nil, nil).Subject)
	if err != nil || entry == 0 {
		return nil, err
	}
	return &State{Spec: LostSpec}, nil
}

// Found returns the position of the last marker that earlier owners have stored. ok is false if there is no marker, or
// if the input stream was recreated since.
func (c *Chain) Found() (p Position, ok bool) { return c.found.Position, c.found.of(c.Created) }

// Beyond returns the sequence of the last input for which earlier owners may have stored messages.
func (c *Chain) Beyond() uint64 { return max(c.at.Sequence, c.beyond) }

// At returns the position of the last marker.
func (c *Chain) At() Position { return c.at }

// IsCertain reports whether an input that is in neither the last marker nor the leftovers has no result. If IsCertain
// returns false, the result must be looked up. A worker without markers may have stored it, or the input stream was
// restored from an older copy and reuses sequences.
func (c *Chain) IsCertain(in Position) bool {
	return in.Sequence > c.lookUp && (!c.found.of(c.Created) || in.Sequence > c.found.Sequence)
}

// Last returns the stream sequence of the last marker, and the state that it describes. The state is nil if there was no stateful operator.
func (c *Chain) Last() (sequence uint64, state *State) { return c.last, c.state }

// Current returns ErrFenced if another owner has stored a marker since this chain's last one. It returns ErrLost if the stream has no
// marker.
func (c *Chain) Current(ctx context.Context) error {
	last, err := c.stream.Last(ctx)
	switch {
	case err != nil:
		return err
	case last.At == 0:
		return ErrLost
	case last.Owner != c.Owner:
		return ErrFenced
	}
	return nil
}

// Leftovers returns the results that earlier owners stored for inputs that the last marker doesn't cover. Another
// goroutine may use them while the chain is in use.
func (c *Chain) Leftovers() *Leftovers { return &c.left }

// Letters returns the stored dead letters of inputs that the last marker doesn't cover.
func (c *Chain) Letters() Letters { return c.letters }

func (c *Chain) next(at Position, letters Letters) *Marker {
	c.number++
	m := &Marker{Position: at, Created: c.Created.UnixNano(), Owner: c.Owner, Number: c.number, Fast: c.Way == Fast, Letters: letters, State: c.state, Until: max(at.Sequence, c.beyond)}
	if at == c.at || c.beyond > at.Sequence {
		m.Since = c.since
	}
	if c.lookUp > at.Sequence {
		m.LookUp = c.lookUp
	}
	return m
}

// Batch has the messages and the state that a commit stores.
type Batch struct {
	Messages []*nats.Msg // stored in this order; all messages of an input must be in one commit
	At       Position    // position up to which every input is then settled

	// Checked makes an error contain the server's reason, but slows the commit. Use it for a few messages that the server may refuse.
	Checked bool

	Log   [][]byte // entries of the log of the partition's state, in order; stored after the messages
	State *State   // the state at At; nil means the state of the last marker
}

// Commit stores a batch, and then its marker. stored[i] reports whether b.Messages[i] is known to be stored, even after an error. Without
// an error, everything is stored.
//
// After an error, no further message of the commit can be stored. Unless EndsChain(err), the caller may commit the missing messages or other
// messages. It must then store all entries of the log again.
func (c *Chain) Commit(ctx context.Context, b Batch) (stored []bool, err error) {
	way := c.Way
	if b.Checked && way == Atomic {
		way = Checked
	}
	m := c.next(b.At, c.letters.above(b.At))
	if b.State != nil {
		state := *b.State // the caller may change it, and later markers repeat it
		m.State = &state
	}
	return c.write(ctx, way, b.Messages, b.Log, m)
}

// CommitLetters stores all the dead letters or none. settled is the position up to which results are stored. The marker
// lists only dead letters above settled.
func (c *Chain) CommitLetters(ctx context.Context, msgs []*nats.Msg, letters []Letter, settled Position) error {
	way := Atomic
	if len(msgs) == 1 {
		way = Checked
	}
	_, err := c.write(ctx, way, msgs, nil, c.next(settled, c.letters.above(settled).add(letters)))
	return err
}

// errUnclear means that the outcome of a write isn't known.
var errUnclear = errors.New("it is unknown which messages are stored")

// EndsChain reports whether an error of a commit ends the chain. The next lease then determines which messages are stored.
func EndsChain(err error) bool {
	return errors.Is(err, errUnclear) || errors.Is(err, ErrFenced) || errors.Is(err, ErrLost)
}

// write stores messages, log entries and their marker. If the server doesn't confirm them, write determines which messages are stored.
func (c *Chain) write(ctx context.Context, way Way, msgs []*nats.Msg, log [][]byte, m *Marker) (stored []bool, err error) {
	stored = make([]bool, len(msgs))
	behind, all := c.last, msgs[:len(msgs):len(msgs)]
	for _, entry := range log {
		all = append(all, c.Entry(behind, c.state, entry))
	}
	sequence, err := c.stream.Write(ctx, way, behind, all, m)
	if err == nil {
		c.advance(sequence, m)
		return slices.Repeat([]bool{true}, len(msgs)), nil
	}
	if way == Fast && len(all) > 0 {
		c.beyond = max(c.beyond, m.Position.Sequence)
	}
	fence, unclear := c.resolve(ctx, way, m)
	if unclear == nil && fence == nil {
		return slices.Repeat([]bool{true}, len(msgs)), nil // the marker is stored, so all messages before it are stored
	}
	if unclear == nil && way == Fast {
		unclear = c.readBack(ctx, behind, msgs, stored)
	}
	if unclear != nil {
		return stored, fmt.Errorf("%w, after: %w", unclear, err)
	}
	return stored, err
}

// advance records that a marker is stored at a stream sequence.
func (c *Chain) advance(sequence uint64, m *Marker) {
	c.last, c.at, c.letters, c.state, c.number, c.since = sequence, m.Position, m.Letters, m.State, max(c.number, m.Number), m.Since
}

// resolve determines whether an unconfirmed write is stored with its marker. It stores a fence on the condition that
// the last known marker is still the last one. If the server accepts the fence, the write can never be committed, and
// resolve returns the fence. Otherwise the last marker belongs to the write, to an earlier attempt to store the fence,
// or to another owner.
func (c *Chain) resolve(ctx context.Context, way Way, sent *Marker) (fence *Marker, err error) {
	fence = c.next(c.at, c.letters)
	if way == Fast && fence.Since == 0 {
		fence.Since = c.last
	}
	for attempt := 1; ; attempt++ {
		sequence, err := c.stream.Write(ctx, c.Way, c.last, nil, fence)
		if err == nil {
			c.advance(sequence, fence)
			return fence, nil
		}
		if wrong := (*WrongLastError)(nil); errors.As(err, &wrong) {
			if last, failed := c.stream.Last(ctx); failed == nil && last.At >= wrong.Last {
				return c.compare(last, sent, fence)
			}
		}
		if !c.mayRetry(ctx, attempt, err) {
			return nil, fmt.Errorf("%w: %w", errUnclear, err)
		}
	}
}

// mayRetry waits before a marker is sent again. It returns false if the lease must end instead.
func (c *Chain) mayRetry(ctx context.Context, attempts int, err error) bool {
	return c.Again(ctx, c.stream, attempts, err) && retry.Sleep(ctx, retry.Delay(attempts))
}

// compare returns nil if last is the marker sent, and fence if last is the marker fence. Any other marker is an error.
func (c *Chain) compare(last StoredMarker, sent, fence *Marker) (stored *Marker, err error) {
	switch {
	case last.At == 0:
		return nil, ErrLost
	case last.Owner != c.Owner:
		return nil, ErrFenced
	case last.Number == sent.Number:
		c.advance(last.At, sent)
		return nil, nil
	case last.Number == fence.Number:
		c.advance(last.At, fence)
		return fence, nil
	}
	return nil, ErrLost
}

// readBack sets stored[i] if msgs[i], of an uncommitted batch, is in the stream after stream sequence behind.
func (c *Chain) readBack(ctx context.Context, behind uint64, msgs []*nats.Msg, stored []bool) (err error) {
	r := readings{stream: c.stream, behind: behind, before: c.last}
	for i, m := range msgs {
		if stored[i], err = r.has(ctx, m.Subject, IDOf(m.Header)); err != nil {
			return fmt.Errorf("%w: %w", errUnclear, err)
		}
	}
	return nil
}

// Leftovers finds stored results of earlier owners for inputs that the last marker doesn't cover. It is not safe for
// concurrent use.
type Leftovers struct {
	readings
	until uint64 // last input that may have such results
}

// Find looks for the stored messages of an input's result on the given subject. done reports whether the last message,
// with the given id, is stored. parts contains the ids of the stored parts, which begin with id + "/". Publishers never
// store the last message before the parts.
func (l *Leftovers) Find(ctx context.Context, in Position, subject, id string) (done bool, parts []string, err error) {
	if in.Sequence > l.until {
		l.ids = nil // inputs are in order, so the ids are not needed any longer
		return false, nil, nil
	}
	ids, err := l.of(ctx, subject)
	for _, each := range ids {
		switch {
		case each == id:
			done = true
		case strings.HasPrefix(each, id+"/"):
			parts = append(parts, each)
		}
	}
	return done, parts, err
}

// readings reads the messages between two markers, which may be stored without a marker that covers them.
type readings struct {
	stream         Markers
	behind, before uint64              // stream sequences of the two markers; 0 and 0 if there are no such messages
	ids            map[string][]string // ids that were read, by subject
}

// of returns the ids of the messages with the given subject.
func (r *readings) of(ctx context.Context, subject string) ([]string, error) {
	if ids, known := r.ids[subject]; known || r.behind == 0 {
		return ids, nil
	}
	var ids []string
	for at := r.behind; ; {
		sequence, h, err := next(ctx, r.stream, at, subject)
		if err != nil {
			return nil, fmt.Errorf("read back the messages on %q after a commit marker: %w", subject, err)
		}
		if sequence == 0 || sequence > r.before {
			break
		}
		if ids = append(ids, IDOf(h)); len(ids) > maxBehind {
			return nil, fmt.Errorf("more than %d messages on %q follow the commit marker %d", maxBehind, subject, r.behind)
		}
		at = sequence
	}
	if r.ids == nil {
		r.ids = map[string][]string{}
	}
	r.ids[subject] = ids
	return ids, nil
}

// has reports whether a message with the given subject and id is stored.
func (r *readings) has(ctx context.Context, subject, id string) (bool, error) {
	ids, err := r.of(ctx, subject)
	return slices.Contains(ids, id), err
}

// readAttempts is the number of attempts to read a message back.
const readAttempts = 8

// next calls Markers.Next until it succeeds, at most readAttempts times.
func next(ctx context.Context, stream Markers, behind uint64, subject string) (sequence uint64, h nats.Header, err error) {
	for attempt := 1; ; attempt++ {
		if sequence, h, err = stream.Next(ctx, behind, subject); err == nil || attempt == readAttempts || !retry.Sleep(ctx, retry.Delay(attempt)) {
			return sequence, h, err
		}
	}
}
