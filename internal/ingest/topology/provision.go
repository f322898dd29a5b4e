package topology

// This file creates missing streams and consumers. The server reserves max_bytes of each stream. If the server has no space for the
// defaults, the streams get smaller limits. Values that the user chose are never changed.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// Provisioner creates missing streams and consumers, for one shard after another or several at a time. It remembers the streams that it has
// created, to make them smaller if the server has no space for the others.
type Provisioner struct {
	js  jetstream.JetStream
	log *slog.Logger

	mu   sync.Mutex // held while streams are created
	made []string   // created streams whose max_bytes is a default
}

// NewProvisioner returns a Provisioner that has created nothing.
func NewProvisioner(js jetstream.JetStream, log *slog.Logger) *Provisioner {
	return &Provisioner{js: js, log: log}
}

// Provision creates the missing streams and consumers of a single shard; see Provisioner.Provision.
func Provision(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	return NewProvisioner(js, log).Provision(ctx, l)
}

// Provision creates the missing streams and consumers of a shard. It creates a stream for dead letters unless some stream already
// stores dead letters. In existing streams, it changes only the metadata that registers consumers (see trim.Trimmer).
func (p *Provisioner) Provision(ctx context.Context, l Topology) error {
	if err := checkInput(ctx, p.js, l); err != nil {
		return err // before Provision creates useless streams
	}
	if err := p.createStreams(ctx, l); err != nil {
		return err
	}
	if err := l.trimmer(p.js).Register(ctx); err != nil {
		return err
	}
	return createConsumers(ctx, p.js, l, p.log)
}

func (p *Provisioner) createStreams(ctx context.Context, l Topology) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.create(ctx, l.inputPlan()); err != nil {
		return err
	}
	dead, err := streamOf(ctx, p.js, l.DeadLetterPrefix, l.Subjects)
	if err != nil {
		return err
	}
	version := p.js.Conn().ConnectedServerVersion()
	outputs := []plan{l.resultPlan(version), l.deadLetterPlan(version)}
	if dead != "" {
		outputs = outputs[:1]
	}
	for _, want := range outputs {
		if err := p.create(ctx, want); err != nil {
			return err
		}
	}
	return nil
}

// checkInput returns an error if the input stream exists and is unfit for a worker.
func checkInput(ctx context.Context, js jetstream.JetStream, l Topology) error {
	info, err := streamInfo(ctx, js, l.Stream)
	if err != nil || info == nil {
		return err
	}
	if found, advice := unfit(info.Config, l, l.Subjects); found != "" {
		return fmt.Errorf("stream %s: %s: %s", l.Stream, found, advice)
	}
	return nil
}

// streamInfo returns the state of a stream, or nil if the stream doesn't exist.
func streamInfo(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	s, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up stream %q: %w", name, err)
	}
	return s.CachedInfo(), nil
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

// create creates a stream unless it exists.
func (p *Provisioner) create(ctx context.Context, want plan) error {
	if info, err := streamInfo(ctx, p.js, want.Name); err != nil || info != nil {
		return err
	}
	s, err := p.createShrinking(ctx, want)
	if refused := (*jetstream.APIError)(nil); errors.As(err, &refused) && noRoom(refused) {
		return fmt.Errorf("create stream %q with max_bytes %s: %w: the server reserves that much; choose less (MILLRACE_STREAM_MAX_BYTES, "+
			"MILLRACE_RESULT_MAX_BYTES, MILLRACE_DEADLETTER_MAX_BYTES), or give JetStream more storage", want.Name, sizeFlag(want.MaxBytes), err)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil // another worker has just created it with other settings, which Inspect reports
	}
	if err != nil {
		return fmt.Errorf("create stream %q on %v: %w: if another stream has these subjects, name that stream or choose other subjects "+
			"(MILLRACE_STREAM, MILLRACE_SUBJECTS, MILLRACE_RESULT_STREAM, MILLRACE_RESULT_PREFIX, MILLRACE_DEADLETTER_PREFIX, "+
			"MILLRACE_COMMIT_PREFIX)", want.Name, want.Subjects, err)
	}
	got := s.CachedInfo().Config
	if !want.bounds.AskedBytes {
		p.made = append(p.made, got.Name)
	}
	p.log.Info("created stream", "stream", want.Name, "subjects", want.Subjects, "keeps", keeps(got), "replicas", got.Replicas)
	return nil
}

