package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/ingest"
	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/topology"
)

// A worker of several input streams has a shard for each (adr/0060). It finds the streams that match the patterns of MILLRACE_STREAM when it
// starts and while it runs.

// openAtOnce is the maximum number of shards that are opened at the same time. Each needs about 30 requests to the server.
const openAtOnce = 16

// inputStreams returns the names of the input streams: those without a pattern, and existing ones that match a pattern.
func inputStreams(ctx context.Context, js jetstream.JetStream, cfg *config.Config) (names []string, err error) {
	if !slices.ContainsFunc(cfg.Patterns(), config.IsPattern) {
		return cfg.Patterns(), nil
	}
	existing := js.StreamNames(ctx)
	for name := range existing.Name() {
		if cfg.Matches(name) {
			names = append(names, name)
		}
	}
	if err := existing.Err(); err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	for _, p := range cfg.Patterns() {
		if !config.IsPattern(p) && !slices.Contains(names, p) {
			names = append(names, p)
		}
	}
	slices.Sort(names)
	return names, nil
}

// shardConfig returns the configuration of the shard of an input stream.
func shardConfig(ctx context.Context, js jetstream.JetStream, cfg *config.Config, stream string) (*config.Config, error) {
	if !cfg.IsMany() {
		return cfg, nil
	}
	s, err := js.Stream(ctx, stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return cfg.Shard(stream, nil)
	case err != nil:
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	return cfg.Shard(stream, s.CachedInfo().Config.Subjects)
}

// joinMany creates a worker with a shard for each input stream. It fails if a stream that MILLRACE_STREAM names without a pattern can't be
// used. Others are only logged, because the worker can go on without them.
func (a *app) joinMany(ctx context.Context, js jetstream.JetStream) error {
	names, err := inputStreams(ctx, js, a.cfg)
	if err != nil {
		return a.orNotYet(err)
	}
	a.options.Stream, a.options.Many, a.options.Shards = "", true, len(names)
	if a.worker == nil {
		if err := a.newWorker(ctx); err != nil {
			return err
		}
	}
	var named []error
	failed := func(name string, err error) {
		if slices.Contains(a.cfg.Patterns(), name) {
			named = append(named, fmt.Errorf("stream %s: %w", name, err))
		} else {
			a.logUnusable(name, err)
		}
	}
	// The first shard creates the streams that all shards share, so it is opened alone.
	a.openShards(ctx, js, names[:min(len(names), 1)], failed)
	a.openShards(ctx, js, names, failed)
	return errors.Join(named...)
}

func (a *app) logUnusable(stream string, err error) {
	a.log.Warn("an input stream can't be used; trying again", "stream", stream, "error", err)
}

// openStreams returns the input streams of the worker's shards.
func (a *app) openStreams() map[string]bool {
	open := map[string]bool{}
	for _, s := range a.worker.Shards() {
		open[s.Stream] = true
	}
	return open
}

// openShards opens the shards that the worker doesn't have yet. It calls failed for each stream that can't be used, but never concurrently.
func (a *app) openShards(ctx context.Context, js jetstream.JetStream, names []string, failed func(stream string, err error)) {
	open := a.openStreams()
	var opening sync.WaitGroup
	var mu sync.Mutex
	places := make(chan struct{}, openAtOnce)
	for _, name := range names {
		if open[name] {
			continue
		}
		places <- struct{}{}
		opening.Go(func() {
			defer func() { <-places }()
			if err := a.openShard(ctx, js, name); err != nil && ctx.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				failed(name, err)
			}
		})
	}
	opening.Wait()
}

// openShard provisions the streams and consumers of a shard, checks them, and adds the shard to the worker.
func (a *app) openShard(ctx context.Context, js jetstream.JetStream, name string) error {
	cfg, err := shardConfig(ctx, js, a.cfg, name)
	if err != nil {
		return a.orNotYet(err)
	}
	t := fullTopology(cfg, len(a.pipes))
	if err := a.prepare(ctx, t); err != nil {
		return err
	}
	if err := a.worker.Add(ctx, t); err != nil {
		return a.orNotYet(err)
	}
	a.log.Info("working on a stream", "stream", t.Stream, "subjects", t.Subjects, "results", t.ResultStream)
	return nil
}

