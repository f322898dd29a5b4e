package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"millrace/internal/config"
	"millrace/internal/console"
)

func runCommand() *cobra.Command {
	progress := false
	c := &cobra.Command{
		Use: "run", Short: "pull payloads, compute and publish results (the default command)",
		Long: "Pulls payloads from the input stream, computes, and publishes the results until it is told to stop (SIGTERM, Ctrl-C, or SIGHUP when its " +
			"terminal closes). It then finishes the payloads that it holds. A second signal ends it at once.",
		Args: flagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return runWorker(cmd.Context(), progress) },
	}
	c.Flags().BoolVar(&progress, "progress", false, "print a line of progress every second")
	return c
}

func runWorker(ctx context.Context, progress bool) (err error) {
	cfg, err := config.Load(findOperators, someServer)
	defer func() { err = logFailure(cfg, err) }()
	if err != nil {
		return err
	}
	outliveReaders()
	log := newLogger(cfg)
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	a := newApp(cfg, log)
	defer func() { err = errors.Join(err, a.close()) }()
	if err := a.start(ctx, embeddedAddr, cfg.DataDir); err != nil {
		if ctx.Err() != nil {
			log.Info("stopped before the work began")
			return nil
		}
		return err
	}
	if progress {
		defer a.showProgress()()
	}
	log.Info("working", "stream", cfg.Stream, "consumer", cfg.Consumer, "results", cfg.ResultStream)
	a.logCommands()
	err = a.run(ctx)
	if err == nil {
		log.Info("stopped: every payload was finished or given back")
	}
	return err
}

// run runs the worker until it has drained after ctx is done, or until an error ends it.
func (a *app) run(ctx context.Context) error {
	a.health.Started()
	context.AfterFunc(ctx, func() {
		now := time.Now()
		a.draining.Store(&now)
		a.health.Draining()
		a.log.Info("stopping: finishing the payloads in flight", "timeout", a.cfg.DrainTimeout.String())
	})
	return a.runToEnd(ctx)
}

// showProgress prints a line of progress every second until stop is called.
func (a *app) showProgress() (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		before, at := a.meter.Read(), time.Now()
		for {
			select {
			case now := <-tick.C:
				reading := a.meter.Read()
				_, _ = fmt.Fprintln(os.Stderr, console.Line(before, reading, now.Sub(at)))
				before, at = reading, now
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}
