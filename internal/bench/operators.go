package bench

import (
	"context"
	"runtime"

	"millrace/internal/bench/report"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

var operatorSuite = Suite{
	Name: "operators", Sizes: copySuite.Sizes, Columns: []Column{CoresColumn},
	Experiments: []Experiment{
		operatorExperiment("crc32c", "crc32c", 256<<10, 1<<20),
		operatorExperiment("minhash", minhashSpec, 16<<10, 64<<10),
		operatorExperiment("minhash-260", "minhash?k=24&hashes=260", 16<<10, 64<<10), // the number of hashes in NeMo Curator
		operatorExperiment("neardup", "neardup", 16<<10, 64<<10),                     // minhash-260 plus its keys; without a state, because pipelines have none
		operatorExperiment("quality", "quality", 64<<10, 256<<10),
		operatorExperiment("quality-ngrams", "quality?ngrams=true", 64<<10, 256<<10),
		operatorExperiment("both", "crc32c,"+minhashSpec, 16<<10, 64<<10),
		{
			Rows:  []Entry{{Name: "host-cpu", Shows: "cores that the host uses with 4 MiB batches at full speed (crc32c, without filling)"}},
			sizes: func(s *Session) []int { return lastOf(s.Sizes(4 << 20)) },
			cases: func(_ context.Context, s *Session, size int) ([]*Case, error) {
				return []*Case{batches(s, "host-cpu", newDocuments(Parse("crc32c"), size, false), workerSchedule(s))}, nil
			},
		},
		{
			Rows: []Entry{
				{Name: "device", Shows: "the balanced kernel on each device alone"},
				{Name: "devices", Shows: "on all devices at once: one queue of work, and whichever has a free batch takes the next piece"},
			},
			cases: deviceCases, together: true,
		},
	},
}

// operatorExperiment returns an experiment that measures a list of operators. The names of its rows begin with name.
// onCPU holds the default sizes for a CPU, which is about a thousand times slower than a GPU.
func operatorExperiment(name, list string, onCPU ...int) Experiment {
	return Experiment{
		Rows: []Entry{
			{Name: name + "-kernel", Shows: list + ": the kernels alone, by device events, one batch at a time"},
			{Name: name + "-pipeline", Shows: list + ": batches through the worker's schedule, filled beforehand"},
			{Name: name + "-append", Shows: list + ": the whole path with filling, from Append to the results"},
			{Name: name + "-ragged", Shows: list + ": the kernels alone, payloads of log-normal sizes and one of 100 times the median"},
		},
		sizes: func(s *Session) []int {
			if s.isGPU() {
				return s.batchSizes()
			}
			return s.Sizes(onCPU...)
		},
		cases: func(_ context.Context, s *Session, size int) ([]*Case, error) {
			return operatorCases(s, name, operator.Kernels(Parse(list)), size), nil
		},
	}
}

// maxFillers is the maximum number of goroutines that fill batches. The worker has a similarly small number.
const maxFillers = 8

func operatorCases(s *Session, name string, ops []operator.Operator, size int) []*Case {
	uniform, uneven := newDocuments(ops, size, false), newDocuments(ops, size, true)
	kernel := batches(s, name+"-kernel", uniform, streams.Serial)
	ragged := batches(s, name+"-ragged", uneven, streams.Serial)
	pipeline := batches(s, name+"-pipeline", uniform, workerSchedule(s))
	appended := batches(s, name+"-append", uniform, workerSchedule(s), func(w *batchWork) {
		w.refill, w.drivers = true, min(maxFillers, runtime.GOMAXPROCS(0))
	})
	in := copies(s, pinnedIn, size)
	kernel.Reference, in.hidden = true, true

	alone := kernel.stage(streams.ComputeEngine)
	for _, c := range []*Case{pipeline, appended} {
		compareCeiling(c, longerStage(in.batch, alone))
		c.ratio(ofKernel, alone, c.batch)
	}
	ragged.ratio(overUniform, alone, ragged.stage(streams.ComputeEngine))
	for _, c := range []*Case{kernel, ragged} {
		c.later(kernelRate, func() (of report.Spread, ok bool) {
			took := c.stages[streams.ComputeEngine]
			if len(took) == 0 {
				return of, false
			}
			return inverse(spread(took), func(seconds float64) float64 { return float64(size) / seconds / 1e9 }), true
		})
	}
	return []*Case{kernel, pipeline, appended, ragged, in}
}

// deviceCases returns cases of the balanced kernel on each device alone and on all devices at once. The kernel is
// balanced for the first device.
func deviceCases(ctx context.Context, s *Session, size int) ([]*Case, error) {
	m, err := balanced(ctx, s, size)
	if err != nil {
		return nil, err
	}
	load := newWords(m, size)
	var rigs []*rig
	var alone []*Case
	for _, d := range s.Devices {
		s.use(d)
		c := batches(s, "device", load, workerSchedule(s))
		c.Reference = true
		rigs, alone = append(rigs, newRig(s, load, workerSchedule(s))), append(alone, c)
	}
	s.use(s.Devices[0])
	all := batches(s, "devices", load, workerSchedule(s), func(w *batchWork) { w.others = rigs[1:] })
	all.Row.Device, all.Row.Lanes = "all", all.Row.Lanes*len(rigs)
	if len(rigs) == 1 {
		all.Row.Skipped = "there is one device: name two or more in MILLRACE_DEVICES"
		if s.info.Kind == "host" {
			all.Row.Skipped = "there is one device, the CPU"
		}
	}
	all.ratio(overOne, func() []float64 { return fastest(alone) }, all.batch)
	return append(alone, all), nil
}

// fastest returns the seconds per batch of the case with the smallest median.
func fastest(cases []*Case) (seconds []float64) {
	for _, c := range cases {
		if len(c.seconds) > 0 && (seconds == nil || median(c.seconds) < median(seconds)) {
			seconds = c.seconds
		}
	}
	return seconds
}
