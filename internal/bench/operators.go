package bench

import (
	"context"

	"millrace/internal/operator"
	"millrace/internal/streams"
)

// measuredOperators lists the operators that the suite measures. The name is the first part of the rows' names.
var measuredOperators = []struct{ name, list string }{
	{"crc32c", "crc32c"}, {"minhash", minhashSpec}, {"both", "crc32c," + minhashSpec},
}

var operatorSuite = Suite{
	Name: "operators", Sizes: batchSizes, Columns: []Column{CoresColumn},
	Experiments: append(eachOperator(), Experiment{
		Rows: []Entry{{Name: "host-cpu", Shows: "cores that the host uses with 4 MiB batches at full speed (crc32c, without filling)"}},
		each: runHostCPU,
	}, Experiment{
		Rows: []Entry{
			{Name: "device", Shows: "the balanced kernel on each device alone"},
			{Name: "devices", Shows: "on all devices at once: one queue of work, and whichever has a free batch takes the next piece"},
		},
		Run: runDevices,
	}),
}

// eachOperator returns an experiment for each of measuredOperators.
func eachOperator() []Experiment {
	var list []Experiment
	for _, o := range measuredOperators {
		list = append(list, Experiment{
			Rows: []Entry{
				{Name: o.name + "-kernel", Shows: o.list + ": the kernels alone, by device events, one batch at a time"},
				{Name: o.name + "-pipeline", Shows: o.list + ": batches through the worker's schedule, filled beforehand"},
				{Name: o.name + "-append", Shows: o.list + ": the whole path with filling, from Append to the results"},
				{Name: o.name + "-ragged", Shows: o.list + ": the kernels alone, payloads of log-normal sizes and one of 100 times the median"},
			},
			each: func(ctx context.Context, t *target) error { return runOperator(ctx, t, o.name, Parse(o.list)) },
		})
	}
	return list
}

func runOperator(ctx context.Context, t *target, name string, ops []operator.Operator) error {
	done := 0
	for _, size := range t.sizes() {
		size, err := t.afford(ctx, name, size, 2*t.Lanes*t.schedule().Buffers,
			func(n int) load { return newDocuments(ops, n, false) })
		if err != nil {
			return err
		}
		if size == done {
			continue // a larger size was reduced to the previous size
		}
		done = size
		if err := t.runOperatorOf(ctx, name, ops, size); err != nil {
			return err
		}
	}
	return nil
}

func (t *target) runOperatorOf(ctx context.Context, name string, ops []operator.Operator, size int) error {
	uniform, ragged := newDocuments(ops, size, false), newDocuments(ops, size, true)
	kernel, kernelFlow := t.flow(name+"-kernel", uniform, streams.Serial)
	uneven, unevenFlow := t.flow(name+"-ragged", ragged, streams.Serial)
	kernelFlow.kernelAlone, unevenFlow.kernelAlone = true, true
	pipeline, _ := t.flow(name+"-pipeline", uniform, t.schedule())
	appended := t.whole(name+"-append", uniform)
	in := t.copies(pinnedIn, size)
	kernel.Reference, in.Reference = true, true

	rows := []*Case{kernel, pipeline, appended, uneven}
	if err := t.Measure(ctx, append(rows, in)...); err != nil {
		return err
	}
	alone := kernel.figure(figureKernelTime)
	ceiling := make([]float64, min(len(in.seconds), len(alone)))
	for i := range ceiling {
		ceiling[i] = max(in.seconds[i], alone[i])
	}
	for _, c := range []*Case{pipeline, appended} {
		c.compareCeiling(ceiling)
		c.ratio(figureOfKernel, "", alone, c.seconds)
	}
	uneven.ratio(figureOverUniform, "x", alone, uneven.figure(figureKernelTime))
	kernel.addKernelRate(size)
	uneven.addKernelRate(size)
	t.Report(rows...)
	return nil
}

// addKernelRate adds the rate at which the kernels alone process bytes, computed from the spread of their time.
func (c *Case) addKernelRate(bytes int) {
	if took := c.figure(figureKernelTime); len(took) > 0 {
		c.derive(figureKernelRate, "GB/s", spread(took), func(seconds float64) float64 { return float64(bytes) / seconds / 1e9 })
	}
}

// hostCPUBytes is the default batch size of the row host-cpu.
const hostCPUBytes = 4 << 20

func runHostCPU(ctx context.Context, t *target) error {
	sizes := t.Sizes(hostCPUBytes)
	c, _ := t.flow("host-cpu", newDocuments(Parse("crc32c"), sizes[len(sizes)-1], false), t.schedule())
	if err := t.Measure(ctx, c); err != nil {
		return err
	}
	t.Report(c)
	return nil
}