// createShrinking creates a stream. It reduces max_bytes and the number of replicas to values that the server can provide, unless
// the user chose the value.
func (p *Provisioner) createShrinking(ctx context.Context, want plan) (jetstream.Stream, error) {
	c, open := want.StreamConfig, want.Replicas == 0
	if open && p.js.Conn().ConnectedClusterName() != "" {
		c.Replicas = clusterReplicas
	}
	for {
		s, err := p.js.CreateStream(ctx, c)
		refused := (*jetstream.APIError)(nil)
		if err == nil || !errors.As(err, &refused) {
			return s, err
		}
		switch {
		case noRoom(refused) && !want.bounds.AskedBytes && c.MaxBytes/2 >= minBytes:
			c.MaxBytes /= 2
			p.log.Warn("the server has no room for streams of the default size", "stream", c.Name, "max_bytes", sizeFlag(c.MaxBytes))
			if err := p.halve(ctx, c.MaxBytes); err != nil {
				return nil, err
			}
		case open && c.Replicas > 1 && noPlaces(refused):
			p.log.Warn("the servers can't place three replicas, so the stream is on one server alone", "stream", c.Name,
				"reason", refused.Description)
			c.Replicas = 1
		default:
			return nil, err
		}
	}
}

// halve makes space for a stream of the given bytes. It halves max_bytes of each created stream that is at least twice as
// large. These streams are still nearly empty.
func (p *Provisioner) halve(ctx context.Context, bytes int64) error {
	for _, name := range p.made {
		s, err := p.js.Stream(ctx, name) // a new query, because another worker may have changed the stream
		if err != nil {
			return fmt.Errorf("look up stream %q: %w", name, err)
		}
		c := s.CachedInfo().Config
		if c.MaxBytes/2 < bytes {
			continue
		}
		c.MaxBytes = (c.MaxBytes/2 + kib - 1) / kib * kib
		if _, err := p.js.UpdateStream(ctx, c); err != nil {
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

// createConsumers creates the missing consumers. After an error, the created consumers stay, because another worker may already use
// them. The next attempt creates the remaining ones.
func createConsumers(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	var missing []jetstream.ConsumerConfig
	for _, c := range l.newConsumers() {
		switch _, err := js.Consumer(ctx, l.Stream, c.Durable); {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
			missing = append(missing, c)
		case err != nil:
			return fmt.Errorf("look up consumer %q: %w", c.Durable, err)
		}
	}
	cause := "check that the stream has these subjects (MILLRACE_SUBJECTS) and which consumers it allows. A work queue allows one for each " +
		"subject: give each deployment its own stream, or one with retention by limits"
	if l.Exclusive {
		if err := checkConsumerLimit(ctx, js, l, len(missing)); err != nil {
			return err
		}
		cause = "check how many consumers the stream and the account allow; exclusive delivery needs nats-server 2.14 or later, and this is " +
			js.Conn().ConnectedServerVersion()
	}
	for _, c := range missing {
		if _, err := js.CreateConsumer(ctx, l.Stream, c); err != nil {
			return fmt.Errorf("create consumer %q on stream %q for %v: %w: %s", c.Durable, l.Stream, c.FilterSubjects, err, cause)
		}
	}
	switch {
	case l.Exclusive:
		log.Info("the partitions' consumers exist", "stream", l.Stream, "partitions", l.Partitions,
			"consumers", PartitionConsumer(l.Consumer, 0)+" ...")
	case len(missing) > 0:
		log.Info("created consumer", "consumer", l.Consumer, "stream", l.Stream, "ack_wait", l.AckWait.String())
	}
	return nil
}

// checkConsumerLimit returns an error if the input stream doesn't allow the given number of further consumers. An incomplete set of
// consumers is useless.
func checkConsumerLimit(ctx context.Context, js jetstream.JetStream, l Topology, missing int) error {
	s, err := js.Stream(ctx, l.Stream)
	if err != nil {
		return fmt.Errorf("look up stream %q: %w", l.Stream, err)
	}
	info := s.CachedInfo()
	if limit, there := info.Config.MaxConsumers, info.State.Consumers; limit > 0 && there+missing > limit {
		return fmt.Errorf("create %d consumers on stream %q, which has %d: its maximum consumers limit is %d: raise how many consumers it "+
			"allows, or lower MILLRACE_PARTITIONS", missing, l.Stream, there, limit)
	}
	return nil
}
