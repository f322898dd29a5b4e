package bench

import (
	"context"

	"millrace/internal/streams"
)

const groupCompletion = "completion"

var completionExperiments = []experiment{{
	group: groupCompletion,
	rows: []Entry{
		{Name: "polling", Shows: "an almost empty batch, its end found by asking an event again and again"},
		{Name: "blocking-event", Shows: "the same, by waiting for an event that gives the processor away"},
		{Name: "napping", Shows: "the same, by asking with naps in between, as the worker runs on a GPU what is not small and alone"},
		{Name: "host-function", Shows: "the same, by a host function that wakes a waiting goroutine, as the worker runs on a CPU"},
	},
	run: runCompletion,
}}

// completionBytes is the payload of an almost empty batch.
const completionBytes = 64

func runCompletion(ctx context.Context, t *target) error {
	row := func(name, way string, completion streams.Completion) *contender {
		schedule := streams.Overlapped
		schedule.Completion = completion
		c, f := t.single(groupCompletion, name, parse("crc32c"), completionBytes, schedule)
		f.cfg.Copies = false
		f.cfg.Spin = 0 // or a batch that is alone would be asked about first, whatever the row
		// The yardstick's is a launch alone, without copies: less work, and so no ratio.
		if way != "" {
			q := t.ask(request("completion", "way", way, "repeats", yardRepeats))
			c.rival = q.answer(func(a answer) (float64, error) { return a.number(yardMedian) })
		}
		return c
	}
	rows := []*contender{
		row("polling", "poll", streams.ByPolling), row("blocking-event", "blocking", streams.ByBlocking), row("napping", "", streams.ByAdaptivePolling),
		row("host-function", "hostfunc", streams.ByNotify),
	}
	if err := t.race(ctx, rows...); err != nil {
		return err
	}
	for _, c := range rows {
		c.showRival(t.session)
	}
	t.finish(rows...)
	return nil
}

// yardRepeats is how often the yardstick does what is quick.
const yardRepeats = 1000

// showRival shows the yardstick's time beside the contender's, where its work is not quite the same and a ratio
// would mislead.
func (c *contender) showRival(s *session) {
	if c.rival == nil {
		return
	}
	if c.rival.measured() {
		c.add(figureYardSeconds, "s", c.rival.seconds...)
	} else {
		s.note("%s: no comparison with the yardstick: %s", c.row.Name, c.rival.row.Skipped)
	}
	c.rival = nil
}
