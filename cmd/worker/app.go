package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/device"
	"millrace/internal/ingest"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/topology"
	"millrace/internal/loglimit"
	"millrace/internal/memory"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
	"millrace/internal/tracing"
)

// app holds all parts of a worker: devices, pipelines, connections, the ingest worker and HTTP servers. It closes them
// in the reverse order of their creation.
type app struct {
	cfg         *config.Config
	log         *slog.Logger
	metrics     *telemetry.Metrics
	timeline    *telemetry.Timeline
	health      *telemetry.Health
	meter       *console.Meter
	extra       telemetry.Observer // additional observer for a command; nil for none
	observers   telemetry.Observers
	adjust      func(*ingest.Options) // changes the options before they are used; nil for none
	copies      bool                  // whether the CPU device also copies batches, to show how a pipeline works
	devices     []device.Device
	pipes       []*streams.Pipeline // pipes[i] runs on devices[i]
	lossLogged  []<-chan struct{}   // lossLogged[i] is closed when pipes[i] has ended and the loss of its device, if any, is logged
	server      *embedded.Server
	url         string
	nc          *nats.Conn
	provisioner *topology.Provisioner // nil before nc is open
	worker      *ingest.Worker
	joined      atomic.Bool // nc, worker and options are set, and health checks may use them
	options     ingest.Options
	debugURL    string                    // address of the timeline page; empty if the page is off
	tracer      *tracing.Tracer           // nil for none
	draining    atomic.Pointer[time.Time] // time when the drain began; nil before that
	memory      *memory.Process
	state       *lease.StateOptions // settings of the states of a stateful operator; nil without one
	states      topology.States     // sizes of these states

	closers []closer
}

// newApp creates the parts that depend on no other part: metrics, timeline and meter. It limits repeated messages in
// log. The limited log is also the default log of the standard library and of packages without a logger.
func newApp(cfg *config.Config, log *slog.Logger) *app {
	m := telemetry.NewMetrics(build())
	limit := loglimit.New(log.Handler(), m.LogSuppressed)
	slog.SetDefault(slog.New(limit))
	return &app{
		cfg: cfg, log: slog.New(limit), metrics: m, meter: console.NewMeter(m),
		timeline: telemetry.NewTimeline(telemetry.TimelineBatches),
		copies:   emulateGPU,
		closers:  []closer{{close: limit.Close}},
	}
}

// start starts all parts in the order of their dependencies. addr is the listen address of the embedded server, and dir
// is its storage folder.
func (a *app) start(ctx context.Context, addr, dir string) error {
	if err := a.openTracing(ctx); err != nil {
		return err
	}
	if err := a.openPipelines(); err != nil {
		return err
	}
	if err := a.startServer(addr, dir); err != nil {
		return err
	}
	if err := a.serve(); err != nil {
		return err
	}
	return a.connect(ctx)
}

// openPipelines opens the devices and creates a pipeline on each.
func (a *app) openPipelines() error {
	a.memory = memory.NewProcess(int64(a.cfg.MemoryLimit), a.cfg.Embedded())
	devices, fellBack, err := openDevicesOr(a.cfg, a.log, openHost)
	if err != nil {
		return err
	}
	a.devices = devices
	a.metrics.SetFallback(fellBack)
	for _, d := range devices {
		a.onCloseDevice(d.Info().ID, func() error { return a.closeDevice(d) })
	}
	a.observers = telemetry.Observers{a.metrics, a.timeline}
	if a.extra != nil {
		a.observers = append(a.observers, a.extra)
	}
	if f := a.cfg.ParsedFilter(); f != nil {
		a.metrics.AddFilter(f.Conditions())
	}
	for _, d := range devices {
		if err := a.openPipeline(d); err != nil {
			return err
		}
	}
	if err := a.openState(); err != nil {
		return err
	}
	a.metrics.Watch(a.stats)
	applyMemory(a.memory, a.log)
	return nil
}

// openPipeline creates the pipeline on d and checks that d computes correctly.
func (a *app) openPipeline(d device.Device) error {
	info := d.Info()
	a.metrics.AddDevice(info.ID)
	for _, op := range a.cfg.ParsedOperators() {
		a.metrics.AddOperators([]string{op.Name()})
	}
	a.timeline.AddDevice(info.ID, info.Name, d.Epoch())
	if a.tracer != nil {
		a.tracer.AddDevice(info.ID, d.Epoch())
	}
	o := pipelineConfig(a.cfg, info, a.cfg.ParsedOperators(), a.observers)
	o.Copies = a.copies && info.Kind == "host"
	o.Admit = admit(a.memory, info.Kind)
	pipe, err := streams.New(d, o)
	if isOwnRefusal(err) {
		return usageError{err} // the settings conflict
	}
	if err != nil {
		return explainMemory(a.memory, err)
	}
	a.pipes = append(a.pipes, pipe)
	a.onCloseDevice(info.ID, pipe.Close)
	a.lossLogged = append(a.lossLogged, a.logLoss(pipe))
	if err := pipe.Probe(context.Background()); err != nil {
		return fmt.Errorf("the device does not compute correctly, so the worker takes no payloads: %w", err)
	}
	a.logReady(info, pipe)
	return nil
}

// isOwnRefusal reports whether Millrace itself rejected an argument. An error with a code is an error of the device,
// which the user cannot correct.
func isOwnRefusal(err error) bool {
	var e *device.Error
	return errors.As(err, &e) && errors.Is(e, device.ErrInvalid) && e.Code == 0
}

// logReady logs the device and the settings of a pipeline.
func (a *app) logReady(info device.Info, pipe *streams.Pipeline) {
	scratch := "pool"
	if why := pipe.ScratchInstead(); why != nil {
		scratch = "preallocated"
		a.log.Warn("the device has no memory pool: scratch is preallocated at the largest size for each lane",
			"device", info.ID, "reason", why)
	}
	a.log.Info("device ready", "device", info.ID, "name", info.Name, "lanes", a.cfg.Lanes, "batch_bytes", a.cfg.BatchBytes,
		"batch_payloads", a.cfg.BatchPayloads, "scratch", scratch, "numa_node", info.NUMANode)
}

// stats returns the counters of every pipeline. Counters that cannot be read stay zero. Other metrics report the loss
// of a device.
func (a *app) stats() []streams.Stats {
	all := make([]streams.Stats, 0, len(a.pipes))
	for _, pipe := range a.pipes {
		s, err := pipe.Stats()
		if err != nil {
			a.log.Debug("cannot read the counters of a pipeline", "device", s.Device, "error", err)
		}
		all = append(all, s)
	}
	return all
}
