package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest"
	"millrace/internal/ingest/retry"
)

const (
	// findEvery is the interval at which a worker looks for streams that appeared or are gone.
	findEvery = 2 * time.Second

	// comparedAtOnce is the number of shards that are compared with the server at each look. A stream or a consumer may have been deleted and
	// created again between two looks.
	comparedAtOnce = 20

	// maxUnusable is the maximum time until an input stream that can't be used is tried again. It doubles from findEvery.
	maxUnusable = time.Minute
)

// discovery finds the input streams of a worker that has several.
type discovery struct {
	*app
	js   jetstream.JetStream
	turn int // number of the next stream to compare

	opening sync.Mutex // held while shards are opened
	mu      sync.Mutex
	failed  map[string]failure // by stream
}

// failure is an input stream that can't be used.
type failure struct {
	again time.Time
	pause time.Duration
}

// followStreams opens the shards of streams that appear, and ends those of streams that are gone, until ctx is done.
func (a *app) followStreams(ctx context.Context) {
	js, err := a.options.API.New(a.nc)
	if err != nil || !a.cfg.IsMany() {
		return
	}
	d := &discovery{app: a, js: js, failed: map[string]failure{}}
	for retry.Sleep(ctx, findEvery) {
		names, err := inputStreams(ctx, js, a.cfg)
		if err != nil {
			a.log.Debug("can't look for streams now", "error", err)
			continue
		}
		d.compare(ctx, names)
		d.open(ctx, names)
	}
}

// compare ends the shards whose streams or consumers are gone, or were deleted and created again. It asks for the streams that the list
// lacks, and for some others. The list may lack a stream, because the server returns it in parts.
func (d *discovery) compare(ctx context.Context, names []string) {
	open := d.worker.Shards()
	slices.SortFunc(open, func(a, b ingest.ShardStatus) int { return strings.Compare(a.Stream, b.Stream) })
	asked := 0
	for i := range open {
		s := open[(d.turn+i)%len(open)]
		listed := slices.Contains(names, s.Stream)
		if !listed || asked < comparedAtOnce {
			d.compareOne(ctx, s)
		}
		if listed {
			asked++
		}
	}
	d.turn += comparedAtOnce
}

// compareOne ends a shard if its stream or its consumer is gone or another one.
func (d *discovery) compareOne(ctx context.Context, s ingest.ShardStatus) {
	c, err := d.js.Consumer(ctx, s.Stream, s.Consumer)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		d.log.Info("a stream is gone, so its shard ends", "stream", s.Stream)
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		d.log.Warn("a consumer is gone, so its shard begins anew", "stream", s.Stream, "consumer", s.Consumer)
	case err != nil || c.CachedInfo().Created.Equal(s.Created):
		return
	default:
		d.log.Info("a stream or its consumer was created again, so its shard begins anew", "stream", s.Stream)
	}
	d.worker.Drop(s.Stream)
}

// open opens the shards of streams that have none, in the background. Streams that can't be used are tried again later and later.
func (d *discovery) open(ctx context.Context, names []string) {
	if !d.opening.TryLock() {
		return
	}
	now := time.Now()
	d.mu.Lock()
	names = slices.DeleteFunc(names, func(name string) bool { return now.Before(d.failed[name].again) })
	d.mu.Unlock()
	go func() {
		defer d.opening.Unlock()
		d.openShards(ctx, d.js, names, d.fail)
	}()
}

// fail records that a stream can't be used.
func (d *discovery) fail(stream string, err error) {
	d.logUnusable(stream, err)
	d.mu.Lock()
	defer d.mu.Unlock()
	pause := min(max(2*d.failed[stream].pause, findEvery), maxUnusable)
	d.failed[stream] = failure{again: time.Now().Add(pause), pause: pause}
}
