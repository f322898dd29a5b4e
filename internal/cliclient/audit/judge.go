package audit

import (
	"context"
	"fmt"
	"time"
)

// judge counts all inputs. It decides whether an input without an outcome is pending, missing, unread or unknown.
type judge struct {
	inputs   *inputs
	outcomes *outcomes
	report   *Report

	covers, complete bool
	settled          uint64 // result of inputs.settled
	decided          uint64 // result of inputs.decided
	began            uint64 // first sequence that the deployment has certainly read
	kept             uint64 // no outcome of this or a later sequence was removed

	gone    []uint64 // inputs without an outcome that were removed after the state of the stream was read
	waiting []run    // delivered inputs that the consumer of shared delivery may still wait for
	waits   uint64   // number of such inputs, including those beyond the limit of waiting
}

// run is a range of consecutive sequences.
type run struct{ first, last uint64 }

// These are the reasons for unknown inputs.
const (
	reasonBegan   = "they were removed from the input stream before the deployment's first outcome, and it may have begun later"
	reasonSubject = "they were removed from the input stream, which also stores subjects that this deployment doesn't read"
	reasonRemoved = "results or dead letters of that time were removed from their stream"
)

const (
	lost      = "no result and no dead letter, and it isn't in the input stream"
	neglected = "no result and no dead letter, although the consumer has it acknowledged"
)

// run judges all inputs of the span.
func (j *judge) run(ctx context.Context) error {
	if err := j.prepare(ctx); err != nil {
		return err
	}
	r := j.report
	r.First, r.Last = j.outcomes.span.bounds()
	if err := j.outcomes.table.runs(r.First, r.Last, func(k kind, first, last uint64) error {
		if k == none {
			return j.unsettled(ctx, first, last)
		}
		j.count(k, last-first+1)
		return nil
	}); err != nil {
		return err
	}
	if len(j.gone) > 0 {
		if err := j.outcomes.advance(ctx); err != nil {
			return err
		}
	}
	for _, sequence := range j.gone {
		if k := j.outcomes.table.of(sequence); k != none {
			j.count(k, 1)
		} else {
			j.removed(sequence, sequence)
		}
	}
	j.compareWaiting()
	j.notes()
	return nil
}

// prepare sets the fields from covers to kept.
func (j *judge) prepare(ctx context.Context) error {
	in, out := j.inputs, j.outcomes
	j.covers, j.complete, j.settled, j.decided = in.covers(), in.info.State.NumDeleted == 0, in.settled(), in.decided()
	if in.beganLate() {
		if j.began = out.first; j.began == 0 {
			j.began = in.info.State.LastSeq + 1
		}
	}
	if out.kept == 0 {
		return nil
	}
	_, after, err := in.around(ctx, time.Unix(0, out.kept))
	if j.kept = firstOf(out.keptFrom, after); j.kept == 0 {
		j.kept = in.info.State.LastSeq + 1
	}
	return err
}

func (j *judge) count(k kind, n uint64) {
	switch k {
	case result:
		j.report.Results += n
	case letter:
		j.report.DeadLetters += n
	default:
		j.report.Doubled += n
	}
}

// unsettled judges a run of inputs without an outcome.
func (j *judge) unsettled(ctx context.Context, first, last uint64) error {
	if there := j.inputs.info.State.FirstSeq; first < there {
		end := min(last, there-1)
		j.removed(first, end)
		first = end + 1
	}
	for first <= last {
		end, judged := j.atOnce(first, last)
		if !judged {
			end = min(end, first+block-1)
			if err := j.judgeSingly(ctx, first, end); err != nil {
				return err
			}
		}
		first = end + 1
	}
	return nil
}

// atOnce judges the inputs from first to end, which is at most last, by their sequences alone. If judged is false, the
// messages up to end must be read.
func (j *judge) atOnce(first, last uint64) (end uint64, judged bool) {
	switch {
	case !j.covers || !j.complete:
		return last, false
	case first > j.decided:
		j.report.Pending += last - first + 1
		return last, true
	case first > j.settled && !j.inputs.topology.Exclusive:
		end = min(last, j.decided)
		j.wait(first, end)
		return end, true
	case first > j.settled:
		return min(last, j.decided), false
	case first < j.kept:
		end = min(last, j.settled, j.kept-1)
		j.report.addUnknown(first, end, reasonRemoved)
		return end, true
	}
	return min(last, j.settled), false
}

