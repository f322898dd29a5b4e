package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/device"
	"millrace/internal/ingest"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
	"millrace/internal/tracing"
)

// embeddedAddr is where the embedded server listens for `worker run`.
const embeddedAddr = "127.0.0.1:4222"

// plant is the whole worker put together. Its parts are closed in the reverse order of their making.
type plant struct {
	cfg      *config.Config
	log      *slog.Logger
	metrics  *telemetry.Metrics
	timeline *telemetry.Timeline
	health   *telemetry.Health
	meter    *console.Meter
	extra    streams.Observer // of the command, nil for none
	copies   bool             // also on a CPU, which needs none: how a pipeline works is to be seen
	devices  []device.Device
	pipes    []*streams.Pipeline
	server   *embedded.Server
	url      string
	nc       *nats.Conn
	worker   *ingest.Worker
	options  ingest.Options
	debugURL string                    // of the timeline page; empty if it is off
	tracer   *tracing.Tracer           // nil for none
	draining atomic.Pointer[time.Time] // since when; nil before
	memory   *memoryBudget

	closers []closer
}

// newPlant makes what needs nothing running: metrics, timeline, meter, and a bound on what log holds of one message.
func newPlant(cfg *config.Config, log *slog.Logger) *plant {
	m := telemetry.NewMetrics(build())
	limit := limitLog(log, m)
	return &plant{
		cfg: cfg, log: slog.New(limit), metrics: m, meter: console.NewMeter(m),
		timeline: telemetry.NewTimeline(telemetry.TimelineBatches),
		copies:   standIn,
		closers:  []closer{{close: limit.Close}},
	}
}

// openPipelines opens the devices and makes a pipeline on each.
func (p *plant) openPipelines() error {
	ops, err := operator.ParseList(p.cfg.Operators.String())
	if err != nil {
		return err
	}
	if p.memory, err = newMemoryBudget(p.cfg); err != nil {
		return err
	}
	devices, fellBack, err := openDevices(p.cfg, p.log)
	if err != nil {
		return err
	}
	p.devices = devices
	p.metrics.SetFallback(fellBack)
	for _, d := range devices {
		p.onCloseDevice(d.Info().ID, func() error { return p.closeDevice(d) })
	}
	observers := telemetry.Observers{p.metrics, p.timeline}
	if p.extra != nil {
		observers = append(observers, p.extra)
	}
	for _, d := range devices {
		info := d.Info()
		p.metrics.AddDevice(info.ID)
		p.timeline.AddDevice(info.ID, info.Name, d.Epoch())
		if p.tracer != nil {
			p.tracer.AddDevice(info.ID, d.Epoch())
		}
		c := pipelineConfig(p.cfg, info, ops, observers)
		c.Copies = p.copies && info.Kind == "host"
		c.Admit = p.memory.admit(info.Kind)
		pipe, err := streams.New(d, c)
		if refusedHere(err) {
			return usageError{err} // bounds that do not go together
		}
		if err != nil {
			return p.memory.explain(err)
		}
		p.pipes = append(p.pipes, pipe)
		p.onCloseDevice(info.ID, pipe.Close)
		p.logLoss(pipe)
		if err := pipe.Probe(context.Background()); err != nil {
			return fmt.Errorf("the device does not compute as it must, so no payload is taken: %w", err)
		}
		p.sayReady(info, pipe)
	}
	p.metrics.Watch(p.stats)
	p.memory.apply(p.log)
	return nil
}

// stats reads every pipeline. The counters of a pool that cannot be read stay at zero: the loss of its
// device has metrics of its own.
func (p *plant) stats() []streams.Stats {
	all := make([]streams.Stats, 0, len(p.pipes))
	for _, pipe := range p.pipes {
		s, err := pipe.Stats()
		if err != nil {
			p.log.Debug("reading a pipeline's counters", "device", s.Device, "error", err)
		}
		all = append(all, s)
	}
	return all
}

// startServer starts the embedded NATS server if the configuration asks for none else.
func (p *plant) startServer(addr, dir string) error {
	if !p.cfg.Embedded() {
		p.url = strings.Join(p.cfg.NATS.URL, ",")
		return nil
	}
	s, err := embedded.Start(embedded.Options{Addr: addr, Dir: dir})
	if err != nil {
		return err
	}
	p.server, p.url = s, s.URL()
	p.onClose(func() error { s.Close(); return nil })
	p.log.Info("started an embedded NATS server with JetStream, for this machine alone (MILLRACE_NATS_URL sets another)",
		"url", p.url, "storage", dir)
	return nil
}

