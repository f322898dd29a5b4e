package quarantine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
)

// Before a worker with shared delivery runs a payload alone, it writes a note to the consumer's metadata, and removes it afterwards.
// If a note stays, the process died while the payload ran, on a device that had just passed a probe. A death at any other time
// proves nothing about the payload.

// noteKey is the prefix of a note's key. The payload's stream sequence follows.
const noteKey = "millrace-alone-"

// attemptNote is the value of a note.
type attemptNote struct {
	begun     int       // number of times that the process died while the payload ran alone
	stored    time.Time // time when the stream stored the payload; a recreated stream reuses sequences
	Narrowing           // state of the search in a frame; its text follows
}

func (m attemptNote) String() string {
	text := fmt.Sprintf("%d %d", m.begun, m.stored.UnixNano())
	if m.Records > 0 {
		text += " " + m.Narrowing.String()
	}
	return text
}

// parseAttemptNote parses a note about the payload that was stored at the given time. If the note is about another payload or
// invalid, it returns a note without tries.
func parseAttemptNote(text string, stored time.Time) attemptNote {
	var begun int
	var at int64
	if n, err := fmt.Sscanf(text, "%d %d", &begun, &at); err != nil || n != 2 || begun < 0 || at != stored.UnixNano() {
		return attemptNote{stored: stored}
	}
	_, rest, _ := strings.Cut(text, " ")
	_, rest, _ = strings.Cut(rest, " ")
	return attemptNote{begun, stored, ParseNarrowing(rest)}
}

// Consumer requests the state of a consumer, or changes its metadata.
type Consumer interface {
	// Info returns the consumer's state.
	Info(ctx context.Context) (*jetstream.ConsumerInfo, error)

	// Annotate replaces the consumer's metadata. config is the consumer's current configuration.
	Annotate(ctx context.Context, config jetstream.ConsumerConfig, metadata map[string]string) error
}

// Attempts writes attempt notes and queries the consumer's state. Only the goroutine that pulls may write notes.
type Attempts struct {
	Consumer Consumer
	Log      *slog.Logger
	noNotes  time.Time // time until which begin writes no notes, after an error
}

// begin writes a note before a payload runs alone. begun is the number of earlier tries in which a process died. If begun is at
// least LoneRuns, begin doesn't change the note.
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

// last returns the note that an earlier process left for a frame.
func (a *Attempts) last(ctx context.Context, d *inflight.Delivery) (note attemptNote, err error) {
	err = a.note(ctx, d, func(before attemptNote) attemptNote {
		note = before
		return before
	})
	return note, err
}

// keep writes a note before records of a frame run alone.
func (a *Attempts) keep(ctx context.Context, d *inflight.Delivery, n Narrowing) error {
	return a.note(ctx, d, func(before attemptNote) attemptNote { return attemptNote{max(before.begun, 1), before.stored, n} })
}

// note changes the note of a payload. It removes a note without tries, and all notes of settled payloads.
func (a *Attempts) note(ctx context.Context, d *inflight.Delivery, change func(before attemptNote) attemptNote) error {
	return a.update(ctx, func(marks map[string]string, floor uint64) {
		maps.DeleteFunc(marks, func(key, _ string) bool {
			sequence, err := strconv.ParseUint(strings.TrimPrefix(key, noteKey), 10, 64)
			return strings.HasPrefix(key, noteKey) && (err != nil || sequence <= floor)
		})
		key := noteKey + strconv.FormatUint(d.Sequence, 10)
		if mark := change(parseAttemptNote(marks[key], d.Stored)); mark.begun > 0 {
			marks[key] = mark.String()
		} else {
			delete(marks, key)
		}
	})
}

// NoteFault writes a note that an operator has caused the loss of a device. The next process reads the note and reports the
// fault, because this process ends.
func (a *Attempts) NoteFault(ctx context.Context, f inflight.OperatorFault) {
	err := a.update(ctx, func(marks map[string]string, _ uint64) {
		marks[inflight.FaultNote] = inflight.AddFault(marks[inflight.FaultNote], f)
	})
	if err != nil {
		a.Log.Warn("could not note in the consumer's metadata that an operator lost a device: the alert MillraceOperatorFaults doesn't count this loss",
			"operator", f.Operator, "fault", f.Fault, "error", err)
	}
}

// update changes the consumer's metadata. floor is the stream sequence of the consumer's acknowledgement floor.
func (a *Attempts) update(ctx context.Context, change func(marks map[string]string, floor uint64)) error {
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	info, err := a.Consumer.Info(ctx)
	if err != nil {
		return err
	}
	marks := maps.Clone(info.Config.Metadata)
	if marks == nil {
		marks = map[string]string{}
	}
	change(marks, info.AckFloor.Stream)
	if maps.Equal(marks, info.Config.Metadata) {
		return nil
	}
	return a.Consumer.Annotate(ctx, info.Config, marks)
}

