package bench

import (
	"context"
)

const groupLatency = "latency"

var latencyExperiments = []experiment{{
	group: groupLatency,
	rows: []Entry{
		{Name: "streams", Shows: "one payload of 1 KiB on an idle device, from Append to its results, as the worker runs"},
		{Name: "persistent", Shows: "the same through a persistent kernel that takes payloads from a mailbox: no launch"},
	},
	run: runLatency,
}}

// latencyBytes is the payload, in bytes.
const latencyBytes = 1 << 10

func runLatency(ctx context.Context, t *target) error {
	for _, list := range []string{"crc32c", "crc32c," + minhashSpec} {
		ops := parse(list)
		through, f := t.single(groupLatency, "streams", ops, latencyBytes, t.schedule())
		f.cfg.Copies = false // as the worker runs, on a CPU too
		q := t.ask(request("launch", "kernels", len(ops), "bytes", latencyBytes, "repeats", yardRepeats))
		through.rival = q.answer(launchSeconds)
		rows := []*contender{through, t.persistent(ops, latencyBytes)}
		if err := t.race(ctx, rows...); err != nil {
			return err
		}
		t.finish(rows...)
	}
	return nil
}

// launchSeconds is the yardstick's latency of a small batch by plain stream calls.
func launchSeconds(a answer) (float64, error) {
	return a.number(yardLaunch)
}
