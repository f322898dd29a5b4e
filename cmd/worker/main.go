// Command worker feeds a GPU from NATS: it pulls payloads from a JetStream stream, runs them through
// overlapping GPU pipelines, and publishes the results. See `worker help`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/ingest/embedded"
)

// Exit codes, for supervisors and scripts.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2  // bad usage or configuration; nothing was started
	exitLost   = 70 // the device is lost: start the process again
)

// command is one thing the worker can be told to do.
type command struct {
	name, short string
	run         func(ctx context.Context, args []string) error
}

// commands in the order in which help lists them. One without a description is for this program alone.
func commands() []command {
	return []command{
		{"run", "work: pull payloads, compute, publish results (what no command means)", runWorker},
		{"demo", "show the whole job on this machine, with nothing installed", runDemo},
		{"bench", "measure devices and the pipeline on them", runBench},
		{"plan", "say what a schedule takes, in slots or from what was measured", runPlan},
		{"check", "look at configuration, device, streams and consumer, and say what to do", runCheck},
		{"config", "list every variable, its default, its value now and its meaning", runConfig},
		{"version", "say which versions are at work", runVersion},
		{benchServer, "", runBenchServer},
	}
}

func main() {
	ctx := untilAsked()
	err := dispatch(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) && !errors.Is(err, errReported) {
		fmt.Fprintln(os.Stderr, "worker:", err)
	}
	os.Exit(exitCode(err))
}

// errReported ends a command that has said already what is wrong.
var errReported = errors.New("reported")

// usageError is a call that cannot be understood.
type usageError struct{ error }

func exitCode(err error) int {
	var usage usageError
	var bad *config.Error
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitDone
	case errors.As(err, &usage), errors.As(err, &bad):
		return exitUsage
	case errors.Is(err, device.ErrLost):
		return exitLost
	}
	return exitFailed
}

func dispatch(ctx context.Context, args []string) error {
	name := "run"
	if len(args) > 0 && (len(args[0]) == 0 || args[0][0] != '-') {
		name, args = args[0], args[1:]
	} else if len(args) > 0 && (args[0] == "-h" || args[0] == "--help" || args[0] == "-help") {
		name, args = "help", nil
	}
	if name == "help" {
		help(os.Stdout)
		return nil
	}
	for _, c := range commands() {
		if c.name == name {
			return c.run(ctx, args)
		}
	}
	help(os.Stderr)
	return usageError{fmt.Errorf("there is no command %q", name)}
}

func help(w io.Writer) {
	_, _ = fmt.Fprint(w, `Millrace feeds a GPU from NATS: payloads from a JetStream stream go through
overlapping GPU pipelines and come back as results.

Usage: worker [command] [flags]

`)
	for _, c := range commands() {
		if c.short == "" {
			continue
		}
		_, _ = fmt.Fprintf(w, "  %-9s %s\n", c.name, c.short)
	}
	server := "Without MILLRACE_NATS_URL the worker starts a NATS server of its own."
	if !embedded.Included {
		server = "MILLRACE_NATS_URL must be set: this build has no NATS server of its own."
	}
	_, _ = fmt.Fprintf(w, `
worker COMMAND -h says more of one. Everything else is set by environment
variables that begin with MILLRACE_: see worker config.

%s
Exit status: 0 done, 1 failed, 2 bad usage or configuration, 70 device lost.
`, server)
}

// flags makes the flag set of a command; about says what it does beyond its flags.
func flags(name, about string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.Usage = func() {
		_, _ = fmt.Fprintf(f.Output(), "Usage: worker %s [flags]\n\n%s\n", name, about)
		some := false
		f.VisitAll(func(*flag.Flag) { some = true })
		if some {
			_, _ = fmt.Fprintln(f.Output(), "\nFlags:")
			f.PrintDefaults()
		}
	}
	return f
}

// parse reads a command's flags; anything left over is an error.
func parse(f *flag.FlagSet, args []string) error {
	if err := parseFlags(f, args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return usageError{fmt.Errorf("%s takes flags only, not %q: see worker %s -h", f.Name(), f.Arg(0), f.Name())}
	}
	return nil
}

// parseFlags reads a command's flags and leaves what follows them in f.Args.
func parseFlags(f *flag.FlagSet, args []string) error {
	f.SetOutput(io.Discard) // an error is told once, by main
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		f.SetOutput(os.Stdout)
		f.Usage()
		return err
	case err != nil:
		return usageError{fmt.Errorf("%s: %w: see worker %s -h", f.Name(), err, f.Name())}
	}
	return nil
}
