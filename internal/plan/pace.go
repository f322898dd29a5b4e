package plan

import (
	"context"
	"time"

	"millrace/internal/device/sim"
	"millrace/internal/streams"
)

// pace describes a course in steady state.
type pace struct {
	batch time.Duration               // interval between two completions
	busy  [streams.NumEngines]float64 // share of the time that each engine is busy
	host  float64                     // share of the time that the host submits
}

// model returns the device model for batches of that size.
func (f *Fitted) model(bytes int) sim.Model {
	stage := func(e streams.Engine) sim.Cost {
		return sim.Cost{Latency: max(timeOf(f.Stages[e], bytes)-f.DispatchWithin, 0)}
	}
	return sim.Model{
		CopyIn: stage(streams.CopyInEngine), Kernel: stage(streams.ComputeEngine), CopyOut: stage(streams.CopyOutEngine),
		CopyShare: f.CopyShare, ComputeShare: f.ComputeShare,
		Dispatch: f.Dispatch + f.DispatchWithin, Completion: f.Completion, Synchronize: f.Synchronize,
	}
}

// A course is in steady state once each buffer has been used several times. Its pace is measured over whole rounds of
// all buffers, so that the starting point within a round doesn't matter, and only while more batches follow: after the
// last submission, the remaining batches complete faster than the host could submit.
const (
	warmRounds  = 3
	minWarm     = 16 // batches
	minMeasured = 64 // batches
)

// pace runs batches of that size until the pace is steady.
func (f *Fitted) pace(ctx context.Context, bytes int, schedule streams.Schedule, lanes int) (pace, error) {
	_, p, err := course{cost: f.model(bytes), schedule: schedule, lanes: lanes, host: f.Host}.steady(ctx)
	return p, err
}

// steady runs as many batches as are needed to measure the pace. It returns the pace and the records of the measured
// batches.
func (c course) steady(ctx context.Context) ([]streams.Record, pace, error) {
	if c.schedule.Lanes > 0 {
		c.lanes = c.schedule.Lanes
	}
	slots := c.lanes * c.schedule.Buffers
	warm := max(warmRounds*slots, minWarm)
	measured := (minMeasured + slots - 1) / slots * slots
	c.batches = warm + measured + slots
	out, err := c.run(ctx)
	if err != nil {
		return nil, pace{}, err
	}
	return out.records[warm : warm+measured], out.pace(warm-1, warm+measured-1, c.host), nil
}

// pace returns the pace between the completions of the batches with indexes from and to.
func (o *outcome) pace(from, to int, host time.Duration) (p pace) {
	start, end := o.back[from], o.back[to]
	batches := to - from
	whole := max(end-start, 1)
	p.batch = whole / time.Duration(batches)
	p.host = float64(host) * float64(batches) / float64(whole)
	for _, s := range o.spans {
		part := min(s.End, end) - max(s.Start, start)
		if part <= 0 {
			continue
		}
		switch share := float64(part) / float64(whole); s.Engine {
		case sim.CopyInEngine:
			p.busy[streams.CopyInEngine] += share
		case sim.ComputeEngine:
			p.busy[streams.ComputeEngine] += share
		case sim.CopyOutEngine:
			p.busy[streams.CopyOutEngine] += share
		}
	}
	return p
}

// bottleneck returns the engine with the largest share of busy time, or the host.
func (p pace) bottleneck() (name string, busy float64) {
	name, busy = "host", p.host
	for e, b := range p.busy {
		if b > busy {
			name, busy = streams.Engine(e).String(), b
		}
	}
	return name, busy
}
