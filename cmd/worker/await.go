package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/topology"
)

// A worker waits for NATS at its start, and again if the connection is lost later (adr/0045). The worker ends only
// after an error that persists until a user changes settings, credentials or streams.

// waitLine is the interval between log lines with the reason for the wait.
const waitLine = time.Minute

// notYet is an error that may go away while the worker waits.
type notYet struct{ error }

// Unwrap returns the wrapped error.
func (n notYet) Unwrap() error { return n.error }

// wait calls attempt until attempt succeeds or fails with an error other than notYet. When ctx ends, wait returns the
// context's error. It calls report with each notYet error, and with nil at the end.
func wait(ctx context.Context, log *slog.Logger, report func(why error), attempt func(context.Context) error) error {
	defer report(nil)
	var began, next time.Time // times of the first failed attempt and of the next log line
	for n := 1; ; n++ {
		err := attempt(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now := time.Now()
		if !errors.As(err, &notYet{}) {
			if err == nil && n > 1 {
				log.Info("NATS can be used now", "after", now.Sub(began).Round(time.Millisecond).String())
			}
			return err
		}
		report(err)
		if n == 1 {
			began, next = now, now
		}
		if !now.Before(next) {
			log.Warn("waiting for NATS: the worker starts as soon as it can", "for", now.Sub(began).Round(time.Second).String(), "error", err)
			next = next.Add(waitLine)
		}
		if !retry.Sleep(ctx, retry.Delay(n)) {
			return ctx.Err()
		}
	}
}

// awaitNATS calls wait with the log and the health checks of the app. With the embedded server, it calls attempt once.
func (a *app) awaitNATS(ctx context.Context, attempt func(context.Context) error) error {
	if a.server != nil {
		return attempt(ctx)
	}
	return wait(ctx, a.log, a.health.Waiting, attempt)
}

// dial opens one connection, which the app closes. It returns at once when ctx ends.
func (a *app) dial(ctx context.Context) (*nats.Conn, error) {
	type opened struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan opened, 1)
	go func() {
		nc, err := natsconn.Open(natsServer(a.cfg, a.url), connectionName, a.log, a.meter.Reconnected)
		done <- opened{nc, err}
	}()
	select {
	case o := <-done:
		if o.err != nil && !natsconn.Permanent(o.err) {
			return nil, notYet{o.err}
		}
		if o.err == nil {
			a.onClose(func() error { o.nc.Close(); return nil })
		}
		return o.nc, o.err
	case <-ctx.Done():
		go func() {
			if o := <-done; o.err == nil {
				o.nc.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// dialAll opens the connections that are not open yet.
func (a *app) dialAll(ctx context.Context) error {
	if a.nc == nil {
		nc, err := a.dial(ctx)
		if err != nil {
			return err
		}
		a.nc = nc
	}
	for len(a.options.More) < connections(a.cfg)-1 {
		nc, err := a.dial(ctx)
		if err != nil {
			return err
		}
		a.options.More = append(a.options.More, nc)
	}
	return nil
}

// orNotYet returns err. If the server is only temporarily unavailable, the result is a notYet error.
func (a *app) orNotYet(err error) error {
	if topology.Unavailable(err) && a.isPermitted() {
		return notYet{err}
	}
	return err
}

// isPermitted reports whether the last error of the connection isn't a missing permission. The server doesn't respond to
// a request without permission, so waiting doesn't help.
func (a *app) isPermitted() bool { return !errors.Is(a.nc.LastError(), nats.ErrPermissionViolation) }

// wrong returns the errors among findings as one error. If provisions is set, it ignores missing streams and consumers,
// which provisioning creates. If the server didn't answer a request, the result is a notYet error, because the findings
// may be wrong.
func (a *app) wrong(findings []finding.Finding, provisions bool) error {
	var errs []error
	unanswered := false
	for _, f := range findings {
		if f.Level != finding.Error || f.Missing && provisions {
			continue
		}
		errs = append(errs, errors.New(f.String()))
		unanswered = unanswered || f.Unanswered
	}
	err := errors.Join(errs...)
	if unanswered && a.isPermitted() {
		return notYet{err}
	}
	return err
}
