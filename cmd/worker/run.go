package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"millrace/internal/console"
)

func runWorker(ctx context.Context, args []string) (err error) {
	f := flags("run", "Pulls payloads from the input stream, computes, and publishes the results, until it is told to stop\n"+
		"(SIGTERM, Ctrl-C, or SIGHUP when its terminal closes: it finishes what it has; a second signal ends it at once).")
	progress := f.Bool("progress", false, "print a line a second on what it does")
	if err := parse(f, args); err != nil {
		return err
	}
	cfg, err := loadConfig(someServer)
	if err != nil {
		return err
	}
	outliveReaders()
	log := newLogger(cfg)
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	p := newPlant(cfg, log)
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.start(ctx, embeddedAddr, cfg.DataDir); err != nil {
		if ctx.Err() != nil {
			log.Info("stopped before the work began")
			return nil
		}
		return err
	}
	if *progress {
		defer p.showProgress()()
	}
	log.Info("working", "stream", cfg.Stream, "consumer", cfg.Consumer, "results", cfg.ResultStream)
	err = p.run(ctx)
	if err == nil {
		log.Info("stopped; everything in hand was finished or given back")
	}
	return err
}

// start puts everything in place, in the order in which parts need each other.
func (p *plant) start(ctx context.Context, addr, dir string) error {
	if err := p.openTracing(ctx); err != nil {
		return err
	}
	if err := p.openPipelines(); err != nil {
		return err
	}
	if err := p.startServer(addr, dir); err != nil {
		return err
	}
	if err := p.connect(ctx); err != nil {
		return err
	}
	return p.serve()
}

// run works until ctx is done and the drain is over, or something ends it.
func (p *plant) run(ctx context.Context) error {
	p.health.Started()
	context.AfterFunc(ctx, func() {
		now := time.Now()
		p.draining.Store(&now)
		p.health.Draining()
		p.log.Info("stopping: finishing what is in hand", "timeout", p.cfg.DrainTimeout.String())
	})
	return p.runToEnd(ctx)
}

// showProgress prints a line a second until stop is called.
func (p *plant) showProgress() (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		before, at := p.meter.Read(), time.Now()
		for {
			select {
			case now := <-tick.C:
				reading := p.meter.Read()
				_, _ = fmt.Fprintln(os.Stderr, console.Line(before, reading, now.Sub(at)))
				before, at = reading, now
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}
