// Package trim removes processed inputs from the input stream. The stream has retention by limits, so the server removes nothing by
// itself. A worker reads how far each consumer has acknowledged, and purges the stream up to the least of these floors
// ([adr/0048](../../../docs/adr/0048-the-worker-trims.md)).
//
// Package ingest runs a Trimmer in each worker, and package topology marks streams, registers consumers and reports what holds the
// floor. Start reading at Trimmer.Run, then reader.read, which decides what may be removed.
package trim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/retry"
)

// Observer receives events.
type Observer interface {
	// Trim is called after each look at the stream, by one goroutine, and must not block. It reports how many inputs were removed, and what the
	// consumers need. The state is empty if another worker trims.
	Trim(removed uint64, s State)
}

// Settings configures a Trimmer.
type Settings struct {
	JS        jetstream.JetStream
	Stream    string
	Policy    Policy
	Consumers []string // the consumers of this worker's deployment
	Log       *slog.Logger
	Observer  Observer
}

// Trimmer trims a stream. All workers of all deployments that read the stream have one. They don't talk to each other: whoever sees
// that the stream's beginning moves leaves the work to the others for a while.
type Trimmer struct {
	Settings
	reader reader

	first  uint64        // first sequence of the stream when this worker last looked, or after its last purge; 0: it hasn't looked
	yields int           // how often in a row this worker has left the work to others
	idle   time.Duration // the last pause after which nothing could be removed
	held   Reason        // why nothing may be removed, since heldAt
	heldAt time.Time     // zero after that was logged
}

// New returns a Trimmer.
func New(s Settings) *Trimmer {
	return &Trimmer{Settings: s, reader: reader{js: s.JS, stream: s.Stream, policy: s.Policy}}
}

// Register registers the consumers of this worker's deployment. Call it before the worker relies on them.
func (t *Trimmer) Register(ctx context.Context) error {
	return Register(ctx, t.JS, t.Stream, t.Policy, t.Consumers)
}

const (
	// busyPause is the time between two purges while there is something to remove.
	busyPause = 250 * time.Millisecond

	// leastPause and mostPause bound the time until the next look if another worker trims, or if nothing can be removed.
	leastPause = time.Second
	mostPause  = 8 * time.Second

	// stepTimeout bounds all requests of a step. In a cluster the server itself waits up to 4 s for the consumers' leaders.
	stepTimeout = 5 * time.Second

	// forbiddenPause is the time until the next look if the worker's user lacks a permission.
	forbiddenPause = 10 * time.Minute

	// mostYields bounds how often in a row a worker leaves the work to others. The beginning of the stream also moves when messages
	// expire, or when somebody else purges.
	mostYields = 3
)

// Run trims until ctx is done.
func (t *Trimmer) Run(ctx context.Context) {
	if t.Policy == Never {
		return
	}
	for pause := about(busyPause); retry.Sleep(ctx, pause); {
		var err error
		switch pause, err = t.step(ctx); {
		case err == nil || ctx.Err() != nil:
		case t.forbidden():
			t.Log.Warn("this worker may not remove processed inputs, so the stream fills unless others do: see docs/security.md, or set MILLRACE_STREAM_TRIM=false",
				"stream", t.Stream, "error", t.JS.Conn().LastError())
			t.Observer.Trim(0, State{Held: Forbidden})
			pause = forbiddenPause
		default:
			t.Log.Debug("could not look whether processed inputs can be removed", "stream", t.Stream, "error", err)
			pause = t.wait()
		}
	}
}

// forbidden reports whether the server has refused a request about the stream. A request without permission gets no answer.
func (t *Trimmer) forbidden() bool {
	last := t.JS.Conn().LastError()
	return errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(), "."+t.Stream+`"`)
}

// about returns a random time from d to twice d, so that workers that start together don't act together.
func about(d time.Duration) time.Duration { return d + rand.N(d) }

// wait returns the pause after a look that led to nothing. It grows.
func (t *Trimmer) wait() time.Duration {
	t.idle = min(max(2*t.idle, leastPause), mostPause)
	return about(t.idle) / 2
}

// step looks at the stream, and removes what may be removed unless another worker does. It returns the time until the next step.
func (t *Trimmer) step(ctx context.Context) (pause time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	server := t.JS.Conn().ConnectedServerId()
	s, err := t.JS.Stream(ctx, t.Stream)
	if err != nil {
		return 0, err
	}
	info := s.CachedInfo()
	moved := info.State.FirstSeq != t.first
	t.first = info.State.FirstSeq
	if leave := moved && t.yields < mostYields && !nearlyFull(info); leave || info.State.Msgs == 0 {
		t.yields++
		t.report(0, State{})
		return about(leastPause), nil
	}
	t.yields = 0
	state, err := t.look(ctx, info)
	if err != nil {
		return 0, err
	}
	if state.Held != None || state.Floor < info.State.FirstSeq {
		t.report(0, state)
		return t.wait(), nil
	}
	if err := t.purge(ctx, s, state, server); err != nil {
		return 0, err
	}
	t.report(state.Floor+1-t.first, state)
	t.first, t.idle = state.Floor+1, 0
	return busyPause, nil
}

// nearlyFull reports whether the stream will soon refuse messages. Then it doesn't matter who trims.
func nearlyFull(info *jetstream.StreamInfo) bool {
	most := info.Config.MaxBytes
	return most > 0 && info.State.Bytes > uint64(most)/2
}

// look reads what may be removed, and registers the consumers of this worker if they aren't registered. Then the next step may remove something.
func (t *Trimmer) look(ctx context.Context, info *jetstream.StreamInfo) (State, error) {
	s, err := t.reader.read(ctx, info)
	if err != nil || !t.Policy.trims(info.Config) || len(unregistered(info.Config, t.Consumers)) == 0 {
		return s, err
	}
	err = t.Register(ctx)
	if s.Held != None {
		return s, nil
	}
	if err != nil {
		return s.held(Unregistered, err.Error()), nil
	}
	return s.held(Unregistered, ""), nil
}

// purge removes every message up to the floor. server is the server to which this worker was connected when it read the stream: one that
// crashed may have lost the end of the stream and given its sequences to other messages.
func (t *Trimmer) purge(ctx context.Context, s jetstream.Stream, state State, server string) error {
	if nc := t.JS.Conn(); !nc.IsConnected() || nc.ConnectedServerId() != server {
		return fmt.Errorf("the connection to server %s is gone", server)
	}
	return s.Purge(ctx, jetstream.WithPurgeSequence(state.Floor+1))
}

// heldLong is how long nothing may be removed before the worker logs why. Consumers that are just being made are no news.
const heldLong = 30 * time.Second

// report passes a state to the observer, and logs what has held the stream for long.
func (t *Trimmer) report(removed uint64, s State) {
	t.Observer.Trim(removed, s)
	switch now := time.Now(); {
	case s.Held != t.held:
		t.held, t.heldAt = s.Held, now
	case s.Held != None && s.Held != NotTrimmed && !t.heldAt.IsZero() && now.Sub(t.heldAt) > heldLong:
		t.heldAt = time.Time{}
		t.Log.Warn("processed inputs stay in the stream, which fills", "stream", t.Stream, "because", s.Explain())
	}
}
