package partitioned

import (
	"log/slog"

	"millrace/internal/ingest/inflight"
)

// leaseOptions contains the identity and the limits of a lease.
type leaseOptions struct {
	id         string // this worker's ID in annotations
	stream     string
	subjects   []string // the consumer's filters, without the partition
	maxBytes   int      // maximum payload size of a batch, in bytes
	maxBatches int      // maximum number of batches in flight
}

// leaseState is the state that the reader, the submitter, the settler and the batches of a lease share.
type leaseState struct {
	leaseOptions
	server leaseServer
	host   leaseHost
	log    *slog.Logger

	// begun reports whether the server has pinned this worker and the consumer is annotated. Only the reader and end
	// use it.
	begun  bool
	out    *inflight.Queue      // deliveries from the reader to the submitter
	order  chan *inflight.Batch // submitted batches from the submitter to the settler, in order
	failed chan error           // receives the error that ends the lease; has space for one

	// commits is nil before begin, and if the result stream accepts no commit markers.
	commits leaseCommits
	stored  *storedInputs
	acks    *acknowledgements
	notes   *annotations
	caution *precaution
}

func newLeaseState(o leaseOptions, server leaseServer, host leaseHost, log *slog.Logger) *leaseState {
	l := &leaseState{
		leaseOptions: o, server: server, host: host, log: log,
		out: inflight.NewQueue(inflight.QueueMax), order: make(chan *inflight.Batch, o.maxBatches), failed: make(chan error, 1),
		stored: &storedInputs{server: server, stream: o.stream, subjects: o.subjects}, acks: newAcknowledgements(host, log),
	}
	l.notes = newAnnotations(o.id, server, l.acks)
	l.caution = &precaution{id: o.id, acks: l.acks, notes: l.notes, log: log}
	return l
}

// fail ends the lease with err. It ignores all errors after the first.
func (l *leaseState) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}
