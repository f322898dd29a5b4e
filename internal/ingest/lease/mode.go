// Package lease takes inputs from the server, has their results computed and stored, and acknowledges the inputs. A lease is the
// right to process inputs: all inputs of the consumer with shared delivery, or one partition with exclusive delivery.
//
// With shared delivery (shared.go), any number of workers pull from one consumer, and each input is acknowledged individually. The
// ledger records the inputs that are in flight or were recently finished.
//
// With exclusive delivery (exclusive.go), the input stream prefixes each subject with a partition number, and each partition has
// its own consumer. The server delivers each consumer's messages to one worker at a time. The workers agree on an owner for each
// partition (package members). Results are stored in the order of their inputs, and one acknowledgement covers all earlier inputs
// of the partition. The model test runs real leases against a model of the server and checks the invariants.
//
// Start reading at New and Mode. Package ingest runs a Mode in each worker. In both modes, an input passes through inputs.go and pack.go.
// What differs is in policies: source.go, shared.go and each.go for shared delivery, and partition.go, caution.go and upto.go for exclusive
// delivery (adr/0058).
package lease

import (
	"context"

	"millrace/internal/ingest/lease/members"
)

// Mode is one of the two delivery modes.
type Mode interface {
	// Run processes messages until intake ends, and then finishes the remaining ones until drainCtx ends. On a failure, it passes the
	// cause to stop, which must end intake. Run may be called only once.
	Run(intake, drainCtx context.Context, stop context.CancelCauseFunc)

	// Abandon gives back the inputs that are still in flight after Run, because the drain timed out. No batch may be computed any more.
	Abandon()

	// Owned returns the number of partitions that this worker owns. It is 0 with shared delivery.
	Owned() int

	// Shares returns the partitions of each worker, this worker first. It returns nil with shared delivery.
	Shares() []members.Share

	// States returns the figures of the worker's states. They are zero without a stateful operator.
	States() StateFigures
}

// New returns the delivery mode that the topology selects. With exclusive delivery, it joins the workers that share the partitions.
func New(o Options) (Mode, error) {
	if o.Topology.Exclusive {
		return newExclusive(o)
	}
	return newShared(o), nil
}
