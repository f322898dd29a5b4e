package partitioned

import (
	"log/slog"

	"millrace/internal/ingest/inflight"
)

// leaseSettings identifies a lease's worker and partition, and sets the lease's limits.
type leaseSettings struct {
	id         string // this worker's ID in annotations
	stream     string
	subjects   []string // the consumer's filters, without the partition
	maxBytes   int      // maximum payload size of a batch, in bytes
	maxBatches int      // maximum number of batches in flight
}

// leaseState is the state that the parts of a lease and its batches share.
type leaseState struct {
	leaseSettings
	server leaseServer
	host   leaseHost
	log    *slog.Logger

	begun  bool                 // whether the server has pinned this worker and the consumer is annotated; used only by the reader and end
	out    *inflight.Queue      // from the reader to the submitter
	order  chan *inflight.Batch // from the submitter to the settler: submitted batches, in order
	failed chan error           // why the lease must end; holds one error

	commits leaseCommits // what the lease stores exactly once; nil if the result stream takes no commit markers, and before begin
	stored  *storedInputs
	acks    *acknowledgements
	notes   *annotations
	caution *precaution
}

func newLeaseState(s leaseSettings, server leaseServer, host leaseHost, log *slog.Logger) *leaseState {
	l := &leaseState{
		leaseSettings: s, server: server, host: host, log: log,
		out: inflight.NewQueue(inflight.QueueMost), order: make(chan *inflight.Batch, s.maxBatches), failed: make(chan error, 1),
		stored: &storedInputs{server: server, stream: s.stream, subjects: s.subjects}, acks: newAcknowledgements(host, log),
	}
	l.notes = newAnnotations(s.id, server, l.acks)
	l.caution = &precaution{id: s.id, acks: l.acks, notes: l.notes, log: log}
	return l
}

// fail ends the lease. Only the first error counts.
func (l *leaseState) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}
