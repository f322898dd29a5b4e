package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends when a signal asks the process to stop: SIGTERM, SIGINT (Ctrl-C), or SIGHUP, which a
// closing terminal sends. A second signal ends the process at once. If the process was started with SIGHUP ignored, as nohup does,
// it keeps ignoring SIGHUP.
func untilSignal() context.Context {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop)
	return ctx
}

// outliveReaders keeps the process running when the reader of its output ends first, as a program behind a pipe may. By default,
// SIGPIPE ends a Go program at its first write to such a pipe, even in the middle of a drain.
func outliveReaders() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // nothing receives: the write returns an error
}
