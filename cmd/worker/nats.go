package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/config"
	"millrace/internal/frame"
	"millrace/internal/ingest"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/topology"
	"millrace/internal/ingest/trim"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
	"millrace/internal/table"
	"millrace/internal/telemetry"
)

// embeddedAddr is the address on which the embedded server of `worker run` listens. Tests use another address.
var embeddedAddr = "127.0.0.1:4222"

// startServer starts the embedded NATS server, unless the configuration names another server.
func (a *app) startServer(addr, dir string) error {
	if !a.cfg.Embedded() {
		a.url = strings.Join(a.cfg.NATS.URL, ",")
		return nil
	}
	s, err := embedded.Start(embedded.Options{Addr: addr, Dir: dir})
	if err != nil {
		return err
	}
	a.server, a.url = s, s.URL()
	a.onClose(func() error { s.Close(); return nil })
	a.log.Info("started an embedded NATS server with JetStream, which only this machine can reach (MILLRACE_NATS_URL sets another)",
		"url", a.url, "storage", dir)
	return nil
}

// connect waits for the NATS server, opens the connections and creates the ingest worker on them.
func (a *app) connect(ctx context.Context) error {
	a.options = ingestOptions(a.cfg, a.log, a.meter, a.pipes)
	a.options.State = a.state
	if a.adjust != nil {
		a.adjust(&a.options)
	}
	a.options.Records = a.observers
	if a.tracer != nil {
		a.options.Batches = a.tracer
	}
	a.logFrames()
	a.logCredentials()
	if err := a.awaitNATS(ctx, a.join); err != nil {
		return err
	}
	a.joined.Store(true)
	a.watchWorker()
	return nil
}

// join opens the connections and creates the ingest worker on them. The caller may call it again after a notYet error.
func (a *app) join(ctx context.Context) error {
	if err := a.dialAll(ctx); err != nil {
		return err
	}
	js, err := a.options.API.New(a.nc)
	if err != nil {
		return err
	}
	if a.provisioner == nil {
		a.provisioner = topology.NewProvisioner(js, a.log)
	}
	if a.cfg.IsMany() {
		return a.joinMany(ctx, js)
	}
	if err := a.prepare(ctx, a.options.Topology); err != nil {
		return err
	}
	return a.newWorker(ctx)
}

// prepare provisions the streams and consumers of a shard, and checks them.
func (a *app) prepare(ctx context.Context, t topology.Topology) error {
	if err := a.provision(ctx, t); err != nil {
		return err
	}
	return a.inspect(ctx, t)
}

// newWorker creates the ingest worker.
func (a *app) newWorker(ctx context.Context) error {
	a.options.Memory = a.memory.Payloads
	worker, err := ingest.NewWorker(ctx, a.nc, a.pipes, a.options)
	if errors.As(err, new(*memory.Error)) {
		return usageError{err}
	}
	if err != nil {
		return a.orNotYet(err)
	}
	a.worker = worker
	return nil
}

// watchWorker makes the metrics report the state of the ingest worker.
func (a *app) watchWorker() {
	a.metrics.SetLimits(telemetry.Limits{
		BatchBytes: int(a.cfg.BatchBytes), BatchPayloads: a.cfg.BatchPayloads, AckWait: a.worker.Status().AckWait,
	})
	a.metrics.WatchMemory(a.worker.Memory)
	a.metrics.WatchWorker(a.worker.Status)
	a.metrics.WatchShards(a.worker.Shards)
	if a.state != nil {
		a.metrics.WatchStates(a.state.Bytes*int64(len(a.devices)), a.worker.States)
	}
}

// logFrames logs the fields and the filter of records, and the framing and compression of messages and results, unless they are off.
func (a *app) logFrames() {
	o := &a.options
	if o.Split.Selects() {
		a.log.Info("fields", "field", o.Split.Field, "missing", a.cfg.FieldMissing, "keep_fields", a.cfg.KeepFields.String())
	}
	if o.Filter != nil {
		a.log.Info("filter", "keeps", strings.Join(o.Filter.Conditions(), ", "), "leaves_out_filters", strings.Join(o.Filter.Missing(), ", "))
	}
	if o.Split.Framing == frame.None && o.Decompress == compression.None && o.Compress == compression.None {
		return
	}
	a.log.Info("framing and compression", "framing", o.Split.Framing.String(), "frame_records", o.Split.MaxRecords,
		"frame_bytes", a.cfg.FrameBytes.String(), "decompress", o.Decompress.String(), "result_encoding", o.Compress.String())
}

// logCredentials warns about credentials that expire soon. Wrong credentials make dial fail instead.
func (a *app) logCredentials() {
	for _, f := range natsServer(a.cfg, a.url).Inspect(time.Now()) {
		if f.Level == finding.Warning {
			a.log.Warn(f.What, "found", f.Found, "advice", f.Advice)
		}
	}
}

