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
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/device"
	"millrace/internal/filter"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/streams"
)

// checkPatience limits the time that the server may take to answer all requests.
const checkPatience = 15 * time.Second

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

func runCheck(ctx context.Context, asJSON bool) error {
	cfg, err := config.Load(findOperators, someServer)
	findings := checkConfig(cfg, err)
	findings = append(findings, checkTracing())
	if err == nil {
		findings = append(findings, checkFilter(cfg.ParsedFilter())...)
		devices, more := checkDevices(cfg)
		findings = append(findings, more...)
		findings = append(findings, checkPorts(cfg)...)
		ctx, cancel := context.WithTimeout(ctx, checkPatience)
		defer cancel()
		findings = append(findings, checkNATS(ctx, cfg, devices)...)
	}
	return report(findings, asJSON)
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

// checkFilter describes the filter, which is nil if there is none.
func checkFilter(f *filter.Filter) []finding.Finding {
	if f == nil {
		return nil
	}
	findings := []finding.Finding{{What: "filter", Found: "results have only records for which all of this is true: " + strings.Join(f.Conditions(), ", ")}}
	for _, missing := range f.Missing() {
		findings = append(findings, finding.Finding{Level: finding.Warning, What: "filter", Found: "the preset leaves out " + missing,
			Advice: "if you need this filter, set the parameter that is named here, or run the filter elsewhere"})
	}
	return findings
}

// opened has the properties of the devices that later checks need.
type opened struct {
	count  int             // number of devices
	budget *memory.Process // nil if the devices can't be opened
	states topology.States // zero if it is unknown
}

// checkDevices opens the devices as the worker does, creates a pipeline on each, and closes everything.
func checkDevices(cfg *config.Config) (o opened, findings []finding.Finding) {
	devices, fellBack, err := openDevicesReporting(cfg, slog.New(slog.DiscardHandler), openHost, func(err error) {
		findings = append(findings, finding.Finding{Level: finding.Warning, What: "device " + cfg.Device,
			Found: fmt.Sprintf("a GPU is left out: %v", err), Advice: "name the GPUs to use in MILLRACE_DEVICES"})
	})
	if err != nil {
		return opened{count: 1}, []finding.Finding{{Level: finding.Error, What: "device " + cfg.Device, Found: err.Error(),
			Advice: "install the driver and set MILLRACE_KERNELS, or set MILLRACE_DEVICE=host"}}
	}
	if fellBack {
		_, reason := openGPUs(cfg, func(error) {})
		findings = append(findings, finding.Finding{Level: finding.Warning, What: "device auto",
			Found: fmt.Sprintf("no GPU, the CPU computes: %v", reason), Advice: "set MILLRACE_DEVICE=host if that is intended"})
	}
	o = opened{count: len(devices), budget: memory.NewProcess(int64(cfg.MemoryLimit), cfg.Embedded())}
	partition := partitionState(cfg, devices)
	for _, d := range devices {
		findings = append(findings, checkPipeline(cfg, d, o.budget))
	}
	if o.budget.Limit > 0 && o.budget.Payloads == 0 {
		return o, append(findings, memoryFinding(o.budget)) // too little memory even without states
	}
	state, err := stateSettings(cfg, o.budget, devices, partition)
	if err != nil {
		findings = append(findings, finding.Finding{Level: finding.Error, What: "memory for states", Found: err.Error(),
			Advice: "raise the memory limit, or lower MILLRACE_STATE_BYTES"})
	} else {
		o.states = stateSizes(cfg, state, partition.Device, o.count)
	}
	return o, append(findings, memoryFinding(o.budget))
}

// checkPipeline creates a pipeline on d, checks that d computes correctly, and closes both.
func checkPipeline(cfg *config.Config, d device.Device, budget *memory.Process) finding.Finding {
	info := d.Info()
	what := "device " + info.ID
	o := pipelineConfig(cfg, info, cfg.ParsedOperators(), nil)
	o.Admit = admit(budget, info.Kind)
	pipe, err := streams.New(d, o)
	if err != nil {
		err = explainMemory(budget, err)
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

// checkNATS checks credentials, server, streams and consumer. It also checks that the memory is enough for the server's
// messages.
func checkNATS(ctx context.Context, cfg *config.Config, devices opened) []finding.Finding {
	if cfg.Embedded() {
		findings := checkMessages(cfg, devices, embedded.MaxPayload, jetstream.ConsumerConfig{}, len(cfg.Patterns()))
		topo := ingestOptions(cfg, slog.New(slog.DiscardHandler), nil, nil).Topology
		return append(append(findings, topology.InspectStates(topo, devices.states)...), checkEmbedded(cfg))
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
	findings = append(findings, checkShards(ctx, cfg, nc, devices)...)
	if cfg.Provision {
		for i := range findings {
			if findings[i].Missing {
				findings[i].Level, findings[i].Advice = finding.Warning, "MILLRACE_PROVISION is set: the worker creates it when it starts"
			}
		}
	}
	return topology.ExplainCommands(findings)
}

// checkShard checks the streams and consumers of a shard.
func checkShard(ctx context.Context, cfg *config.Config, nc *nats.Conn, devices opened) []finding.Finding {
	options := ingestOptions(cfg, slog.New(slog.DiscardHandler), nil, nil)
	topo := options.Topology
	findings := topology.Inspect(ctx, nc, topo, use(cfg, devices.count, devices.states))
	findings = append(findings, checkStates(ctx, cfg, nc, topo)...)
	return append(findings, checkField(ctx, cfg, nc, &options)...)
}

// checkStates compares the settings of states with the settings of the states in the result stream.
func checkStates(ctx context.Context, cfg *config.Config, nc *nats.Conn, t topology.Topology) []finding.Finding {
	js, err := t.API.New(nc)
	if err != nil {
		return nil // topology.Inspect reports the same error
	}
	return lease.InspectSpec(ctx, js, t, stateOptions(cfg))
}

// checkEmbedded checks that the embedded server can start.
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

// checkMessages returns a finding if the worker would refuse to start for lack of memory. The memory must hold the
// largest message, the largest frame, and the messages that the worker prefetches from its streams. c is zero if there is no consumer yet.
func checkMessages(cfg *config.Config, devices opened, maxPayload int64, c jetstream.ConsumerConfig, streams int) []finding.Finding {
	if devices.budget == nil || devices.budget.Payloads == 0 { // another finding has the reason
		return nil
	}
	options := ingestOptions(cfg, slog.New(slog.DiscardHandler), nil, nil)
	options.Memory, options.Shards, options.Many = devices.budget.Payloads, streams, cfg.IsMany()
	err := options.CheckMemory(maxPayload, c, devices.count, connections(cfg), int(cfg.BatchBytes))
	var little *memory.Error
	if !errors.As(err, &little) {
		return nil
	}
	return []finding.Finding{{Level: finding.Error, What: "memory for payloads", Found: "too little memory: " + little.Found, Advice: little.Advice}}
}

// checkPorts reports whether the worker can listen on the addresses of its HTTP servers. A taken port is only a
// warning, because a running worker, for example in the same pod, may use that port.
func checkPorts(cfg *config.Config) (findings []finding.Finding) {
	for _, a := range []struct{ variable, address string }{{"MILLRACE_HTTP_ADDR", cfg.HTTPAddr}, {"MILLRACE_DEBUG_ADDR", cfg.DebugAddr}} {
		if a.address == "" {
			continue
		}
		f := finding.Finding{What: a.variable, Found: fmt.Sprintf("the worker can listen on %s", a.address)}
		l, err := net.Listen("tcp", a.address)
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			f.Level, f.Found = finding.Warning, err.Error()
			f.Advice = "a worker that starts now fails; if none is running here, set another port in " + a.variable
		}
		findings = append(findings, f)
	}
	return findings
}

// checked is the output of `worker check --json`.
type checked struct {
	Findings []finding.Finding `json:"findings"`
	Errors   int               `json:"errors"`
	Warnings int               `json:"warnings"`
}

// report prints the findings, as JSON or as text. It returns errReported if one of them is an error.
func report(findings []finding.Finding, asJSON bool) (err error) {
	all, columns := checked{Findings: findings}, 0
	if console.IsTerminal(os.Stdout) {
		columns = width(os.Stdout)
	}
	for _, f := range findings {
		switch f.Level {
		case finding.Error:
			all.Errors++
		case finding.Warning:
			all.Warnings++
		}
		if !asJSON {
			fmt.Print(foundText(f, columns))
		}
	}
	if asJSON {
		err = writeJSON(os.Stdout, all)
	} else {
		fmt.Printf("\n%s: %s, %s\n", counted(len(findings), "finding"), counted(all.Errors, "error"), counted(all.Warnings, "warning"))
	}
	if err == nil && all.Errors > 0 {
		err = errReported
	}
	return err
}

// counted returns a number with a noun. The noun is in the plural unless the number is 1.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return console.Count(int64(n)) + " " + noun + "s"
}

// foundText returns a finding and its advice as text, wrapped at columns. If columns is 0, it returns one line for
// each.
func foundText(f finding.Finding, columns int) string {
	found, advice := f.What+": "+f.Found, "-> "+f.Advice
	const indent = 9
	if columns > 0 {
		found, advice = strings.TrimSpace(console.Wrap(found, columns, indent)), strings.TrimSpace(console.Wrap(advice, columns, indent))
	}
	text := fmt.Sprintf("%-8s %s\n", f.Level, found)
	if f.Advice != "" {
		text += fmt.Sprintf("%-8s %s\n", "", advice)
	}
	return text
}
