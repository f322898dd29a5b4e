package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// stateSpec identifies the states of an operator; see store.State. records is the size of a generation.
func stateSpec(op operator.Stateful, records, partitions int) string {
	return fmt.Sprintf("%v of %d records in each of %d partitions", op, records, partitions)
}

// compareSpec returns a *statelog.LostError if the last state of a deployment isn't that of spec, or the error of a request.
func compareSpec(ctx context.Context, js jetstream.JetStream, t topology.Topology, spec string) error {
	last, err := results.LastState(ctx, js, t)
	if err == nil && last != nil && last.Spec != spec {
		return statelog.OtherSpec(last.Spec, spec)
	}
	return err
}

// InspectSpec compares the settings of a deployment's states with those of its last state, as a worker does when it starts. It returns no
// findings without an operator, or without the input stream.
func InspectSpec(ctx context.Context, js jetstream.JetStream, t topology.Topology, s *StateOptions) []finding.Finding {
	if s == nil {
		return nil
	}
	f := finding.Finding{What: "states of operator " + s.Operator.Name()}
	spec := stateSpec(s.Operator, s.Records, t.Partitions)
	err := compareSpec(ctx, js, t, spec)
	lost := (*statelog.LostError)(nil)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil // the inspection of the streams says so
	case err == nil:
		f.Found = "no commit marker has a state of other settings than " + spec
	case errors.As(err, &lost) && s.Begin:
		f.Level, f.Found, f.Advice = finding.Warning, fmt.Sprintf("%s: %v", stateLost, lost.Cause), "set MILLRACE_STATE_LOST=stop when the worker has started"
	case errors.As(err, &lost):
		f.Level, f.Found, f.Advice = finding.Error, lost.Cause.Error(), statelog.LostAdvice
	default:
		f.Level, f.Found, f.Advice = finding.Warning, fmt.Sprintf("the settings can't be compared with those of the partitions' states: %v", err),
			"check again, or see docs/security.md for the permissions"
	}
	return []finding.Finding{f}
}

// stateLost is the warning with Begin.
const stateLost = "the state of a partition is lost, and an empty one begins: records that came before are no longer known"