func connections(cfg *config.Config) int {
	if cfg.NATS.Connections > 0 {
		return cfg.NATS.Connections
	}
	return natsconn.DefaultConnections(cfg.Delivery == "exclusive")
}

// connected reports whether every connection is up. It is false until the worker has joined.
func (a *app) connected() bool { return a.joined.Load() && a.worker.Status().Connected }

// provision creates missing streams and consumers if the configuration enables it. It first checks existing streams and consumers, so a
// failed start leaves nothing behind.
func (a *app) provision(ctx context.Context, t topology.Topology) error {
	if !a.cfg.Provision {
		return nil
	}
	if err := a.wrong(topology.Inspect(ctx, a.nc, t, use(a.cfg, len(a.pipes), a.states)), true); err != nil {
		return err
	}
	return a.orNotYet(a.provisioner.Provision(ctx, t))
}

// inspect checks server, streams and consumer before the worker uses them. It logs the findings that aren't errors, but with several input
// streams only the warnings, and returns the errors. If the server doesn't answer, it returns a notYet error and logs nothing.
func (a *app) inspect(ctx context.Context, t topology.Topology) error {
	findings := topology.ExplainCommands(topology.Inspect(ctx, a.nc, t, use(a.cfg, len(a.pipes), a.states)))
	err := a.wrong(findings, false)
	if errors.As(err, &notYet{}) {
		return err
	}
	for _, f := range findings {
		switch {
		case f.Level == finding.Warning:
			a.log.Warn(f.What, "found", f.Found, "advice", f.Advice)
		case f.Level == finding.OK && !a.cfg.IsMany():
			a.log.Info(f.What, "found", f.Found)
		}
	}
	return err
}

// inFlight returns the settings that determine the maximum number of payloads in flight.
func inFlight(cfg *config.Config, devices int) *memory.Worker {
	return &memory.Worker{Slots: devices * memory.SlotsPerLane * cfg.Lanes, BatchPayloads: cfg.BatchPayloads}
}

// use returns the limits of the worker that determine whether its streams and consumers are suitable.
func use(cfg *config.Config, devices int, s topology.States) topology.Use {
	return topology.Use{InFlight: inFlight(cfg, devices).Full(), BatchBytes: int(cfg.BatchBytes), Linger: cfg.Linger, Frames: frames(cfg), States: s}
}

// frames returns the settings for frames and the maximum sizes of their results.
func frames(cfg *config.Config) topology.Frames {
	format, ops := cfg.ResultFormat, cfg.ParsedOperators()
	one, two := maxResult(format, ops, 1), maxResult(format, ops, 2)
	return topology.Frames{
		Framed: cfg.Framing != frame.None, Compressed: cfg.Decompress != compression.None,
		Records: cfg.FrameRecords, Bytes: int(cfg.FrameBytes), Result: one, ResultMore: two - one,
	}
}

// maxResult returns the maximum size in bytes of the result of a frame with the given number of empty records.
func maxResult(format operator.Format, ops []operator.Operator, records int) int {
	return table.MaxBytes(format, ops, records, operator.StringBytes(ops, records, 0))
}

// natsServer returns the address of the NATS servers and the files with the credentials.
func natsServer(cfg *config.Config, url string) natsconn.Server {
	return natsconn.Server{
		URL: url, Creds: cfg.NATS.Creds, NKey: cfg.NATS.NKey,
		CA: cfg.NATS.TLS.CA, Cert: cfg.NATS.TLS.Cert, Key: cfg.NATS.TLS.Key, TLSFirst: cfg.NATS.TLS.First,
	}
}

// jetStreamAPI returns the domain or prefix of the JetStream API that the worker's streams belong to. The embedded
// server has only the default API.
func jetStreamAPI(cfg *config.Config) jsapi.API {
	if cfg.Embedded() {
		return jsapi.API{}
	}
	return jsapi.API{Domain: cfg.NATS.JS.Domain, Prefix: cfg.NATS.JS.Prefix}
}

// deployment returns the names, subjects and delivery mode of the deployment.
func deployment(cfg *config.Config) topology.Topology {
	return topology.Topology{
		API: jetStreamAPI(cfg), Stream: cfg.Stream, Subjects: cfg.Subjects, Whole: cfg.IsWhole(), Consumer: cfg.Consumer,
		ResultStream: cfg.ResultStream, ResultPrefix: cfg.ResultPrefix, DeadLetterPrefix: cfg.DeadletterPrefix,
		ExactlyOnce: exactlyOnce(cfg), CommitPrefix: cfg.CommitPrefix, Exclusive: cfg.Delivery == "exclusive", Partitions: cfg.Partitions,
	}
}