// connect opens the connection and makes the worker on it.
func (p *plant) connect(ctx context.Context) error {
	p.options = ingestOptions(p.cfg, p.log, p.meter, p.pipes)
	if p.tracer != nil {
		p.options.Batches = p.tracer
	}
	p.sayCredentials()
	nc, err := p.dial()
	if err != nil {
		return err
	}
	p.nc = nc
	for range connections(p.cfg) - 1 {
		more, err := p.dial()
		if err != nil {
			return err
		}
		p.options.More = append(p.options.More, more)
	}
	if p.cfg.Provision {
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		if err := p.inspectBefore(ctx); err != nil {
			return err
		}
		if err := topology.Provision(ctx, js, p.options.Topology, p.log); err != nil {
			return err
		}
	}
	if err := p.inspect(ctx); err != nil {
		return err
	}
	p.options.Memory = p.memory.plan.Hand
	p.worker, err = ingest.NewWorker(ctx, nc, p.pipes, p.options)
	if errors.Is(err, inflight.ErrMemory) {
		return usageError{err}
	}
	if err == nil {
		p.metrics.SetLimits(telemetry.Limits{
			BatchBytes: int(p.cfg.BatchBytes), BatchPayloads: p.cfg.BatchPayloads, AckWait: p.worker.Status().AckWait,
		})
		p.metrics.WatchMemory(p.worker.Memory)
		p.metrics.WatchInHand(func() int { return p.worker.Status().InHand })
		p.metrics.WatchPartitions(func() int { return p.worker.Status().Partitions })
		p.metrics.WatchHeldBack(func() int { return p.worker.Status().HeldBack })
	}
	return err
}

// sayCredentials warns of files that will soon be of no use. What is wrong with one already fails the connection.
func (p *plant) sayCredentials() {
	for _, f := range connection(p.cfg, p.url).Inspect(time.Now()) {
		if f.Level == finding.Warning {
			p.log.Warn(f.What, "found", f.Found, "advice", f.Advice)
		}
	}
}

// connections is how many to open.
func connections(cfg *config.Config) int {
	if cfg.NATS.Connections > 0 {
		return cfg.NATS.Connections
	}
	return natsconn.DefaultConnections(cfg.Delivery == "exclusive")
}

// dial opens one connection, which closes with the plant.
func (p *plant) dial() (*nats.Conn, error) {
	nc, err := natsconn.Open(connection(p.cfg, p.url), "millrace", p.log, p.meter.Reconnected)
	if err == nil {
		p.onClose(func() error { nc.Close(); return nil })
	}
	return nc, err
}

// connected says whether every connection is up.
func (p *plant) connected() bool {
	for _, nc := range p.options.More {
		if !nc.IsConnected() {
			return false
		}
	}
	return p.nc.IsConnected()
}

// inspectBefore fails on what would end the start after provisioning, so that a start that fails leaves nothing behind.
func (p *plant) inspectBefore(ctx context.Context) error {
	var errs []error
	for _, f := range topology.Inspect(ctx, p.nc, p.options.Topology, use(p.cfg, len(p.pipes))) {
		if f.Level == finding.Error && !f.Missing {
			errs = append(errs, errors.New(f.String()))
		}
	}
	return errors.Join(errs...)
}

// inspect looks at server, streams and consumer before the worker touches them.
func (p *plant) inspect(ctx context.Context) error {
	var errs []error
	for _, f := range topology.Inspect(ctx, p.nc, p.options.Topology, use(p.cfg, len(p.pipes))) {
		switch f.Level {
		case finding.Error:
			errs = append(errs, errors.New(f.String()))
		case finding.Warning:
			p.log.Warn(f.What, "found", f.Found, "advice", f.Advice)
		default:
			p.log.Info(f.What, "found", f.Found)
		}
	}
	return errors.Join(errs...)
}

// inFlight is how many payloads full batches hold at once: two batches a lane on the device, and as many being
// published.
func inFlight(cfg *config.Config, devices int) int {
	return devices * cfg.Lanes * 4 * cfg.BatchPayloads
}

// use is what the worker is going to do with its streams.
func use(cfg *config.Config, devices int) topology.Use {
	return topology.Use{InFlight: inFlight(cfg, devices), BatchBytes: int(cfg.BatchBytes), Linger: cfg.Linger}
}

