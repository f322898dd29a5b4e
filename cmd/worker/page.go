package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"millrace/internal/config"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/telemetry"
)

// debugPages returns the sources of the debug pages. It starts to observe the readiness and the progress of the worker.
func (a *app) debugPages() telemetry.Debug {
	watch := telemetry.NewWatch(a.health.Ready, nil)
	ctx, stop := context.WithCancel(context.Background())
	go watch.Run(ctx)
	go a.metrics.RecordJob(ctx, a.cfg.Delivery == "exclusive")
	a.onClose(func() error { stop(); return nil })
	return telemetry.Debug{
		Timeline: a.timeline, Build: build(), Stats: a.stats, Watch: watch, Feed: feedOf(a.cfg, a.url, os.Args[0]), CPU: a.onCPU(), Kept: a.metrics.Kept, States: a.metrics.States, Job: a.job,
		Bounds: telemetry.LiveBounds{Lanes: a.cfg.Lanes, Payloads: a.cfg.BatchPayloads, Bytes: int(a.cfg.BatchBytes)},
	}
}

// onCPU returns the reason why the CPU computes, or NotOnCPU.
func (a *app) onCPU() telemetry.CPU {
	switch {
	case len(a.devices) == 0 || a.devices[0].Info().Kind != "host":
		return telemetry.NotOnCPU
	case a.cfg.Device == "host":
		return telemetry.CPUChosen
	}
	return telemetry.CPUFallback
}

// feedOf describes the source of payloads. url is the address of the server, and program is the path of the worker. The
// result contains no credentials, only the names of the variables that hold them.
func feedOf(cfg *config.Config, url, program string) telemetry.Feed {
	shown := natsconn.Redact(url)
	f := telemetry.Feed{Server: shown, Stream: cfg.Stream, Subjects: cfg.Subjects, Results: cfg.ResultStream, Login: logins(cfg)}
	if shown != url {
		f.Login = append(f.Login, "MILLRACE_NATS_URL")
	}
	f.Send, f.Follow = exchangeCommands(cfg, url, program)
	return f
}

// logins returns the names of the set variables that name a file for the login.
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

// connectionName is the name of the worker's connections to NATS.
const connectionName = "millrace"

// Limits for the page's list of the workers that share partitions.
const (
	maxMembers       = 20
	maxPartitionText = 120 // maximum length of a list of partitions in bytes
)

// job returns the progress of this worker and the workers that share its stream's partitions.
func (a *app) job() telemetry.Job {
	j := a.metrics.Job()
	host, _ := os.Hostname() // without a host name, the process ID is enough
	j.Worker = telemetry.JobWorker{Host: host, Process: os.Getpid(), Connection: connectionName}
	if !a.joined.Load() {
		return j
	}
	shards := a.worker.Shards()
	j.Streams, j.Shards = len(shards), telemetry.JobShards(shards)
	if a.cfg.Delivery != "exclusive" {
		return j
	}
	j.Partitions = a.cfg.Partitions * len(shards)
	a.worker.Shares(func(_, name string, self bool, owns []int) {
		i := slices.IndexFunc(j.Members, func(m telemetry.JobMember) bool { return m.Name == name && m.Self == self })
		switch {
		case i >= 0: // the partitions of another shard
			j.Members[i].Owns += len(owns)
			j.Members[i].Partitions = ""
		case len(j.Members) < maxMembers:
			j.Members = append(j.Members, telemetry.JobMember{Name: name, Self: self, Owns: len(owns), Partitions: ranges(owns)})
		}
	})
	return j
}

// ranges returns ascending numbers as text of bounded length, such as "0-2, 5".
func ranges(numbers []int) string {
	var out strings.Builder
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		if out.Len() > maxPartitionText {
			return out.String() + " ..."
		}
		if i > 0 {
			out.WriteString(", ")
		}
		fmt.Fprint(&out, numbers[i])
		if last > i {
			fmt.Fprintf(&out, "-%d", numbers[last])
		}
		i = last + 1
	}
	return out.String()
}