// ingestOptions returns the configuration as options of package ingest.
func ingestOptions(cfg *config.Config, log *slog.Logger, observer ingest.Observer, pipes []*streams.Pipeline) ingest.Options {
	return ingest.Options{
		Topology: fullTopology(cfg, len(pipes)),
		Messages: memory.Messages{
			Operators: cfg.ParsedOperators(), Format: cfg.ResultFormat, Filter: cfg.ParsedFilter(), Compress: cfg.ResultEncoding,
			Split: cfg.Splitter(), Decompress: cfg.Decompress,
		},
		Linger: cfg.Linger, DrainTimeout: cfg.DrainTimeout, ConfirmAcks: cfg.Ack == "confirmed",
		Logger: log, Observer: observer,
	}
}

// fullTopology returns the deployment with the settings of its streams and consumers, for a worker with this number of devices.
func fullTopology(cfg *config.Config, devices int) topology.Topology {
	maxAckPending := cfg.MaxAckPending
	if maxAckPending == 0 {
		maxAckPending = inFlight(cfg, max(devices, 1)).MaxAckPending()
	}
	topo := deployment(cfg)
	topo.ResultIDs, topo.MaxDeliver, topo.AckWait = cfg.Result.IDs, cfg.MaxDeliver, cfg.AckWait
	topo.MaxAckPending, topo.AskedAckPending = maxAckPending, cfg.MaxAckPending
	topo.Storage, topo.Kept, topo.Trim = storage(cfg), kept(cfg), trimPolicy(cfg)
	if op := cfg.Stateful(); op != nil {
		topo.Stateful = op.Name()
		topo.Kept.Results = topo.Kept.Results.WithLog(logBytes(cfg) * int64(cfg.Partitions))
	}
	return topo
}

// kept returns the limits, replicas and storage of the streams that the worker creates.
func kept(cfg *config.Config) topology.Kept {
	k := topology.Kept{
		Trim: cfg.StreamRetention == "auto", AskedEverything: cfg.StreamRetention == "limits",
		Inputs:       topology.NewBounds(cfg.StreamMaxAge, int64(cfg.StreamMaxBytes)),
		Results:      topology.NewBounds(cfg.ResultMaxAge, int64(cfg.ResultMaxBytes)),
		DeadLetters:  topology.NewBounds(cfg.DeadletterMaxAge, int64(cfg.DeadletterMaxBytes)),
		Replicas:     cfg.ProvisionReplicas,
		AskedStorage: cfg.IsChanged("MILLRACE_PROVISION_STORAGE"),
	}
	for variable, asked := range map[string]*bool{
		"MILLRACE_STREAM_MAX_AGE": &k.Inputs.AskedAge, "MILLRACE_STREAM_MAX_BYTES": &k.Inputs.AskedBytes,
		"MILLRACE_RESULT_MAX_AGE": &k.Results.AskedAge, "MILLRACE_RESULT_MAX_BYTES": &k.Results.AskedBytes,
		"MILLRACE_DEADLETTER_MAX_AGE": &k.DeadLetters.AskedAge, "MILLRACE_DEADLETTER_MAX_BYTES": &k.DeadLetters.AskedBytes,
	} {
		*asked = cfg.IsChanged(variable)
	}
	return k
}

// trimPolicy returns the policy for the removal of processed inputs.
func trimPolicy(cfg *config.Config) trim.Policy {
	switch {
	case cfg.StreamTrim == "true":
		return trim.Always
	case cfg.StreamTrim == "false" || cfg.StreamRetention == "limits":
		return trim.Never
	}
	return trim.Auto
}

// exactlyOnce returns the setting for exactly-once storage of results with exclusive delivery.
func exactlyOnce(cfg *config.Config) topology.ExactlyOnce {
	return map[string]topology.ExactlyOnce{"required": topology.Required, "off": topology.Off}[cfg.ExactlyOnce] // auto is the zero value
}

// storage returns the storage type of the streams that the worker creates.
func storage(cfg *config.Config) jetstream.StorageType {
	if cfg.ProvisionStorage == "memory" {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// demoAge is the maximum age of messages in the streams of the demo. The demo removes these streams when it ends.
const demoAge = 24 * time.Hour

// demoStreams limits the streams of the demo by age alone, so any number of payloads fits.
func demoStreams(cfg *config.Config) {
	cfg.StreamMaxAge, cfg.ResultMaxAge, cfg.DeadletterMaxAge = demoAge, demoAge, demoAge
	cfg.StreamMaxBytes, cfg.ResultMaxBytes, cfg.DeadletterMaxBytes = 0, 0, 0
}
