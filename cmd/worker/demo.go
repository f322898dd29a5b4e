package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/demo"
	"millrace/internal/ingest/embedded"
)

// Defaults of `worker demo`: enough to see it work in under a minute, on a CPU or on a GPU.
const (
	demoPayloadsHost = 3000
	demoPayloadsGPU  = 200000
	demoDebugAddr    = "127.0.0.1:6060"
)

func runDemo(ctx context.Context, args []string) (err error) {
	f := flags("demo", "Shows the whole job on this machine: a NATS server in this process, documents produced at full speed,\n"+
		"the worker, and a client that checks every result against the reference. Exit status 0 only if every\n"+
		"payload came back once and right. On a CPU batches are copied as a GPU must copy them, which `worker run` does not.")
	payloads := f.Int("payloads", 0, "how many documents; 0: 3000 on a CPU, 200000 on a GPU")
	seed := f.Uint64("seed", 1, "of the documents")
	timeline := f.String("timeline", "", "write the timeline of the last batches to this `file`, for Perfetto or chrome://tracing")
	if err := parse(f, args); err != nil {
		return err
	}
	if *payloads < 0 || *payloads > 1e9 {
		return usageError{fmt.Errorf("demo: --payloads is %d, want 1 to 1000000000, or 0 for the default", *payloads)}
	}
	cfg, err := demoConfig()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "millrace-demo-")
	if err != nil {
		return fmt.Errorf("demo: a folder for the server's files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	outliveReaders()
	log := newLogger(cfg)
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	p := newPlant(cfg, log)
	profile := &demo.Profile{}
	p.extra, p.copies = profile, true
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.start(ctx, "127.0.0.1:0", dir); err != nil {
		return err
	}
	if *payloads == 0 {
		*payloads = demoPayloadsHost
		if p.devices[0].Info().Kind == "cuda" {
			*payloads = demoPayloadsGPU
		}
	}
	d, err := demo.New(p.demoOptions(*payloads, *seed))
	if err != nil {
		return err
	}
	defer d.Close()
	return p.runDemo(ctx, d, profile, *payloads, *timeline)
}

// demoConfig is the configuration with the demo's own defaults: a server of its own whatever the
// environment says, quiet logs, ports that another worker does not have.
func demoConfig() (*config.Config, error) {
	if !embedded.Included {
		return nil, usageError{fmt.Errorf("demo: %w, and the demo runs on a server of its own: use a build without that tag", embedded.ErrLeftOut)}
	}
	cfg, err := loadConfig()
	if err != nil {
		return nil, err
	}
	if !cfg.Embedded() {
		return nil, usageError{errors.New("demo: MILLRACE_NATS_URL is set, and the demo runs on a server of its own: unset it")}
	}
	if !cfg.IsSet("MILLRACE_LOG_LEVEL") {
		cfg.LogLevel = slog.LevelWarn // the demo prints what matters itself
	}
	if !cfg.IsSet("MILLRACE_LOG_FORMAT") {
		cfg.LogFormat = "text" // whoever runs a demo reads it, terminal or not
	}
	if !cfg.IsSet("MILLRACE_HTTP_ADDR") {
		cfg.HTTPAddr = ""
	}
	if !cfg.IsSet("MILLRACE_DEBUG_ADDR") {
		cfg.DebugAddr = freeOr(demoDebugAddr)
	}
	cfg.Provision = true
	if !strings.HasSuffix(cfg.Subjects[0], ".>") {
		return nil, usageError{fmt.Errorf("demo: MILLRACE_SUBJECTS is %s, and the demo publishes on several subjects: unset it, "+
			"or let its first end in .>", cfg.Subjects)}
	}
	return cfg, nil
}

// freeOr is addr, or any free port of its host where another program has it: another demo, say.
func freeOr(addr string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		host, _, _ := net.SplitHostPort(addr)
		return net.JoinHostPort(host, "0")
	}
	_ = l.Close() // nothing was ever accepted
	return addr
}

func (p *plant) demoOptions(payloads int, seed uint64) demo.Options {
	first, _, _ := strings.Cut(p.cfg.Subjects[0], ".")
	return demo.Options{
		URL: p.url, Payloads: payloads, Seed: seed, InputPrefix: first,
		ResultStream: p.cfg.ResultStream, ResultPrefix: p.cfg.ResultPrefix, DeadLetterPrefix: p.cfg.DeadletterPrefix,
		Operators: p.options.Operators, Format: p.options.Format,
		Out: os.Stdout, Bar: console.IsTerminal(os.Stdout), Width: console.Width(os.Stdout),
	}
}

// runDemo runs the worker and the demo's clients side by side and reports.
func (p *plant) runDemo(ctx context.Context, d *demo.Demo, profile *demo.Profile, payloads int, timeline string) error {
	info := p.devices[0].Info()
	fmt.Printf("device %s (%s), %d lanes, operators %s, server %s\n", info.ID, info.Name, p.cfg.Lanes, p.cfg.Operators, p.url)
	if p.debugURL != "" {
		fmt.Printf("watch it at %s while it runs (--payloads makes it last)\n", p.debugURL)
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan error, 1)
	go func() { worked <- p.run(working) }()

	checking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		err := <-worked
		worked <- err
		cancel(err) // results do not come any more, if any are missing
	}()
	failed := d.Run(checking)
	if ctx.Err() != nil {
		failed = errors.New("demo: interrupted")
	}
	stop()
	err := errors.Join(failed, <-worked)
	if err == nil {
		err = d.Surplus(ctx)
	}
	return errors.Join(err, p.report(d, profile, payloads, timeline))
}

// report prints the tables and the timeline, and last the verdict.
func (p *plant) report(d *demo.Demo, profile *demo.Profile, payloads int, timeline string) error {
	fmt.Println()
	errs := []error{d.Report(profile, p.stats(), int(p.cfg.BatchBytes))}
	fmt.Println()
	errs = append(errs, p.timeline.RenderGantt(os.Stdout, console.Width(os.Stdout)))
	if timeline != "" {
		errs = append(errs, p.writeTimeline(timeline))
	}
	fmt.Printf("\nverified %d of %d results\n", d.Verified(), payloads)
	if d.Verified() != payloads {
		errs = append(errs, errors.New("demo: not every payload came back once and right"))
	}
	return errors.Join(errs...)
}

// writeTimeline writes all batches that are remembered as a trace.
func (p *plant) writeTimeline(file string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("demo: --timeline: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return p.timeline.WriteTrace(f, 0)
}
