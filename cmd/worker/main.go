// Command worker feeds a GPU from NATS. It pulls payloads from a JetStream stream, runs operators on them in
// overlapping GPU pipelines, and publishes the results. Users run it as a service. `worker help` lists its other
// commands.
//
// Start reading at the function newRoot, which lists the subcommands. run.go implements `worker run`. app.go assembles
// the worker from devices and pipelines (devices.go, memory.go), NATS (nats.go), HTTP (http.go) and tracing
// (tracing.go). shutdown.go ends the worker, even if a device hangs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"millrace/internal/config"
	"millrace/internal/device"
)

// Exit codes, for supervisors and scripts.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2  // bad usage or configuration; nothing was started
	exitLost   = 70 // the device is lost; a supervisor restarts the process
)

func main() {
	ctx := untilSignal()
	err := dispatch(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, errReported) {
		fmt.Fprintln(os.Stderr, "worker:", err)
	}
	os.Exit(exitCode(err))
}

// dispatch runs the command that args name, or `worker run` if they name none.
func dispatch(ctx context.Context, args []string) error {
	root, begun := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !*begun {
		return usageError{err} // an error of the command line
	}
	return err
}

// errReported is the error of a command that has already printed its errors.
var errReported = errors.New("reported")

// usageError is an error in the command line or the configuration. The process ends with exitUsage.
type usageError struct{ error }

// Unwrap returns the wrapped error.
func (u usageError) Unwrap() error { return u.error }

// exitCode returns the exit code for the error of a command.
func exitCode(err error) int {
	var usage usageError
	var bad *config.Error
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage), errors.As(err, &bad):
		return exitUsage
	case errors.Is(err, device.ErrLost):
		return exitLost
	}
	return exitFailed
}

// untilSignal returns a context that ends when the process receives SIGTERM, SIGINT (Ctrl-C), or SIGHUP, which a
// closing terminal sends. A second signal ends the process at once. If the process was started with SIGHUP ignored, as
// nohup does, it keeps ignoring SIGHUP.
func untilSignal() context.Context {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop)
	return ctx
}

// outliveReaders keeps the process running after the reader of its output has ended, such as a program behind a pipe. By
// default, a write to a broken pipe on standard output or standard error ends a Go program, even during a drain.
func outliveReaders() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // nothing receives from the channel; the write returns an error
}
