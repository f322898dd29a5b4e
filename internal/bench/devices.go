package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/bench/report"
)

// runDevices measures the balanced kernel on each device alone and on all devices at once. All devices do the same
// work: the kernel is balanced for the first device.
func runDevices(ctx context.Context, s *Session) error {
	return s.targets[0].eachBalanced(ctx, func(m mix, bytes int) error {
		var rows []*Case
		var flows []*flow
		for _, t := range s.targets {
			c, f := t.flow("device", newWords(m, bytes), t.schedule())
			c.Reference = true
			rows, flows = append(rows, c), append(flows, f)
		}
		all := together(flows, rows[0].Row)
		if err := s.Measure(ctx, append(rows, all)...); err != nil {
			return err
		}
		fastest := rows[0].seconds
		for _, c := range rows[1:] {
			if len(c.seconds) > 0 && median(c.seconds) < median(fastest) {
				fastest = c.seconds
			}
		}
		all.ratio(figureOverOne, "x", fastest, all.seconds)
		s.Report(append(rows, all)...)
		return nil
	})
}

// together returns a case that runs several flows at once, each on its own device. The flows share one queue of work: a
// device with a free batch takes the next piece.
func together(flows []*flow, like report.Row) *Case {
	c := &Case{Row: like}
	c.Row.Name, c.Row.Device, c.Row.Lanes = "devices", "all", like.Lanes*len(flows)
	c.Measure = func(ctx context.Context, c *Case, seed uint64) (err error) {
		if len(flows) < 2 && flows[0].t.info.Kind == "host" {
			return Unable("there is one device, the CPU")
		}
		if len(flows) < 2 {
			return Unable("there is one device: name two or more in MILLRACE_DEVICES")
		}
		all := &batchRun{recent: &flows[0].recent}
		for i, f := range flows {
			p, openErr := f.open()
			if openErr != nil {
				return openErr
			}
			defer func() { err = errors.Join(err, p.Close()) }()
			held, fillErr := fill(ctx, p, f.load, derive(seed, i))
			if fillErr != nil {
				return fillErr
			}
			all.drivers = append(all.drivers, driver{p, held})
		}
		var r ran
		err = c.timed(flows[0].t.Turn(), all.held(), func(n int) (took time.Duration, err error) {
			r, err = all.run(ctx, n)
			return r.elapsed, err
		})
		if err != nil {
			return err
		}
		c.Add(FigureCores, "", r.cores())
		for i, f := range flows {
			if err := verify(all.drivers[i].held, f.load, derive(seed, i)); err != nil {
				return fmt.Errorf("on %s: %w", f.t.info.ID, err)
			}
		}
		return nil
	}
	return c
}
