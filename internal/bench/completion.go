package bench

import (
	"context"
	"fmt"

	"millrace/internal/device"
	"millrace/internal/streams"
)

const groupCompletion = "completion"

var completionSuite = deviceSuite(groupCompletion, Experiment{
	Rows: []Entry{
		{Name: "polling", Shows: "an almost empty batch; an event is polled without pause until the batch ends"},
		{Name: "blocking-event", Shows: "the same, waiting for an event that yields the processor"},
		{Name: "napping", Shows: "the same by adaptive polling, as the worker runs on a GPU unless a batch is small and alone"},
		{Name: "host-function", Shows: "the same by a host function that wakes a waiting goroutine, as the worker runs on a CPU"},
	},
	each: runCompletion,
})

// completionBytes is the payload of an almost empty batch.
const completionBytes = 64

// baselineRepeats is how often the baseline program repeats quick operations.
const baselineRepeats = 1000

func runCompletion(ctx context.Context, t *target) error {
	row := func(name, way string, completion streams.Completion, double func(device.Device) device.Device) *Case {
		schedule := streams.Overlapped
		schedule.Completion = completion
		c, f := t.single(name, Parse("crc32c"), completionBytes, schedule)
		f.cfg.Copies, f.double = false, double
		f.cfg.Spin = 0 // otherwise a lone batch would be polled first in every row
		if way != "" {
			c.baseline = t.ask(func() string {
				return fmt.Sprintf("completion way=%s repeats=%d", way, baselineRepeats)
			}).seconds(yardMedian)
		}
		return c
	}
	rows := []*Case{
		row("polling", "poll", streams.ByNotify, polling), row("blocking-event", "blocking", streams.ByNotify, blocking),
		row("napping", "", streams.ByAdaptivePolling, nil), row("host-function", "hostfunc", streams.ByNotify, nil),
	}
	if err := t.Measure(ctx, rows...); err != nil {
		return err
	}
	t.Report(rows...)
	return nil
}
