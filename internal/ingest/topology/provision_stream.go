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
	// clusterReplicas is the default number of replicas in a cluster.
	clusterReplicas = 3

	// minBytes is the smallest max_bytes that a stream gets if the server has no space for the default.
	minBytes = 64 << 20
)

// Error codes of the server that the client library doesn't name.
const (
	errNoPeers   jetstream.ErrorCode = 10005 // the cluster has fewer servers than replicas
	errNoMemory  jetstream.ErrorCode = 10028 // max_bytes of all streams exceed the server's memory for streams
	errNoStorage jetstream.ErrorCode = 10047 // max_bytes of all streams exceed the server's storage
	errNoCluster jetstream.ErrorCode = 10074 // several replicas outside a cluster
)

// creator creates streams, and records their names for halve.
type creator struct {
	js   jetstream.JetStream
	log  *slog.Logger
	made []string // streams of this creator whose max_bytes is a default
}

// create creates a stream unless it exists. b has the bounds that c contains.
func (cr *creator) create(ctx context.Context, b Bounds, c jetstream.StreamConfig) error {
	there, err := streamExists(ctx, cr.js, c.Name)
	if err != nil || there {
		return err
	}
	s, err := cr.createShrinking(ctx, b, c)
	if refused := (*jetstream.APIError)(nil); errors.As(err, &refused) && noRoom(refused) {
		return fmt.Errorf("create stream %q with max_bytes %s: %w: the server reserves that much; choose less (MILLRACE_STREAM_MAX_BYTES, "+
			"MILLRACE_RESULT_MAX_BYTES, MILLRACE_DEADLETTER_MAX_BYTES), or give JetStream more storage", c.Name, sizeFlag(c.MaxBytes), err)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil // another worker has just created it with other settings, which Inspect reports
	}
	if err != nil {
		return fmt.Errorf("create stream %q on %v: %w: if another stream has these subjects, name that stream or choose other subjects "+
			"(MILLRACE_STREAM, MILLRACE_SUBJECTS, MILLRACE_RESULT_STREAM, MILLRACE_RESULT_PREFIX, MILLRACE_DEADLETTER_PREFIX, MILLRACE_COMMIT_PREFIX)", c.Name, c.Subjects, err)
	}
	got := s.CachedInfo().Config
	if !b.AskedBytes {
		cr.made = append(cr.made, got.Name)
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

// createShrinking creates a stream. It reduces max_bytes and the number of replicas to values that the server can provide, unless
// the user chose the value.
func (cr *creator) createShrinking(ctx context.Context, b Bounds, c jetstream.StreamConfig) (jetstream.Stream, error) {
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
		case noRoom(refused) && !b.AskedBytes && c.MaxBytes/2 >= minBytes:
			c.MaxBytes /= 2
			cr.log.Warn("the server has no room for streams of the default size", "stream", c.Name, "max_bytes", sizeFlag(c.MaxBytes))
			if err := cr.halve(ctx, c.MaxBytes); err != nil {
				return nil, err
			}
		case open && c.Replicas > 1 && noPlaces(refused):
			cr.log.Warn("the servers can't place three replicas, so the stream is on one server alone", "stream", c.Name, "reason", refused.Description)
			c.Replicas = 1
		default:
			return nil, err
		}
	}
}

// halve makes space for a stream of the given bytes. It halves max_bytes of each stream of cr.made that is at least twice as
// large. These streams are still nearly empty.
func (cr *creator) halve(ctx context.Context, bytes int64) error {
	for _, name := range cr.made {
		s, err := cr.js.Stream(ctx, name) // a new query, because another worker may have changed the stream
		if err != nil {
			return fmt.Errorf("look up stream %q: %w", name, err)
		}
		c := s.CachedInfo().Config
		if c.MaxBytes/2 < bytes {
			continue
		}
		c.MaxBytes = (c.MaxBytes/2 + kib - 1) / kib * kib
		if _, err := cr.js.UpdateStream(ctx, c); err != nil {
			return fmt.Errorf("make stream %q smaller, because the server has no room for all streams: %w", name, err)
		}
	}
	return nil
}

// noPlaces reports whether several replicas are impossible, because too few servers exist or have space for max_bytes. It reports
// false if a server is only offline, because that server may return. The creation then fails, and the worker tries again.
func noPlaces(refused *jetstream.APIError) bool {
	return refused.ErrorCode == errNoCluster || refused.ErrorCode == errNoPeers && !strings.Contains(refused.Description, "offline")
}

// noRoom reports whether the server or the cluster can't reserve max_bytes.
func noRoom(refused *jetstream.APIError) bool {
	return refused.ErrorCode == errNoStorage || refused.ErrorCode == errNoMemory ||
		refused.ErrorCode == errNoPeers && strings.Contains(refused.Description, "insufficient storage")
}
