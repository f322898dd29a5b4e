package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/ingest"
	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/topology"
	"millrace/internal/ingest/trim"
	"millrace/internal/streams"
)

// checkPatience limits how long the server may take to answer all requests.
const checkPatience = 15 * time.Second

// checkCommand returns `worker check`.
func checkCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "check", Short: "find problems of configuration, device, memory, ports, streams and consumer",
		Long: "Checks configuration, device, kernel library, memory, ports, streams and consumer. It reports each finding as ok, warning or error, with how " +
			"to fix it. It changes nothing. Exit status 1 if there is an error.",
		Args: flagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCheck(cmd.Context(), asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON, for programs")
	return c
}

// runCheck implements `worker check`.
func runCheck(ctx context.Context, asJSON bool) error {
	cfg, err := config.Load(findOperators, someServer)
	findings := checkConfig(cfg, err)
	findings = append(findings, checkTracing())
	if err == nil {
		devices, budget, more := checkDevices(cfg)
		findings = append(findings, more...)
		findings = append(findings, checkPorts(cfg)...)
		ctx, cancel := context.WithTimeout(ctx, checkPatience)
		defer cancel()
		findings = append(findings, checkNATS(ctx, cfg, devices, budget)...)
	}
	if asJSON {
		return reportJSON(findings)
	}
	return report(findings)
}

// checkConfig reports the problems and warnings of the configuration.
func checkConfig(cfg *config.Config, err error) []finding.Finding {
	var findings []finding.Finding
	var bad *config.Error
	switch {
	case errors.As(err, &bad):
		for _, p := range bad.Problems {
			findings = append(findings, finding.Finding{
				Level: finding.Error, What: p.Variable, Found: fmt.Sprintf("%q: %s", p.Value, p.What), Advice: p.Do,
			})
		}
	case err != nil:
		findings = append(findings, finding.Finding{Level: finding.Error, What: "configuration", Found: err.Error(), Advice: "see worker config"})
	default:
		findings = append(findings, finding.Finding{What: "configuration", Found: "every variable is valid"})
	}
	for _, w := range cfg.Warnings() {
		findings = append(findings, finding.Finding{Level: finding.Warning, What: "configuration", Found: w, Advice: "see worker config"})
	}
	return findings
}

// checkDevices opens the devices as the worker does, creates a pipeline on each, and closes everything. It returns the number of
// devices, and how the memory is divided; nil if that is unknown.
func checkDevices(cfg *config.Config) (count int, budget *memoryBudget, findings []finding.Finding) {
	devices, fellBack, err := openDevicesReporting(cfg, slog.New(slog.DiscardHandler), openHost, func(err error) {
		findings = append(findings, finding.Finding{Level: finding.Warning, What: "device " + cfg.Device,
			Found: fmt.Sprintf("a GPU is left out: %v", err), Advice: "name the GPUs to use in MILLRACE_DEVICES"})
	})
	if err != nil {
		return 1, nil, []finding.Finding{{Level: finding.Error, What: "device " + cfg.Device, Found: err.Error(),
			Advice: "install the driver and set MILLRACE_KERNELS, or set MILLRACE_DEVICE=host"}}
	}
	if fellBack {
		_, reason := openGPUs(cfg, func(error) {})
		findings = append(findings, finding.Finding{Level: finding.Warning, What: "device auto",
			Found: fmt.Sprintf("no GPU, the CPU computes: %v", reason), Advice: "set MILLRACE_DEVICE=host if that is intended"})
	}
	budget = newMemoryBudget(cfg)
	for _, d := range devices {
		findings = append(findings, checkPipeline(cfg, d, budget))
	}
	return len(devices), budget, append(findings, budget.finding())
}