// checkShards inspects the streams and consumers of every shard.
func checkShards(ctx context.Context, cfg *config.Config, nc *nats.Conn, devices opened) []finding.Finding {
	js, err := jetStreamAPI(cfg).New(nc)
	if err != nil {
		return []finding.Finding{{Level: finding.Error, What: "JetStream", Found: err.Error(), Advice: "report this as a bug"}}
	}
	names, err := inputStreams(ctx, js, cfg)
	if err != nil {
		return []finding.Finding{{Level: finding.Error, What: "streams", Found: err.Error(), Advice: "check the account's permissions on the JetStream API"}}
	}
	findings := checkMessages(cfg, devices, nc.MaxPayload(), consumerSettings(ctx, nc, cfg, names), len(names))
	if cfg.IsMany() {
		findings = append(findings, checkAssets(cfg, len(names)))
	}
	for _, name := range names {
		shard, err := shardConfig(ctx, js, cfg, name)
		if err != nil {
			findings = append(findings, finding.Finding{Level: finding.Error, What: "stream " + name, Found: err.Error(), Advice: "correct the names"})
			continue
		}
		findings = append(findings, checkShard(ctx, shard, nc, devices)...)
	}
	return findings
}

// checkAssets reports the number of input streams with their consumers and result streams.
func checkAssets(cfg *config.Config, streams int) finding.Finding {
	f := finding.Finding{What: "streams", Level: finding.Warning}
	assets := streams * (2 + fullTopology(cfg, 1).ConsumerCount())
	f.Found = fmt.Sprintf("MILLRACE_STREAM (%s) names %s, with up to %s consumers and result streams", cfg.Stream, counted(streams, "stream"), console.Count(int64(assets-streams)))
	switch {
	case streams == 0:
		f.Advice = "create one, or correct the pattern: the worker finds a new stream within seconds"
	case assets > topology.MaxAssets:
		f.Advice = fmt.Sprintf("with more than %d replicated streams and consumers, servers elect leaders slowly: use fewer partitions, or fewer and larger streams; see docs/streams.md", topology.MaxAssets)
	default:
		f.Level = finding.OK
	}
	return f
}

// consumerSettings returns the settings of the consumers of the first stream. They are zero without a stream.
func consumerSettings(ctx context.Context, nc *nats.Conn, cfg *config.Config, streams []string) (c jetstream.ConsumerConfig) {
	if len(streams) == 0 {
		return c
	}
	t := deployment(cfg)
	t.Stream = streams[0]
	return ingest.ConsumerSettings(ctx, nc, t)
}

// streamFlag is the flag --stream of the commands that use one input stream.
type streamFlag struct{ name string }

func (s *streamFlag) add(c *cobra.Command) {
	c.Flags().StringVar(&s.name, "stream", "", "the input `stream`, if MILLRACE_STREAM names several")
}

// config returns the configuration of the stream that the flag names. Without the flag, MILLRACE_STREAM must name a single stream.
func (s *streamFlag) config(ctx context.Context, command string) (*config.Config, error) {
	cfg, err := exchangeConfig()
	if err != nil {
		return nil, err
	}
	if s.name == "" && cfg.IsMany() {
		return nil, usageError{fmt.Errorf("%s: MILLRACE_STREAM is %s: name one stream with --stream", command, cfg.Stream)}
	}
	all, err := s.configs(ctx, cfg, command)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// configs returns the configurations of the stream that the flag names, or of all input streams without the flag.
func (s *streamFlag) configs(ctx context.Context, cfg *config.Config, command string) (all []*config.Config, err error) {
	if s.name != "" && !cfg.Matches(s.name) {
		return nil, usageError{fmt.Errorf("%s: --stream is %q, which MILLRACE_STREAM (%s) doesn't name", command, s.name, cfg.Stream)}
	}
	if !cfg.IsMany() {
		return []*config.Config{cfg}, nil
	}
	nc, err := dialWorker(cfg, "millrace-"+command)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	defer nc.Close()
	js, err := jetStreamAPI(cfg).New(nc)
	if err != nil {
		return nil, err
	}
	names := []string{s.name}
	if s.name == "" {
		if names, err = inputStreams(ctx, js, cfg); err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
	}
	for _, name := range names {
		shard, err := shardConfig(ctx, js, cfg, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		all = append(all, shard)
	}
	return all, nil
}
