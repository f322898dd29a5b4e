package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/streams"
)

// What a worker with shared delivery leaves with the consumer, as metadata, about a payload that it tries alone: how often
// that was begun, each time on a device that had just passed a probe, and not ended by a process that lived. A death at
// any other moment says nothing about the payload. Only suspects that are tried alone are marked, so there are few.

// markTry begins the key of such an annotation; the payload's sequence in the stream ends it.
const markTry = annotationAlone + "-"

// tryMark is the value of such an annotation.
type tryMark struct {
	begun  int       // tries alone that no process came back from
	stored time.Time // when the stream stored the payload, since a stream made anew starts over
}

func (m tryMark) String() string { return fmt.Sprintf("%d %d", m.begun, m.stored.UnixNano()) }

// parseTryMark reads String's form for the payload that was stored then; what is of another payload or form counts nothing.
func parseTryMark(text string, stored time.Time) tryMark {
	var begun int
	var at int64
	if n, err := fmt.Sscanf(text, "%d %d", &begun, &at); err != nil || n != 2 || begun < 0 || at != stored.UnixNano() {
		return tryMark{stored: stored}
	}
	return tryMark{begun, stored}
}

// tryAlone tries a suspect that runs alone. What no process came back from twice becomes a dead letter untried.
func (s *suspects) tryAlone(ctx context.Context, pipe *streams.Pipeline, g *group, items []int) error {
	t, d := s.trier, &g.items[items[0]]
	s.w.log.Warn("a payload that no worker has settled yet is tried alone", "sequence", d.sequence,
		"deliveries", d.deliveries, "bytes", len(d.msg.Data()))
	if err := t.probe(ctx, pipe); err != nil {
		return t.withhold(ctx, g, items, err)
	}
	begun, err := s.w.beginTry(ctx, d)
	if err == nil && begun >= loneRuns {
		g.settle(items[0])
		s.w.giveUp(ctx, g.yield(items[0]), DeviceFault, fmt.Errorf("%d workers died while it was alone on a device that had just computed right", begun))
		return nil
	}
	t.deaths = begun
	if err != nil {
		t.deaths = -1
	}
	if err != nil {
		s.w.log.Warn("could not note with the consumer that a payload is tried alone: if it ends processes without a word it is not "+
			"given up (may this user publish on $JS.API.CONSUMER.CREATE for it? see docs/security.md)", "sequence", d.sequence, "error", err)
	}
	t.lone = true
	err = t.try(ctx, pipe, g, items)
	t.lone = false
	if t.deaths >= 0 && !errors.Is(err, device.ErrKernelFault) {
		s.w.eraseTry(d)
	}
	return err
}

// beginTry notes that a payload is about to be tried alone, and returns how often that was begun before and nobody came back. What
// was begun too often is not noted again.
func (w *Worker) beginTry(ctx context.Context, d *delivery) (begun int, err error) {
	if time.Now().Before(w.noMarks) {
		return 0, errNoMarks
	}
	defer func() {
		if err != nil {
			w.noMarks = time.Now().Add(noMarksFor)
		}
	}()
	err = w.noteTry(ctx, d, func(before tryMark) tryMark {
		if begun = before.begun; begun < loneRuns {
			before.begun++
		}
		return before
	})
	return begun, err
}

// noteTry changes what is noted of a payload; nothing begun takes the note away. It takes away too what is noted of payloads
// that are settled.
func (w *Worker) noteTry(ctx context.Context, d *delivery, change func(before tryMark) tryMark) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := w.consumer.Info(ctx)
	if err != nil {
		return err
	}
	config := info.Config
	marks := maps.Clone(config.Metadata)
	if marks == nil {
		marks = map[string]string{}
	}
	maps.DeleteFunc(marks, func(key, _ string) bool {
		sequence, err := strconv.ParseUint(strings.TrimPrefix(key, markTry), 10, 64)
		return strings.HasPrefix(key, markTry) && (err != nil || sequence <= info.AckFloor.Stream)
	})
	key := markTry + strconv.FormatUint(d.sequence, 10)
	if mark := change(parseTryMark(marks[key], d.stored)); mark.begun > 0 {
		marks[key] = mark.String()
	} else {
		delete(marks, key)
	}
	if maps.Equal(marks, config.Metadata) {
		return nil
	}
	config.Metadata = marks
	_, err = w.js.UpdateConsumer(ctx, w.opts.Stream, config)
	return err
}

// noMarksFor is how long a worker that may not mark the consumer does not try to: each try would take askTimeout.
const noMarksFor = time.Minute

var errNoMarks = errors.New("the server did not take a note a moment ago")

// eraseTries is how often it is tried to take a note away: where it stays, one death more counts against the payload.
const eraseTries = 3

// eraseTry takes a note away once the payload was tried and the process lives, also at the end of the drain.
func (w *Worker) eraseTry(d *delivery) {
	nothing := func(tryMark) tryMark { return tryMark{} }
	err := w.noteTry(context.Background(), d, nothing)
	for n := 1; n < eraseTries && err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound); n++ {
		err = w.noteTry(context.Background(), d, nothing)
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		w.log.Warn("could not take a note about a payload off the consumer: if it comes again, one death more counts against it",
			"sequence", d.sequence, "error", err)
	}
}
