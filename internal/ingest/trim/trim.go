// Package trim removes processed inputs from the input stream. The stream has retention by limits, so the server
// doesn't remove processed inputs. A worker reads the acknowledgement floor of each consumer, and purges the stream up
// to the lowest of these floors ([adr/0048](../../../docs/adr/0048-the-worker-trims.md)).
//
// Package ingest runs a Trimmer in each worker. Package topology marks streams, registers consumers and reports the
// consumer that holds the floor. Start reading at Trimmer.Run, then Trimmer.Look, which determines the floor.
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

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/retry"
)

// Observer receives the outcome of each step of a Trimmer.
type Observer interface {
	// Trim is called after each step, by one goroutine, and must not block. It reports the number of removed inputs and
	// the state of the stream. The state is empty if another worker trims.
	Trim(removed uint64, s State)
}

// Options configures a Trimmer.
type Options struct {
	JS        jetstream.JetStream
	Stream    string
	Policy    Policy
	Consumers []string // the consumers of this worker's deployment
	Log       *slog.Logger
	Observer  Observer
}

// Trimmer trims a stream. Every worker that reads the stream has a Trimmer. The workers don't communicate. If a worker
// sees that the first sequence of the stream has moved, it leaves the work to other workers for some time.
type Trimmer struct {
	Options

	first  uint64        // first sequence of the stream at the last step, or after the last purge; 0 before the first step
	yields int           // number of consecutive steps in which this worker left the work to other workers
	idle   time.Duration // pause after the last step that removed nothing, without its random part; 0 after a purge
	held   Reason        // reason why nothing may be removed, since heldAt
	heldAt time.Time     // zero after the reason was logged

	copies   []string  // names of the streams in the account that copy the stream
	listedAt time.Time // time when copies was read
}

// New returns a Trimmer.
func New(o Options) *Trimmer { return &Trimmer{Options: o} }

const (
	// busyPause is the time between two purges while there is something to remove.
	busyPause = 250 * time.Millisecond

	// minPause and maxPause bound the time until the next step if another worker trims, or if nothing can be
	// removed.
	minPause = time.Second
	maxPause = 8 * time.Second

	// stepTimeout is the timeout of all requests of a step together. In a cluster the server itself waits up to 4 s for
	// the consumers' leaders.
	stepTimeout = 5 * time.Second

	// forbiddenPause is the time until the next step if the worker's user lacks a permission.
	forbiddenPause = 10 * time.Minute

	// maxYields is the maximum number of consecutive steps in which a worker leaves the work to other workers. The
	// first sequence of the stream also moves when messages expire, or when an administrator purges the stream.
	maxYields = 3
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
		case t.isForbidden():
			t.Log.Warn("this worker may not remove processed inputs, so the stream fills unless others do: see docs/security.md, or set MILLRACE_STREAM_TRIM=false",
				"stream", t.Stream, "error", t.JS.Conn().LastError())
			t.Observer.Trim(0, State{Held: Forbidden})
			pause = forbiddenPause
		default:
			t.Log.Debug("could not check whether processed inputs can be removed", "stream", t.Stream, "error", err)
			pause = t.wait()
		}
	}
}

// isForbidden reports whether the server has refused a request about the stream. A request without permission gets no answer.
func (t *Trimmer) isForbidden() bool {
	last := t.JS.Conn().LastError()
	return errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(), "."+t.Stream+`"`)
}

// about returns a random time from d to twice d, so that workers that start together don't act together.
func about(d time.Duration) time.Duration { return d + rand.N(d) }

// wait returns the pause after a step that removed nothing. The pause grows with each consecutive step.
func (t *Trimmer) wait() time.Duration {
	t.idle = min(max(2*t.idle, minPause), maxPause)
	return about(t.idle) / 2
}

// step removes processed inputs, unless another worker trims. It returns the time until the next step.
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
	if leave := moved && t.yields < maxYields && !nearlyFull(info); leave || info.State.Msgs == 0 {
		t.yields++
		t.report(0, State{})
		return about(minPause), nil
	}
	t.yields = 0
	state, err := t.lookRegistered(ctx, info)
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

// nearlyFull reports whether the stream uses more than half of its byte limit. In that case, this worker trims even if
// another worker does.
func nearlyFull(info *jetstream.StreamInfo) bool {
	limit := info.Config.MaxBytes
	return limit > 0 && info.State.Bytes > uint64(limit)/2
}