// noNotesFor is the time without notes after an error, because each failed request may take natsconn.RequestTimeout.
const noNotesFor = time.Minute

var errNoNotes = errors.New("the server refused or did not answer a note a moment ago")

// eraseTries is the number of attempts to erase a note. A note that stays is later counted as a death.
const eraseTries = 3

// erase removes the note of a payload after the process has survived the try. It works even after the end of the drain.
func (a *Attempts) erase(d *inflight.Delivery) {
	nothing := func(attemptNote) attemptNote { return attemptNote{} }
	err := a.note(context.Background(), d, nothing)
	for n := 1; n < eraseTries && err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound); n++ {
		err = a.note(context.Background(), d, nothing)
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		a.Log.Warn("could not remove a note about a payload from the consumer's metadata: if the payload is delivered again, one more death counts against it",
			"sequence", d.Sequence, "error", err)
	}
}

// isIdle reports whether the consumer has no payload except the one that is being tried. In that case, no other payload can show
// whether the device works.
func (a *Attempts) isIdle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	info, err := a.Consumer.Info(ctx)
	return err == nil && info.NumPending == 0 && info.NumAckPending <= 1
}

// outstanding returns the number of unsettled deliveries, and the number of redeliveries among them.
func (a *Attempts) outstanding(ctx context.Context) (all, redelivered int, err error) {
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	info, err := a.Consumer.Info(ctx)
	if err != nil {
		return 0, 0, err
	}
	return info.NumAckPending, info.NumRedelivered, nil
}

// Narrowing is the state of a search in a frame for records that break the device. It is stored with the frame's sequence before
// and after each run, so that the next process continues the search. If a process dies, the stored Narrowing names the records
// that were running alone. The device had just passed a probe.
//
// The zero Narrowing is the start of a search.
type Narrowing struct {
	First, Records int   // the run of records; Records is 0 if there is no run
	Deaths         int   // number of processes that died while exactly these records ran
	Condemned      []int // indices of the records that are given up
}

// Run is a run of a frame's records, from First to First+Records-1.
type Run struct{ First, Records int }

// maxCondemned is the maximum number of records of a frame that are given up one by one. With more, the whole frame is given up.
const maxCondemned = 64

// Next returns the runs in which a frame with the given number of records is tried, in order. It halves the run in which the last
// process died. If that run is a single record that was tried LoneRuns times, Next condemns the record. ok is false if too many
// records are condemned.
func (n *Narrowing) Next(records int) (runs []Run, ok bool) {
	n.Condemned = slices.DeleteFunc(n.Condemned, func(i int) bool { return i >= records }) // the framing may have changed
	cuts := []int{0}
	if from, to := n.First, n.First+n.Records; n.Records > 0 && from >= 0 && to <= records {
		switch {
		case n.Records > 1:
			cuts = append(cuts, from, from+n.Records/2, to)
		case n.Deaths < LoneRuns:
			cuts = append(cuts, from, to)
		default:
			n.Condemned = append(n.Condemned, from)
			n.First, n.Records, n.Deaths = 0, 0, 0
		}
	}
	cuts = slices.Compact(append(cuts, records))
	for i := range len(cuts) - 1 {
		runs = append(runs, Run{cuts[i], cuts[i+1] - cuts[i]})
	}
	return runs, len(n.Condemned) <= maxCondemned
}

// Begin returns the Narrowing to store while a run is on the device. n is the Narrowing from the last process.
func (n Narrowing) Begin(r Run) Narrowing {
	deaths := 1
	if n.First == r.First && n.Records == r.Records {
		deaths = n.Deaths + 1
	}
	return Narrowing{r.First, r.Records, deaths, n.Condemned}
}

// String returns the text form for ParseNarrowing.
func (n Narrowing) String() string {
	text := fmt.Sprintf("%d %d %d", n.First, n.Records, n.Deaths)
	for _, i := range n.Condemned {
		text += " " + strconv.Itoa(i)
	}
	return text
}

// ParseNarrowing parses the result of String. It returns the zero Narrowing for any other text.
func ParseNarrowing(text string) Narrowing {
	var numbers []int
	for field := range strings.FieldsSeq(text) {
		i, err := strconv.Atoi(field)
		if err != nil || i < 0 {
			return Narrowing{}
		}
		numbers = append(numbers, i)
	}
	if len(numbers) < 3 || len(numbers) > 3+maxCondemned+1 {
		return Narrowing{}
	}
	return Narrowing{numbers[0], numbers[1], numbers[2], numbers[3:]}
}
