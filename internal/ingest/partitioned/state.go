package partitioned

import (
	"log/slog"

	"millrace/internal/ingest/inflight"
)

// leaseSettings tell a lease who it is and what the partition has.
type leaseSettings struct {
	id         string // this worker's name in annotations
	stream     string
	subjects   []string // the consumer's filters, without the partition
	maxBytes   int      // the largest payload that a batch takes
	mostRead   int      // how many lost inputs are read at once; see fillMost
	maxBatches int      // how many batches there can be in flight
}

// leaseState is what the parts of a lease and its batches share.
type leaseState struct {
	leaseSettings
	server leaseServer
	host   leaseHost
	log    *slog.Logger

	begun  bool                 // the server has chosen this worker, and the consumer is annotated; only the reader uses it, and end
	out    *inflight.Queue      // from the reader to the submitter
	order  chan *inflight.Batch // from the submitter to the settler: submitted batches, in order
	failed chan error           // why the lease must end; room for one

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

// fail ends the lease; the first reason counts.
func (l *leaseState) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}
