package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/trim"
)

// Provision creates the missing streams and consumers. It creates a stream for dead letters unless some stream already
// stores dead letters. In existing streams, it changes only the metadata that registers consumers (see trim.Register).
func Provision(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	if err := checkInput(ctx, js, l); err != nil {
		return err // before Provision creates useless streams
	}
	cr := &creator{js: js, log: log}
	if err := cr.create(ctx, l.Kept.Inputs, inputSettings(l)); err != nil {
		return err
	}
	if err := createOutputs(ctx, cr, l); err != nil {
		return err
	}
	if err := trim.Register(ctx, js, l.Stream, l.Trim, l.Consumers()); err != nil {
		return err
	}
	return createConsumers(ctx, js, l, log)
}

func createOutputs(ctx context.Context, cr *creator, l Topology) error {
	dead, err := streamOf(ctx, cr.js, l.DeadLetterPrefix, l.Subjects)
	if err != nil {
		return err
	}
	if err := cr.create(ctx, l.Kept.Results, resultSettings(cr.js, l)); err != nil {
		return err
	}
	if dead != "" {
		return nil
	}
	return cr.create(ctx, l.Kept.DeadLetters, deadLetterSettings(cr.js, l))
}

func createConsumers(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	if l.Exclusive {
		return createPartitionConsumers(ctx, js, l, log)
	}
	return createConsumer(ctx, js, l, log)
}

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

// Consumers returns the names of all consumers of the input stream that the worker needs.
func (l Topology) Consumers() []string {
	if !l.Exclusive {
		return []string{l.Consumer}
	}
	names := make([]string, l.Partitions)
	for p := range names {
		names[p] = PartitionConsumer(l.Consumer, p)
	}
	return names
}

func consumerConfig(l Topology) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: l.Consumer, FilterSubjects: l.Subjects,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: l.AckWait, MaxAckPending: l.MaxAckPending,
		// The worker counts deliveries itself, because a server that stops delivering can't send a dead letter.
		MaxDeliver:  -1,
		Description: provisioned,
	}
}

func createConsumer(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	_, err := js.Consumer(ctx, l.Stream, l.Consumer)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("look up consumer %q: %w", l.Consumer, err)
	}
	_, err = js.CreateConsumer(ctx, l.Stream, consumerConfig(l))
	if err != nil {
		return fmt.Errorf("create consumer %q on stream %q for %v: %w: check that the stream has these subjects "+
			"(MILLRACE_SUBJECTS) and which consumers it allows. A work queue allows one for each subject: give each deployment its own stream, or "+
			"one with retention by limits", l.Consumer, l.Stream, l.Subjects, err)
	}
	log.Info("created consumer", "consumer", l.Consumer, "stream", l.Stream, "ack_wait", l.AckWait.String())
	return nil
}

// role has texts about the purpose of a stream, for findings.
type role struct {
	age, bytes string // names of the variables with the stream's bounds
	full       string // effect of a full stream
}

var (
	inputRole      = role{"MILLRACE_STREAM_MAX_AGE", "MILLRACE_STREAM_MAX_BYTES", "the server refuses inputs"}
	resultRole     = role{"MILLRACE_RESULT_MAX_AGE", "MILLRACE_RESULT_MAX_BYTES", "the worker waits until there is room"}
	deadLetterRole = role{"MILLRACE_DEADLETTER_MAX_AGE", "MILLRACE_DEADLETTER_MAX_BYTES", "payloads that are given up are delivered again, and with exclusive delivery partitions wait, until there is room"}
)

// streamSettings returns the settings of a new stream. A full stream refuses messages instead of deleting the oldest ones, which
// may be unread.
func (l Topology) streamSettings(name string, subjects []string, b Bounds) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: name, Subjects: subjects, Storage: l.Storage, Replicas: l.Kept.Replicas, MaxAge: b.MaxAge, MaxBytes: b.MaxBytes,
		Description: provisioned,
	}
	if b.MaxBytes > 0 {
		c.Discard = jetstream.DiscardNew
	}
	return c
}

func inputSettings(l Topology) jetstream.StreamConfig {
	c := l.streamSettings(l.Stream, l.Subjects, l.Kept.Inputs)
	if l.Kept.Trim {
		c.Metadata = trim.WithMark(c, l.Consumers())
	}
	if l.Exclusive {
		c.SubjectTransform = partitionTransform(l.Partitions)
	}
	return c
}

// resultSettings returns the settings of the result stream. The stream accepts batches if the server supports them. Its duplicate
// window covers the redeliveries of an input, up to maxDuplicateWindow. With exclusive delivery the stream accepts commit markers.
func resultSettings(js jetstream.JetStream, l Topology) jetstream.StreamConfig {
	c := l.streamSettings(l.ResultStream, mappedSubjects(l.ResultPrefix), l.Kept.Results)
	c.AllowBatchPublish = publisher.ServerBatches(js.Conn().ConnectedServerVersion())
	c.Duplicates = duplicateWindow(l, c.MaxAge)
	l.markSettings(&c, js.Conn().ConnectedServerVersion())
	return c
}

// deadLetterSettings returns the settings of the stream for dead letters. Its duplicate window is computed like that of the result
// stream.
func deadLetterSettings(js jetstream.JetStream, l Topology) jetstream.StreamConfig {
	c := l.streamSettings(l.ResultStream+deadLetterSuffix, mappedSubjects(l.DeadLetterPrefix), l.Kept.DeadLetters)
	c.Duplicates = duplicateWindow(l, c.MaxAge)
	l.markSettings(&c, js.Conn().ConnectedServerVersion())
	return c
}

// deadLetterSuffix follows the name of the result stream in the name of the stream for dead letters (adr/0034).
const deadLetterSuffix = "_DEADLETTER"

const (
	// maxDuplicateWindow bounds the duplicate window of a new result stream, because the server keeps every id in memory
	// for that long.
	maxDuplicateWindow = time.Hour

	// defaultDuplicateWindow is the server's default for a stream.
	defaultDuplicateWindow = 2 * time.Minute
)

// duplicateWindow returns the duplicate window of a new stream; 0 means the server's default. The window doesn't exceed the
// stream's maximum age, because the server refuses that.
func duplicateWindow(l Topology, maxAge time.Duration) time.Duration {
	window := min(redeliverySpan(l.AckWait, l.MaxDeliver), maxDuplicateWindow)
	if maxAge > 0 {
		window = min(window, maxAge)
	}
	if window <= defaultDuplicateWindow {
		return 0
	}
	return window
}
