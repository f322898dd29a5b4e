// Command worker feeds a GPU from NATS. It pulls payloads from a JetStream stream, runs operators on them in overlapping GPU
// pipelines, and publishes the results. Users run it as a service. `worker help` lists its other commands.
//
// Start reading at the function commands, which lists the subcommands. run.go is `worker run`, and app.go assembles the worker
// from the internal packages: devices and pipelines (devices.go, pipeline.go, memory.go), NATS (nats.go), HTTP (http.go) and
// tracing (tracing.go). shutdown.go ends it, even if a device hangs.
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
	exitLost   = 70 // the device is lost; a supervisor restarts the process
)

// command is a subcommand of the worker.
type command struct {
	name, short string
	run         func(ctx context.Context, args []string) error
}

// commands lists the subcommands in the order of `worker help`. A command without a description is hidden from help, because only
// this program runs it.
func commands() []command {
	return []command{
		{"run", "pull payloads, compute and publish results (the default command)", runWorker},
		{"demo", "run everything on this machine, and check every result", runDemo},
		{"bench", "measure devices and pipelines", runBench},
		{"plan", "predict how long a schedule takes, in slots or from measurements", runPlan},
		{"check", "find problems of configuration, device, streams and consumer", runCheck},
		{"operator", "write, compile and test operators of your own", runOperator},
		{"config", "list every variable with its current value, default and meaning", runConfig},
		{"version", "print the versions of the worker, its libraries and the driver", runVersion},
		{benchServer, "", runBenchServer},
	}
}

func main() {
	ctx := untilSignal()
	err := dispatch(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) && !errors.Is(err, errReported) {
		fmt.Fprintln(os.Stderr, "worker:", err)
	}
	os.Exit(exitCode(err))
}

// errReported ends a command that has already printed what is wrong.
var errReported = errors.New("reported")

// usageError is an error in the command line or the configuration. The process ends with exitUsage.
type usageError struct{ error }

// Unwrap returns the error itself.
func (e usageError) Unwrap() error { return e.error }

// exitCode returns the exit code for the error of a command.
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

// dispatch runs the command that args name, or `worker run` if they name none.
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

// help writes the text of `worker help`.
func help(w io.Writer) {
	_, _ = fmt.Fprint(w, `Millrace feeds a GPU from NATS: it pulls payloads from a JetStream stream, runs
them through overlapping GPU pipelines, and publishes the results.

Usage: worker [command] [flags]

`)
	for _, c := range commands() {
		if c.short == "" {
			continue
		}
		_, _ = fmt.Fprintf(w, "  %-9s %s\n", c.name, c.short)
	}
	server := "If MILLRACE_NATS_URL is not set, the worker starts an embedded NATS server."
	if !embedded.Included {
		server = "MILLRACE_NATS_URL must be set: this build has no embedded NATS server."
	}
	_, _ = fmt.Fprintf(w, `
worker COMMAND -h describes a command. Environment variables that begin with
MILLRACE_ set everything else: see worker config.

%s
Exit status: 0 done, 1 failed, 2 bad usage or configuration, 70 device lost.
`, server)
}

// flags returns an empty flag set for a command. about describes the command in its help.
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

// parse parses a command's flags. It returns an error if other arguments follow them.
func parse(f *flag.FlagSet, args []string) error {
	if err := parseFlags(f, args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return usageError{fmt.Errorf("%s takes flags only, not %q: see worker %s -h", f.Name(), f.Arg(0), f.Name())}
	}
	return nil
}

// parseFlags parses a command's flags. The arguments that follow them are in f.Args.
func parseFlags(f *flag.FlagSet, args []string) error {
	f.SetOutput(io.Discard) // main prints the error
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
