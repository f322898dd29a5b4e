package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/topology"
)

// guarantee describes how a worker avoids storing a result twice.
type guarantee uint8

const (
	byID               guarantee = iota // by the result's id, within the duplicate window
	byMarker                            // exactly once: each batch ends with a commit marker. Results have ids too
	byMarkerWithoutIDs                  // as byMarker, but the server remembers no ids
)

// configure sets the options of a Millrace worker with this guarantee.
func (g guarantee) configure(t *topology.Topology) {
	t.ExactlyOnce, t.ResultIDs = topology.Required, g != byMarkerWithoutIDs
	if g == byID {
		t.ExactlyOnce = topology.Off
	}
}

// idHeader returns the header with the ids of results, and the one that results must not have.
func (g guarantee) idHeader() (named, other string) {
	if g == byMarkerWithoutIDs {
		return commit.HeaderID, jetstream.MsgIDHeader
	}
	return jetstream.MsgIDHeader, commit.HeaderID
}

// takesMarkers returns an error if the result stream takes no commit markers and the worker needs some.
func (s *server) takesMarkers(ctx context.Context, t topology.Topology) error {
	if t.ExactlyOnce == topology.Off {
		return nil
	}
	stream, err := s.js.Stream(ctx, s.out)
	if err != nil {
		return err
	}
	if way, found, _ := t.CommitsOf(stream.CachedInfo().Config, s.nc.ConnectedServerVersion()); way == topology.NoCommits {
		return bench.Unable("the server can't store commit markers (%s): use version 2.14 or later", found)
	}
	return nil
}

// markers holds the last commit marker of each subject.
type markers map[string][]byte

// isMarker reports whether a subject is that of commit markers.
func isMarker(subject string) bool { return strings.HasPrefix(subject, commitPrefix+".") }

// checkMarkers compares the commit markers in the result stream with the guarantee. Without exactly once there must be none. Otherwise
// the last marker of each partition must be at the partition's last input, and must be stored in the expected kind of batch.
func (s *server) checkMarkers(ctx context.Context, g guarantee, last markers) error {
	if g == byID {
		if len(last) > 0 {
			return fmt.Errorf("WRONG RESULT: the result stream holds commit markers of %d partitions, want none", len(last))
		}
		return nil
	}
	inputs, err := s.js.Stream(ctx, s.in)
	if err != nil {
		return err
	}
	fast := s.replicas == 1
	for p := range partitions {
		input, err := inputs.GetLastMsgForSubject(ctx, strconv.Itoa(p)+".>")
		if err != nil {
			return fmt.Errorf("read the last input of partition %d: %w", p, err)
		}
		body, found := last[topology.CommitSubject(commitPrefix, s.out, s.in, consumer, p)]
		if !found {
			return fmt.Errorf("WRONG RESULT: partition %d has no commit marker", p)
		}
		var marker commit.Marker
		if err := json.Unmarshal(body, &marker); err != nil {
			return fmt.Errorf("WRONG RESULT: the commit marker of partition %d is %q: %w", p, body, err)
		}
		switch {
		case marker.Sequence != input.Sequence:
			return fmt.Errorf("WRONG RESULT: the last commit marker of partition %d is at input %d, want %d", p, marker.Sequence, input.Sequence)
		case marker.Fast != fast:
			return fmt.Errorf("WRONG RESULT: partition %d is stored in fast batches: %v, want %v", p, marker.Fast, fast)
		}
	}
	return nil
}