// connection is how to reach NATS.
func connection(cfg *config.Config, url string) natsconn.Server {
	return natsconn.Server{
		URL: url, Creds: cfg.NATS.Creds, NKey: cfg.NATS.NKey,
		CA: cfg.NATS.TLS.CA, Cert: cfg.NATS.TLS.Cert, Key: cfg.NATS.TLS.Key,
	}
}

func ingestOptions(cfg *config.Config, log *slog.Logger, observer ingest.Observer, pipes []*streams.Pipeline) ingest.Options {
	ops, _ := operator.ParseList(cfg.Operators.String()) // checked by loadConfig
	format, _ := operator.ParseFormat(cfg.ResultFormat)  // likewise
	maxAckPending := cfg.MaxAckPending
	if maxAckPending == 0 {
		maxAckPending = 2 * inFlight(cfg, max(len(pipes), 1))
	}
	return ingest.Options{
		Topology: topology.Topology{
			Stream: cfg.Stream, Subjects: cfg.Subjects, Consumer: cfg.Consumer,
			ResultStream: cfg.ResultStream, ResultPrefix: cfg.ResultPrefix, DeadLetterPrefix: cfg.DeadletterPrefix,
			Exclusive: cfg.Delivery == "exclusive", Partitions: cfg.Partitions, MaxDeliver: cfg.MaxDeliver,
			AckWait: cfg.AckWait, MaxAckPending: maxAckPending, AskedAckPending: cfg.MaxAckPending,
		},
		Operators: ops, Format: format, Linger: cfg.Linger, DrainTimeout: cfg.DrainTimeout, ConfirmAcks: cfg.Ack == "confirmed",
		Logger: log, Observer: observer,
	}
}

// serve starts the HTTP servers. Until the worker runs they say that it is starting.
func (p *plant) serve() error {
	p.health = telemetry.NewHealth(telemetry.HealthConfig{Work: p.work, Connected: p.connected, Stalled: func() error { return p.worker.Stalled() }})
	for _, s := range []struct {
		what, addr, variable string
		local                bool
	}{
		{"metrics and health", p.cfg.HTTPAddr, "MILLRACE_HTTP_ADDR", false},
		{"debug pages", p.cfg.DebugAddr, "MILLRACE_DEBUG_ADDR", true},
	} {
		if s.addr == "" {
			continue
		}
		handler := telemetry.Handler(p.metrics, p.health)
		if s.local {
			handler = telemetry.DebugHandler(telemetry.Debug{
				Timeline: p.timeline, Build: build(), Stats: p.stats,
				Bounds: telemetry.LiveBounds{Lanes: p.cfg.Lanes, Payloads: p.cfg.BatchPayloads, Bytes: int(p.cfg.BatchBytes)},
			})
		}
		server, err := telemetry.Listen(s.addr, s.variable, handler, p.log)
		if err != nil {
			return err
		}
		p.onClose(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return server.Close(ctx)
		})
		if s.local {
			p.debugURL = httpURL(server.Addr())
		}
		p.log.Info("serving "+s.what, "address", httpURL(server.Addr()))
	}
	return nil
}

func httpURL(a net.Addr) string { return fmt.Sprintf("http://%s/", a) }

// work is what health judges: what the worker has in hand, and each device by what is on it, so that one that works does
// not hide one that hangs.
func (p *plant) work() []telemetry.Work {
	status := p.worker.Status()
	work := []telemetry.Work{{Name: "worker", InHand: status.InHand, Progress: status.Progress, AckWait: status.AckWait, HeldBack: status.HeldBack}}
	for i, pipe := range p.pipes {
		work = append(work, deviceWork(p.devices[i], pipe))
	}
	return work
}

// deviceWork is what health judges of the pipeline on a device.
func deviceWork(d device.Device, pipe *streams.Pipeline) telemetry.Work {
	w := telemetry.Work{Name: d.Info().ID, Lost: d.Err()}
	if err := pipe.Err(); w.Lost == nil && errors.Is(err, device.ErrLost) {
		w.Lost = err // that of a device that does not know that it is lost: it hangs, or computes wrongly
	}
	if f := pipe.Oldest(); f.Bound > 0 {
		w.InHand, w.Age, w.Bound = 1+f.Others, f.Age, f.Bound
	}
	return w
}