// judgeSingly reads the messages of inputs and judges each input.
func (j *judge) judgeSingly(ctx context.Context, first, last uint64) error {
	subjects, err := j.inputs.subjects(ctx, first, last)
	if err != nil {
		return err
	}
	for i, subject := range subjects {
		sequence := first + uint64(i)
		if subject == "" {
			j.gone = append(j.gone, sequence)
			continue
		}
		j.markPresent(sequence, subject)
	}
	return nil
}

// markPresent judges an input that is in the stream.
func (j *judge) markPresent(sequence uint64, subject string) {
	p := j.inputs.consumer(subject)
	if p < 0 {
		j.report.Unread++
		return
	}
	exclusive, c := j.inputs.topology.Exclusive, j.inputs.consumers[p]
	switch {
	case c == nil, sequence > c.AckFloor.Stream && (exclusive || sequence > c.Delivered.Stream):
		j.report.Pending++
	case sequence > c.AckFloor.Stream:
		j.wait(sequence, sequence)
	case sequence < j.began:
		j.report.addUnknown(sequence, sequence, reasonBegan)
	case sequence < j.kept:
		j.report.addUnknown(sequence, sequence, reasonRemoved)
	default:
		j.markMissing(sequence, sequence, neglected)
	}
}

// removed judges inputs that are no longer in the stream.
func (j *judge) removed(first, last uint64) {
	for first <= last {
		end := last
		switch {
		case first < j.began:
			end = min(last, j.began-1)
			j.report.addUnknown(first, end, reasonBegan)
		case !j.covers:
			j.report.addUnknown(first, end, reasonSubject)
		case first < j.kept:
			end = min(last, j.kept-1)
			j.report.addUnknown(first, end, reasonRemoved)
		default:
			j.markMissing(first, end, lost)
		}
		first = end + 1
	}
}

// markMissing reports inputs without an outcome. what describes the finding. markMissing adds a description of the
// stored parts of their results.
func (j *judge) markMissing(first, last uint64, what string) {
	for sequence := first; sequence <= last; sequence++ {
		if len(j.outcomes.frames.open) == 0 {
			j.report.add(last-sequence+1, Finding{Missing, sequence, last, what})
			return
		}
		more := j.outcomes.frames.unfinished(sequence)
		if more != "" {
			more = "; " + more
		}
		j.report.add(1, Finding{Missing, sequence, sequence, what + more})
	}
}

// wait records inputs that the consumer of shared delivery has delivered and that have no outcome.
func (j *judge) wait(first, last uint64) {
	j.waits += last - first + 1
	if n := len(j.waiting); n > 0 && j.waiting[n-1].last+1 == first {
		j.waiting[n-1].last = last
	} else if n < max(j.report.limit, 1) {
		j.waiting = append(j.waiting, run{first, last})
	}
}

// compareWaiting compares the number of delivered inputs without an outcome with the consumer's number of
// unacknowledged inputs. The server reports only that number, not the inputs.
func (j *judge) compareWaiting() {
	if j.waits == 0 {
		return
	}
	pending := uint64(max(j.inputs.consumers[0].NumAckPending, 0))
	switch {
	case j.waits <= pending:
		j.report.Pending += j.waits
	case pending == 0:
		for _, w := range j.waiting {
			j.markMissing(w.first, w.last, neglected)
			j.waits -= w.last - w.first + 1
		}
		j.report.Counts[Missing] += j.waits // the inputs that wait and have no finding of their own, because there are too many
	default:
		j.report.Pending += pending
		j.report.add(j.waits-pending, Finding{Missing, j.waiting[0].first, j.waiting[len(j.waiting)-1].last, fmt.Sprintf(
			"%d inputs from here on have no result and no dead letter, and the consumer waits for only %d of them", j.waits, pending)})
	}
}

// notes adds a note about each part of the audit that was skipped.
func (j *judge) notes() {
	for i, c := range j.inputs.consumers {
		if c == nil {
			j.report.note("the consumer %s doesn't exist: what it would read counts as pending", j.inputs.topology.Consumers()[i])
		}
	}
	if j.outcomes.frames.full {
		j.report.note("not every result in several parts is checked, because too many are unfinished at a time")
	}
	if n := j.outcomes.reused; n > 0 {
		j.report.note("%d outcomes are of inputs whose sequence was used again, because the stream was restored: they are not checked", n)
	}
}
