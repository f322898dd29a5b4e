package quarantine

import (
	"fmt"
	"log/slog"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// Judge decides what becomes of payloads on which the operators fail alone. It keeps the evidence for each device. Both delivery modes use
// it.
type Judge struct {
	evidence map[*streams.Pipeline]*evidence
	limit    int    // deliveries of a payload before its count decides
	progress func() // called when payloads came right
	log      *slog.Logger
}

// NewJudge makes a judge without evidence. progress is called when payloads come right.
func NewJudge(pipes []*streams.Pipeline, limit int, progress func(), log *slog.Logger) *Judge {
	j := &Judge{evidence: map[*streams.Pipeline]*evidence{}, limit: limit, progress: progress, log: log}
	for _, p := range pipes {
		j.evidence[p] = &evidence{}
	}
	return j
}

// CameRight notes that a device has computed a batch.
func (j *Judge) CameRight(pipe *streams.Pipeline, b *inflight.Batch) {
	j.progress()
	j.evidence[pipe].cameRight()
	for _, e := range j.evidence {
		e.settled(b.Items)
	}
}

// Batches is how many batches of payloads came right on a device so far.
func (j *Judge) Batches(pipe *streams.Pipeline) uint64 { return j.evidence[pipe].batches() }

// HeldBack is how many payloads failed alone while no other came right since. They are delivered again later.
func (j *Judge) HeldBack() (n int) {
	for _, e := range j.evidence {
		n += e.held()
	}
	return n
}

// Holds reports whether a payload is one of them.
func (j *Judge) Holds(d *inflight.Delivery) bool {
	for _, e := range j.evidence {
		if e.holds(d) {
			return true
		}
	}
	return false
}

// Decide decides what becomes of payloads of b that fail alone; see evidence.rule. After DeviceNotWell the pipeline has ended.
func (j *Judge) Decide(pipe *streams.Pipeline, b *inflight.Batch, guilty []Failing, c Comparison) (Ruling, error) {
	failed := make([]*inflight.Delivery, len(guilty))
	for n, a := range guilty {
		failed[n] = &b.Items[a.Item]
	}
	r := j.evidence[pipe].rule(failed, j.limit, c)
	d, cause := failed[0], guilty[0].Err
	switch r {
	case DeviceNotWell:
		n := max(len(failed), 1+c.Others, j.evidence[pipe].inRow())
		j.log.Error("payload after payload fails alone and none comes right: the worker stops, and gives back all of them without blame "+
			"(see the runbook MillraceHeldBack)", "device", pipe.Device().ID, "payloads", n, "first_sequence", d.Sequence, "error", cause)
		return r, pipe.Lose("blame", fmt.Errorf("the operators fail on each of %d payloads alone, and no other payload came right in between: %w", n, cause))
	case holdBack:
		j.log.Warn("an operator fails on a payload alone, and no other payload has come right since: it is held back and tried again later",
			"stream", d.Stream, "sequence", d.Sequence, "deliveries", d.NumDelivered, "error", cause)
	}
	return r, nil
}
