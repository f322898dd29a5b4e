package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilAsked is done once a signal asks the process to stop: SIGTERM, SIGINT (Ctrl-C), or SIGHUP, which comes when the terminal
// closes. A second signal ends the process at once. A process that was started with SIGHUP ignored, by nohup, goes on ignoring it.
func untilAsked() context.Context {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop)
	return ctx
}

// outliveReaders has the process go on when nobody reads its output any more: what a terminal piped it into may end before it.
// By default the first line to such a pipe ends a Go program, in the middle of a drain.
func outliveReaders() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // never received from: the write fails, and that is all
}
