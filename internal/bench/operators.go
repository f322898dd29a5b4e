package bench

import (
	"context"

	"millrace/internal/operator"
	"millrace/internal/streams"
)

const groupOperators = "operators"

// measuredOperators are the lists that the group measures, by the first part of the rows' names.
var measuredOperators = []struct{ name, list string }{
	{"crc32c", "crc32c"}, {"minhash", minhashSpec}, {"both", "crc32c," + minhashSpec},
}

var operatorExperiments = append(eachOperator(), experiment{
	group: groupOperators,
	rows:  []Entry{{Name: "host-cpu", Shows: "cores that the host spends at 4 MiB batches and full speed (crc32c, without filling)"}},
	run:   runHostCPU,
}, experiment{
	group: groupOperators,
	rows: []Entry{
		{Name: "device", Shows: "the balanced kernel on each device alone"},
		{Name: "devices", Shows: "on all devices at once, one queue of work, taken by whichever has a free batch"},
	},
	together: runDevices,
})

// eachOperator is an experiment for each of measuredOperators.
func eachOperator() []experiment {
	var list []experiment
	for _, o := range measuredOperators {
		list = append(list, experiment{
			group: groupOperators,
			rows: []Entry{
				{Name: o.name + "-kernel", Shows: o.list + ": the kernels alone, by device events, one batch at a time"},
				{Name: o.name + "-pipeline", Shows: o.list + ": batches through the worker's schedule, filled beforehand"},
				{Name: o.name + "-append", Shows: o.list + ": the whole way, filling included, from Append to the results"},
				{Name: o.name + "-ragged", Shows: o.list + ": the kernels alone, payloads of log-normal sizes and one of 100 times the median"},
			},
			run: func(ctx context.Context, t *target) error { return runOperator(ctx, t, o.name, parse(o.list)) },
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
			continue // a larger size was lowered to the one before
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
	kernel, kernelFlow := t.flow(groupOperators, name+"-kernel", uniform, streams.Serial)
	uneven, unevenFlow := t.flow(groupOperators, name+"-ragged", ragged, streams.Serial)
	kernelFlow.kernelAlone, unevenFlow.kernelAlone = true, true
	through, _ := t.flow(groupOperators, name+"-pipeline", uniform, t.schedule())
	appended := t.whole(groupOperators, name+"-append", uniform)
	in := t.copies(pinnedIn, size)
	kernel.base, in.base = true, true

	rows := []*contender{kernel, through, appended, uneven}
	if err := t.race(ctx, append(rows, in)...); err != nil {
		return err
	}
	alone := kernel.samples(figureKernelTime)
	for _, c := range []*contender{through, appended} {
		ceiling := make([]float64, min(len(in.seconds), len(alone)))
		for i := range ceiling {
			ceiling[i] = max(in.seconds[i], alone[i])
		}
		c.compareCeiling(ceiling)
		c.compare(figureOfKernel, "", alone, c.seconds)
	}
	uneven.compare(figureOverUniform, "x", alone, uneven.samples(figureKernelTime))
	for _, c := range []*contender{kernel, uneven} {
		for _, seconds := range c.samples(figureKernelTime) {
			c.add(figureKernelRate, "GB/s", float64(size)/seconds/1e9)
		}
	}
	t.finish(rows...)
	return nil
}

// hostCPUBytes is the batch size that host-cpu measures, unless the sizes are given.
const hostCPUBytes = 4 << 20

func runHostCPU(ctx context.Context, t *target) error {
	size := hostCPUBytes
	if len(t.Bytes) > 0 {
		size = t.Bytes[len(t.Bytes)-1]
	}
	c, _ := t.flow(groupOperators, "host-cpu", newDocuments(parse("crc32c"), size, false), t.schedule())
	if err := t.race(ctx, c); err != nil {
		return err
	}
	t.finish(c)
	return nil
}
