package main

import (
	"context"
	"os"

	"millrace/internal/config"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/telemetry"
)

// debugPages returns the sources of the debug pages. It observes from now on whether the worker is ready.
func (a *app) debugPages() telemetry.Debug {
	watch := telemetry.NewWatch(a.health.Ready, nil)
	ctx, stop := context.WithCancel(context.Background())
	go watch.Run(ctx)
	go a.metrics.RecordJob(ctx, a.cfg.Delivery == "exclusive")
	a.onClose(func() error { stop(); return nil })
	return telemetry.Debug{
		Timeline: a.timeline, Build: build(), Stats: a.stats, Watch: watch, Feed: feedOf(a.cfg, a.url, os.Args[0]), CPU: a.onCPU(), Kept: a.metrics.Kept, Job: a.job,
		Bounds: telemetry.LiveBounds{Lanes: a.cfg.Lanes, Payloads: a.cfg.BatchPayloads, Bytes: int(a.cfg.BatchBytes)},
	}
}

// onCPU returns why the CPU computes, or NotOnCPU if it does not.
func (a *app) onCPU() telemetry.CPU {
	switch {
	case len(a.devices) == 0 || a.devices[0].Info().Kind != "host":
		return telemetry.NotOnCPU
	case a.cfg.Device == "host":
		return telemetry.CPUChosen
	}
	return telemetry.CPUFallback
}

// feedOf describes where payloads come from. url is the address of the server, and program is the path of the worker. The result
// holds no credentials: it names the variables that hold them.
func feedOf(cfg *config.Config, url, program string) telemetry.Feed {
	shown := natsconn.Redact(url)
	f := telemetry.Feed{Server: shown, Stream: cfg.Stream, Subjects: cfg.Subjects, Results: cfg.ResultStream, Login: logins(cfg)}
	if shown != url {
		f.Login = append(f.Login, "MILLRACE_NATS_URL")
	}
	f.Send, f.Follow = exchangeCommands(cfg, url, program)
	return f
}

// logins returns the names of the variables that are set and name a file with a part of the login.
func logins(cfg *config.Config) []string {
	var names []string
	for _, v := range []struct{ name, value string }{
		{"MILLRACE_NATS_CREDS", cfg.NATS.Creds}, {"MILLRACE_NATS_NKEY", cfg.NATS.NKey}, {"MILLRACE_NATS_TLS_CA", cfg.NATS.TLS.CA},
		{"MILLRACE_NATS_TLS_CERT", cfg.NATS.TLS.Cert}, {"MILLRACE_NATS_TLS_KEY", cfg.NATS.TLS.Key},
	} {
		if v.value != "" {
			names = append(names, v.name)
		}
	}
	return names
}
