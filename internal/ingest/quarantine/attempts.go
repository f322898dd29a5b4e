package quarantine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
)

// What a worker with shared delivery leaves with the consumer, as metadata, about a payload that it tries alone: how often
// that was begun, each time on a device that had just passed a probe, and not ended by a process that lived. A death at
// any other moment says nothing about the payload. Only suspects that are tried alone are marked, so there are few.

// noteKey begins the key of such an annotation; the payload's sequence in the stream ends it.
const noteKey = "millrace-alone-"

// attemptNote is the value of such an annotation.
type attemptNote struct {
	begun  int       // tries alone that no process came back from
	stored time.Time // when the stream stored the payload, since a stream made anew starts over
}

func (m attemptNote) String() string { return fmt.Sprintf("%d %d", m.begun, m.stored.UnixNano()) }

// parseAttemptNote reads String's form for the payload that was stored then; what is of another payload or form counts nothing.
func parseAttemptNote(text string, stored time.Time) attemptNote {
	var begun int
	var at int64
	if n, err := fmt.Sscanf(text, "%d %d", &begun, &at); err != nil || n != 2 || begun < 0 || at != stored.UnixNano() {
		return attemptNote{stored: stored}
	}
	return attemptNote{begun, stored}
}

// Attempts keeps those notes, and asks the server about the consumer. It belongs to the goroutine that pulls.
type Attempts struct {
	JS       jetstream.JetStream
	Consumer jetstream.Consumer
	Stream   string
	Log      *slog.Logger
	noNotes  time.Time // until when nothing is noted
}

// begin notes that a payload is about to be tried alone, and returns how often that was begun before and nobody came back. What
// was begun too often is not noted again.
func (a *Attempts) begin(ctx context.Context, d *inflight.Delivery) (begun int, err error) {
	if time.Now().Before(a.noNotes) {
		return 0, errNoNotes
	}
	defer func() {
		if err != nil {
			a.noNotes = time.Now().Add(noNotesFor)
		}
	}()
	err = a.note(ctx, d, func(before attemptNote) attemptNote {
		if begun = before.begun; begun < LoneRuns {
			before.begun++
		}
		return before
	})
	return begun, err
}

// note changes what is noted of a payload; nothing begun takes the note away. It takes away too what is noted of payloads
// that are settled.
func (a *Attempts) note(ctx context.Context, d *inflight.Delivery, change func(before attemptNote) attemptNote) error {
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	info, err := a.Consumer.Info(ctx)
	if err != nil {
		return err
	}
	config := info.Config
	marks := maps.Clone(config.Metadata)
	if marks == nil {
		marks = map[string]string{}
	}
	maps.DeleteFunc(marks, func(key, _ string) bool {
		sequence, err := strconv.ParseUint(strings.TrimPrefix(key, noteKey), 10, 64)
		return strings.HasPrefix(key, noteKey) && (err != nil || sequence <= info.AckFloor.Stream)
	})
	key := noteKey + strconv.FormatUint(d.Sequence, 10)
	if mark := change(parseAttemptNote(marks[key], d.Stored)); mark.begun > 0 {
		marks[key] = mark.String()
	} else {
		delete(marks, key)
	}
	if maps.Equal(marks, config.Metadata) {
		return nil
	}
	config.Metadata = marks
	_, err = a.JS.UpdateConsumer(ctx, a.Stream, config)
	return err
}

// noNotesFor is how long a worker that may not mark the consumer does not try to: each try would take natsconn.RequestTimeout.
const noNotesFor = time.Minute

var errNoNotes = errors.New("the server did not take a note a moment ago")

// eraseTries is how often it is tried to take a note away: where it stays, one death more counts against the payload.
const eraseTries = 3

// erase takes a note away once the payload was tried and the process lives, also at the end of the drain.
func (a *Attempts) erase(d *inflight.Delivery) {
	nothing := func(attemptNote) attemptNote { return attemptNote{} }
	err := a.note(context.Background(), d, nothing)
	for n := 1; n < eraseTries && err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound); n++ {
		err = a.note(context.Background(), d, nothing)
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		a.Log.Warn("could not take a note about a payload off the consumer: if it comes again, one death more counts against it",
			"sequence", d.Sequence, "error", err)
	}
}

// idle reports whether the consumer has nothing else than the one payload that is tried: no other could show whether the
// device is well.
func (a *Attempts) idle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	info, err := a.Consumer.Info(ctx)
	return err == nil && info.NumPending == 0 && info.NumAckPending <= 1
}

// outstanding is how many deliveries nobody has settled, and how many of those came again.
func (a *Attempts) outstanding(ctx context.Context) (all, redelivered int, err error) {
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	info, err := a.Consumer.Info(ctx)
	if err != nil {
		return 0, 0, err
	}
	return info.NumAckPending, info.NumRedelivered, nil
}
