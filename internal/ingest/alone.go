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
const markTry = markAlone + "-"

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
	mark, err := s.w.readTry(ctx, d)
	if err == nil && mark.begun >= loneRuns {
		g.settle(items[0])
		s.w.giveUp(ctx, *d, DeviceFault, fmt.Errorf("%d workers died while it was alone on a device that had just computed right", mark.begun))
		return nil
	}
	t.deaths = -1
	if err == nil {
		if err = s.w.writeTry(ctx, d, mark.begun+1); err == nil {
			t.deaths = mark.begun
		}
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

// readTry reads what is noted of a payload.
func (w *Worker) readTry(ctx context.Context, d *delivery) (tryMark, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := w.consumer.Info(ctx)
	if err != nil {
		return tryMark{}, err
	}
	return parseTryMark(info.Config.Metadata[tryKey(d)], d.stored), nil
}

// writeTry notes that a payload is about to be tried alone for the n-th time that nobody may come back from; 0 takes the note
// away. It takes away too what is noted of payloads that are settled.
func (w *Worker) writeTry(ctx context.Context, d *delivery, n int) error {
	if time.Now().Before(w.noMarks) {
		return errNoMarks
	}
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
	if n > 0 {
		marks[tryKey(d)] = tryMark{n, d.stored}.String()
	} else {
		delete(marks, tryKey(d))
	}
	if maps.Equal(marks, config.Metadata) {
		return nil
	}
	config.Metadata = marks
	if _, err = w.js.UpdateConsumer(ctx, w.opts.Stream, config); err != nil {
		w.noMarks = time.Now().Add(noMarksFor)
	}
	return err
}

// noMarksFor is how long a worker that may not mark the consumer does not try to: each try would take askTimeout.
const noMarksFor = time.Minute

var errNoMarks = errors.New("the server did not take a note a moment ago")

// eraseTry takes a note away once the payload was tried and the process lives, also at the end of the drain.
func (w *Worker) eraseTry(d *delivery) {
	if err := w.writeTry(context.Background(), d, 0); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		w.log.Warn("could not take a note about a payload off the consumer: if it comes again, one death more counts against it",
			"sequence", d.sequence, "error", err)
	}
}

func tryKey(d *delivery) string { return markTry + strconv.FormatUint(d.sequence, 10) }