// lookRegistered is like Look. If this worker's consumers aren't registered, lookRegistered registers them, and nothing is
// removed before the next step.
func (t *Trimmer) lookRegistered(ctx context.Context, info *jetstream.StreamInfo) (State, error) {
	s, err := t.Look(ctx, info)
	if err != nil || !t.Policy.trims(info.Config) || len(unregistered(info.Config, t.Consumers)) == 0 {
		return s, err
	}
	detail := "another worker has just changed the stream"
	if err := t.Register(ctx); err != nil {
		detail = err.Error()
	}
	if s.Held == None {
		s = s.held(Unregistered, detail)
	}
	return s, nil
}

// purge removes every message up to the floor. It fails if the worker is no longer connected to the server with the
// given ID. A server that crashed may have lost the stream's last messages and reused their sequences.
func (t *Trimmer) purge(ctx context.Context, s jetstream.Stream, state State, server string) error {
	if nc := t.JS.Conn(); !nc.IsConnected() || nc.ConnectedServerId() != server {
		return fmt.Errorf("the connection to server %s is gone", server)
	}
	return s.Purge(ctx, jetstream.WithPurgeSequence(state.Floor+1))
}

// heldLong is the time for which nothing may be removed before the worker logs the reason. The delay avoids warnings
// while consumers are being created.
const heldLong = 30 * time.Second

// report passes a state to the observer. It logs the reason once if nothing may be removed for heldLong.
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

// May returns an error if the user lacks the permission to purge the stream, whose configuration is c. If a consumer isn't
// registered, the user also needs the permission to change the stream's metadata. May sends only requests that the server
// refuses in any case.
func (t *Trimmer) May(ctx context.Context, c jetstream.StreamConfig) error {
	if err := MayPurge(ctx, t.JS, c.Name); err != nil || len(unregistered(c, t.Consumers)) == 0 {
		return err
	}
	return refuses(ctx, t.JS, "STREAM.UPDATE."+c.Name, map[string]any{"name": c.Name + "-"})
}

// MayPurge returns an error if the user lacks the permission to purge a stream. It sends only a request that the server refuses in any
// case.
func MayPurge(ctx context.Context, js jetstream.JetStream, stream string) error {
	return refuses(ctx, js, "STREAM.PURGE."+stream, map[string]any{"seq": 1, "keep": 1})
}

// refuses sends an invalid request, and returns an error unless the server refuses it as invalid. The server doesn't
// answer a request without permission.
func refuses(ctx context.Context, js jetstream.JetStream, request string, body any) error {
	err := jsapi.Request(ctx, js, request, body, &struct{}{})
	if refused := (*jetstream.APIError)(nil); errors.As(err, &refused) && refused.Code == badRequest {
		return nil
	}
	return fmt.Errorf("%s: %w", jsapi.Of(js).Subject(request), err)
}

// badRequest is the server's error code for an invalid request.
const badRequest = 400

const (
	// registerTries is the maximum number of times that Register writes. A worker that registers at the same time may
	// overwrite the change, because the server replaces the whole configuration.
	registerTries = 5

	// registerPause is the time that Register waits after it has written, before it checks the result.
	registerPause = 200 * time.Millisecond
)

// Register registers the consumers if the stream may be trimmed, and returns when they are registered. Call it before a worker
// relies on them. It never unregisters a consumer. After a deployment is gone, inputs stay until an administrator deletes the
// deployment's consumers from the metadata.
func (t *Trimmer) Register(ctx context.Context) error {
	for range registerTries {
		s, err := t.JS.Stream(ctx, t.Stream)
		if err != nil {
			return fmt.Errorf("look up stream %q: %w", t.Stream, err)
		}
		c := s.CachedInfo().Config
		if !t.Policy.trims(c) || len(unregistered(c, t.Consumers)) == 0 {
			return nil
		}
		marked := Marked(c)
		if c.Metadata = WithMark(c, t.Consumers); !marked {
			delete(c.Metadata, MarkKey) // the policy is Always
		}
		if _, err := t.JS.UpdateStream(ctx, c); err != nil {
			return fmt.Errorf("register the consumers in the metadata of stream %q, so that it keeps their inputs: %w (allow the worker's user to publish on "+
				"%s)", t.Stream, err, jsapi.Of(t.JS).Subject("STREAM.UPDATE."+t.Stream))
		}
		if !retry.Sleep(ctx, registerPause) {
			return ctx.Err()
		}
	}
	return errRegister
}

var errRegister = errors.New("could not register the consumers in the metadata of the stream, because others change it at the same time")