// checkPipeline creates a pipeline on d, checks that d computes correctly, and closes both.
func checkPipeline(cfg *config.Config, d device.Device, budget *memoryBudget) finding.Finding {
	info := d.Info()
	what := "device " + info.ID
	c := pipelineConfig(cfg, info, cfg.ParsedOperators(), nil)
	c.Admit = budget.admit(info.Kind)
	pipe, err := streams.New(d, c)
	if err != nil {
		err = budget.explain(err)
		return finding.Finding{Level: finding.Error, What: what, Found: errors.Join(err, d.Close()).Error(),
			Advice: "lower MILLRACE_LANES, MILLRACE_BATCH_BYTES or MILLRACE_BATCH_PAYLOADS"}
	}
	if err := pipe.Probe(context.Background()); err != nil {
		return finding.Finding{Level: finding.Error, What: what, Found: errors.Join(err, pipe.Close(), d.Close()).Error(),
			Advice: "check the node's kernel log (Xid) and nvidia-smi; use another GPU"}
	}
	stats, err := pipe.Stats()
	scratch := pipe.ScratchInstead()
	if err = errors.Join(err, pipe.Close(), d.Close()); err != nil {
		return finding.Finding{Level: finding.Error, What: what, Found: err.Error(), Advice: "report this as a bug"}
	}
	if scratch != nil {
		return finding.Finding{Level: finding.Warning, What: what, Found: fmt.Sprintf("%s: scratch is preallocated: %v", info.Name, scratch),
			Advice: "update the driver if it is old; the worker also runs without a pool"}
	}
	return finding.Finding{What: what, Found: fmt.Sprintf("%s, %d lanes, %d MiB pinned", info.Name, cfg.Lanes, stats.Pinned>>20)}
}

// checkNATS checks credentials, server, streams, consumer, and whether the memory is enough for the server's messages.
func checkNATS(ctx context.Context, cfg *config.Config, devices int, budget *memoryBudget) []finding.Finding {
	if cfg.Embedded() {
		return append(checkMessages(cfg, budget, devices, ownServer{}, jetstream.ConsumerConfig{}), checkEmbedded(cfg))
	}
	log := slog.New(slog.DiscardHandler)
	target := natsServer(cfg, cfg.NATS.URL.String())
	findings := target.Inspect(time.Now())
	if slices.ContainsFunc(findings, func(f finding.Finding) bool { return f.Level == finding.Error }) {
		return findings // a connection attempt would fail
	}
	nc, err := natsconn.Open(target, "millrace-check", log, func() {})
	if err != nil {
		return append(findings, finding.Finding{Level: finding.Error, What: "NATS", Found: err.Error(), Advice: "fix that, then check again"})
	}
	defer nc.Close()
	topo := ingestOptions(cfg, log, noObserver{}, nil).Topology
	findings = append(findings, checkMessages(cfg, budget, devices, nc, ingest.ConsumerSettings(ctx, nc, topo))...)
	findings = append(findings, topology.Inspect(ctx, nc, topo, use(cfg, devices))...)
	if cfg.Provision {
		for i := range findings {
			if findings[i].Missing {
				findings[i].Level, findings[i].Advice = finding.Warning, "MILLRACE_PROVISION is set: the worker creates it when it starts"
			}
		}
	}
	return topology.ExplainCommands(findings)
}

// checkEmbedded checks that the embedded server could start.
func checkEmbedded(cfg *config.Config) finding.Finding {
	what := "embedded NATS server"
	l, err := net.Listen("tcp", embeddedAddr)
	if err != nil {
		return finding.Finding{Level: finding.Error, What: what, Found: err.Error(),
			Advice: "another program listens there: set MILLRACE_NATS_URL=nats://" + embeddedAddr + " to use it"}
	}
	dir, err := filepath.Abs(cfg.DataDir)
	err = errors.Join(err, l.Close())
	if err == nil {
		err = writable(dir)
	}
	if err != nil {
		return finding.Finding{Level: finding.Error, What: what, Found: err.Error(), Advice: "set MILLRACE_DATA_DIR to a writable folder"}
	}
	return finding.Finding{What: what, Found: fmt.Sprintf("MILLRACE_NATS_URL is not set: the worker would start a server on %s with its files in %s", embeddedAddr, dir)}
}

// writable returns an error if dir is not writable. If dir does not exist, it checks the nearest existing parent.
func writable(dir string) error {
	for {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	f, err := os.CreateTemp(dir, ".millrace-check-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// noObserver is an ingest.Observer that ignores everything.
type noObserver struct{}

func (noObserver) Settled(inflight.Outcome, int, int, time.Duration, time.Duration) {}
func (noObserver) Frame(inflight.FrameStats)                                        {}
func (noObserver) OperatorFault(inflight.OperatorFault)                             {}
func (noObserver) DeadLettered(inflight.DeadLetter)                                 {}
func (noObserver) PayloadLeftOut()                                                  {}
func (noObserver) Stalled(int)                                                      {}
func (noObserver) Trim(uint64, trim.State)                                          {}
func (noObserver) Restarted()                                                       {}
func (noObserver) Redelivered()                                                     {}
func (noObserver) Pending(uint64)                                                   {}
func (noObserver) Unacknowledged(uint64)                                            {}
func (noObserver) Reconnected()                                                     {}
