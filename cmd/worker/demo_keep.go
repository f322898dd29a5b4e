package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"millrace/internal/demo"
)

// errInterrupted is the error of a demo that ended before all results were there, because a signal ended it.
var errInterrupted = errors.New("demo: interrupted")

// interrupted returns err, or errInterrupted if a signal ended the demo. It then says so at once, because the worker may take a while to
// finish its batches.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "demo: interrupted: finishing the batches in flight (another Ctrl-C ends it at once)")
	return errInterrupted
}

// settleTime limits how long keepDemo waits until the worker has settled its last batches.
const settleTime = 10 * time.Second

// keepDemo prints the report while the worker goes on, and then waits until ctx is done. It writes to standard error, so that the report
// ends standard output as it does without --keep.
func (a *app) keepDemo(ctx context.Context, d *demo.Demo, report func() error) error {
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	err := errors.Join(a.awaitSettled(settling), d.Surplus(settling), report())
	page := ""
	if a.debugURL != "" {
		page = "the timeline page at " + a.debugURL + " and "
	}
	send, results := exchangeCommands(a.cfg, a.url, os.Args[0])
	fmt.Fprintf(os.Stderr, "\nkept: %sthe server at %s run until Ctrl-C\nsend a payload:  %s\nsee its result:  %s\n", page, a.url, send, results)
	<-ctx.Done()
	return err
}

// awaitSettled waits until the worker holds no batch. It returns an error if ctx is done before.
func (a *app) awaitSettled(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for a.worker.Status().InHand > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("demo: the worker has not settled its last batches within %v", settleTime)
		}
	}
	return nil
}
