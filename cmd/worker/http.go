package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"millrace/internal/device"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

// serve starts the HTTP servers. Until the worker runs, /readyz reports "starting" and the reason for the wait.
func (a *app) serve() error {
	a.health = telemetry.NewHealth(telemetry.HealthOptions{Work: a.work, Connected: a.connected, Stalled: func() error { return a.worker.Stalled() }})
	a.metrics.WatchConnected(a.connected)
	if addr := a.cfg.HTTPAddr; addr != "" {
		if _, err := a.listen("metrics and health", addr, "MILLRACE_HTTP_ADDR", telemetry.Handler(a.metrics, a.health)); err != nil {
			return err
		}
	}
	if addr := a.cfg.DebugAddr; addr != "" {
		server, err := a.listen("debug pages", addr, "MILLRACE_DEBUG_ADDR", telemetry.DebugHandler(a.debugPages()))
		if err != nil {
			return err
		}
		a.debugURL = httpURL(server.Addr())
	}
	return nil
}

// listen starts an HTTP server for handler on addr, which is the value of variable. The parameter what is the server's
// name in the log. The app closes the server.
func (a *app) listen(what, addr, variable string, handler http.Handler) (*telemetry.Server, error) {
	server, err := telemetry.Listen(addr, variable, handler, a.log)
	if err != nil {
		return nil, err
	}
	a.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return server.Close(ctx)
	})
	a.log.Info("serving "+what, "address", httpURL(server.Addr()))
	return server, nil
}

func httpURL(addr net.Addr) string { return fmt.Sprintf("http://%s/", addr) }

// work returns the state of the worker and of each device, for health checks. The parts are separate, so a working
// device does not hide a device that hangs.
func (a *app) work() []telemetry.Work {
	var work []telemetry.Work
	if a.joined.Load() {
		status := a.worker.Status()
		work = append(work, telemetry.Work{Name: "worker", InHand: status.InHand, Progress: status.Progress, AckWait: status.AckWait, HeldBack: status.HeldBack})
	}
	for i, pipe := range a.pipes {
		work = append(work, deviceWork(a.devices[i], pipe))
	}
	return work
}

func deviceWork(d device.Device, pipe *streams.Pipeline) telemetry.Work {
	w := telemetry.Work{Name: d.Info().ID, Lost: d.Err()}
	if err := pipe.Err(); w.Lost == nil && errors.Is(err, device.ErrLost) {
		w.Lost = err // only the pipeline detects that the device hangs or returns wrong results
	}
	if f := pipe.Oldest(); f.Bound > 0 {
		w.InHand, w.Age, w.Bound = 1+f.Others, f.Age, f.Bound
	}
	return w
}
