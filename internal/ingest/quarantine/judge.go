package quarantine

import (
	"fmt"
	"log/slog"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// Judge decides about payloads that fail alone, and keeps the evidence for each device. Both delivery modes use it.
type Judge struct {
	evidence map[*streams.Pipeline]*evidence
	limit    int    // number of deliveries or failures after which a payload is given up; see evidence.rule
	progress func() // called when a batch succeeds
	log      *slog.Logger
}

// NewJudge returns a Judge without evidence.
func NewJudge(pipes []*streams.Pipeline, limit int, progress func(), log *slog.Logger) *Judge {
	j := &Judge{evidence: map[*streams.Pipeline]*evidence{}, limit: limit, progress: progress, log: log}
	for _, p := range pipes {
		j.evidence[p] = &evidence{}
	}
	return j
}

// CameRight records that a device has computed a batch.
func (j *Judge) CameRight(pipe *streams.Pipeline, b *inflight.Batch) {
	j.progress()
	j.evidence[pipe].cameRight()
	for _, e := range j.evidence {
		e.settled(b.Items)
	}
}

// Batches returns the number of batches that have succeeded on a device.
func (j *Judge) Batches(pipe *streams.Pipeline) uint64 { return j.evidence[pipe].batches() }

// HeldBack returns the number of payloads that are held back. They failed alone, and the server redelivers them later.
func (j *Judge) HeldBack() (n int) {
	for _, e := range j.evidence {
		n += e.held()
	}
	return n
}

// Holds reports whether a payload is held back.
func (j *Judge) Holds(d *inflight.Delivery) bool {
	for _, e := range j.evidence {
		if e.holds(d) {
			return true
		}
	}
	return false
}

// Decide decides about payloads of b that fail alone; see evidence.rule. If it returns DeviceNotWell, it has ended the pipeline.
func (j *Judge) Decide(pipe *streams.Pipeline, b *inflight.Batch, guilty []Failing, c Comparison) (Ruling, error) {
	failed := Sources(b, guilty)
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

// Sources returns the deliveries of failing rows of a batch, each once. Several failing records of one frame are as much evidence
// against a device as one failing payload.
func Sources(b *inflight.Batch, failing []Failing) (sources []*inflight.Delivery) {
	for _, a := range failing {
		d := b.Source(a.Row)
		if last := len(sources) - 1; last < 0 || sources[last] != d { // the rows of a frame are next to each other
			sources = append(sources, d)
		}
	}
	return sources
}
