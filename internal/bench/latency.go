package bench

import (
	"context"
	"fmt"
)

const groupLatency = "latency"

var latencySuite = deviceSuite(groupLatency, Experiment{
	Rows: []Entry{
		{Name: "streams", Shows: "one payload of 1 KiB on an idle device, from Append to its results, as the worker runs"},
		{Name: "persistent", Shows: "the same through a persistent kernel that takes payloads from a mailbox: no launch"},
	},
	each: runLatency,
})

// latencyBytes is the payload, in bytes.
const latencyBytes = 1 << 10

func runLatency(ctx context.Context, t *target) error {
	for _, list := range []string{"crc32c", "crc32c," + minhashSpec} {
		ops := Parse(list)
		pipeline, f := t.single("streams", ops, latencyBytes, t.schedule())
		f.cfg.Copies = false // as the worker runs, on a CPU too
		pipeline.baseline = t.ask(func() string {
			return fmt.Sprintf("launch kernels=%d bytes=%d repeats=%d", len(ops), latencyBytes, baselineRepeats)
		}).seconds(yardLaunch)
		rows := []*Case{pipeline, t.persistent(ops, latencyBytes)}
		if err := t.Measure(ctx, rows...); err != nil {
			return err
		}
		t.Report(rows...)
	}
	return nil
}
