package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// clusterReplicas is the number of replicas in a cluster, unless the user chose another.
	clusterReplicas = 3

	// leastBytes is the smallest bound that a stream gets if the server has no room for the default.
	leastBytes = 64 << 20
)

// Error codes of the server that the client library doesn't name.
const (
	errNoPeers   jetstream.ErrorCode = 10005 // the cluster has fewer servers than replicas
	errNoStorage jetstream.ErrorCode = 10047 // max_bytes of all streams exceed the server's storage
	errNoCluster jetstream.ErrorCode = 10074 // several replicas outside a cluster
)

// creator creates streams.
type creator struct {
	js   jetstream.JetStream
	log  *slog.Logger
	made []jetstream.StreamConfig // streams of this creator whose max_bytes is a default
}

// create creates a stream unless it exists. b has the bounds in c.
func (cr *creator) create(ctx context.Context, b Bounds, c jetstream.StreamConfig) error {
	there, err := streamExists(ctx, cr.js, c.Name)
	if err != nil || there {
		return err
	}
	s, err := cr.fit(ctx, b, c)
	if refused := (*jetstream.APIError)(nil); errors.As(err, &refused) && noRoom(refused) {
		return fmt.Errorf("create stream %q with max_bytes %s: %w: the server reserves that much; choose less (MILLRACE_STREAM_MAX_BYTES, "+
			"MILLRACE_RESULT_MAX_BYTES, MILLRACE_DEADLETTER_MAX_BYTES), or give JetStream more storage", c.Name, sizeFlag(c.MaxBytes), err)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil // another worker was faster, with other settings: Inspect compares them
	}
	if err != nil {
		return fmt.Errorf("create stream %q on %v: %w: if another stream has these subjects, name that stream or choose other subjects "+
			"(MILLRACE_STREAM, MILLRACE_SUBJECTS, MILLRACE_RESULT_STREAM, MILLRACE_RESULT_PREFIX, MILLRACE_DEADLETTER_PREFIX)", c.Name, c.Subjects, err)
	}
	got := s.CachedInfo().Config
	if !b.AskedBytes {
		cr.made = append(cr.made, got)
	}
	cr.log.Info("created stream", "stream", c.Name, "subjects", c.Subjects, "keeps", keeps(got), "replicas", got.Replicas)
	return nil
}

func streamExists(ctx context.Context, js jetstream.JetStream, name string) (bool, error) {
	_, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up stream %q: %w", name, err)
	}
	return true, nil
}

// fit creates a stream. If the user left the number of replicas or max_bytes open, it tries what the server can provide.
func (cr *creator) fit(ctx context.Context, b Bounds, c jetstream.StreamConfig) (jetstream.Stream, error) {
	open := c.Replicas == 0
	if open && cr.js.Conn().ConnectedClusterName() != "" {
		c.Replicas = clusterReplicas
	}
	for {
		s, err := cr.js.CreateStream(ctx, c)
		refused := (*jetstream.APIError)(nil)
		if err == nil || !errors.As(err, &refused) {
			return s, err
		}
		switch {
		case noRoom(refused) && !b.AskedBytes && c.MaxBytes/2 >= leastBytes:
			c.MaxBytes /= 2
			cr.log.Warn("the server has no room for streams of the default size", "stream", c.Name, "max_bytes", sizeFlag(c.MaxBytes))
			if err := cr.halve(ctx); err != nil {
				return nil, err
			}
		case open && c.Replicas > 1 && (refused.ErrorCode == errNoPeers || refused.ErrorCode == errNoCluster):
			c.Replicas = 1
		default:
			return nil, err
		}
	}
}

// halve makes room: it halves max_bytes of the streams that it has created, which are empty or nearly so.
func (cr *creator) halve(ctx context.Context) error {
	for i := range cr.made {
		cr.made[i].MaxBytes = (cr.made[i].MaxBytes/2 + kib - 1) / kib * kib
		if _, err := cr.js.UpdateStream(ctx, cr.made[i]); err != nil {
			return fmt.Errorf("make stream %q smaller, because the server has no room for all streams: %w", cr.made[i].Name, err)
		}
	}
	return nil
}

// noRoom reports whether the server, or a cluster, can't reserve max_bytes.
func noRoom(refused *jetstream.APIError) bool {
	return refused.ErrorCode == errNoStorage || refused.ErrorCode == errNoPeers && strings.Contains(refused.Description, "insufficient storage")
}

// retentionMark is the key in the metadata of an input stream whose retention is still to be set, because its consumers don't all exist.
const retentionMark = "millrace-retention"

// interestPending is the value of retentionMark.
const interestPending = "interest"

// createInput creates the input stream. A stream with interest retention drops what it receives before its consumers exist. So it begins
// with retention by limits, and finishInput changes that.
func createInput(ctx context.Context, cr *creator, l Topology) error {
	c := inputSettings(l)
	if c.Retention == jetstream.InterestPolicy {
		c.Retention, c.Metadata = jetstream.LimitsPolicy, map[string]string{retentionMark: interestPending}
	}
	return cr.create(ctx, l.Kept.Inputs, c)
}

// finishInput sets the retention of an input stream that this worker or another one has created. All consumers exist.
func finishInput(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	s, err := js.Stream(ctx, l.Stream)
	if err != nil {
		return fmt.Errorf("look up stream %q: %w", l.Stream, err)
	}
	c := s.CachedInfo().Config
	if c.Metadata[retentionMark] != interestPending {
		return nil
	}
	c.Retention = jetstream.InterestPolicy
	delete(c.Metadata, retentionMark)
	if _, err := js.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("set interest retention on stream %q: %w: allow the worker's user to update the stream ($JS.API.STREAM.UPDATE.%s)", l.Stream, err, l.Stream)
	}
	log.Info("set retention", "stream", l.Stream, "retention", interestPending)
	return nil
}
