package develop

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"millrace/internal/device"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/payloads"
)

// Sample is a record that the author of an operator supplies.
type Sample struct {
	Name string
	Data []byte
	Want []byte // the JSON value of its result; nil if none is given
}

// Answer is the result of one record.
type Answer struct {
	Status byte
	JSON   []byte // nil unless Status is 0
	Reason string // empty if Status is 0

	value []byte // its record and byte strings
}

func (a Answer) equal(b Answer) bool {
	return a.Status == b.Status && bytes.Equal(a.value, b.value)
}

// String returns the JSON value, or why there is none.
func (a Answer) String() string {
	if a.Status == 0 {
		return string(a.JSON)
	}
	return "rejected: " + a.Reason
}

// Finding is something wrong with an operator: in which batch, in which record, and what.
type Finding struct {
	Batch  string
	Record int    // its index in the batch
	Data   []byte // its bytes
	Text   string
}

// String describes the finding in one line.
func (f Finding) String() string {
	const most = 16
	data, more := f.Data, ""
	if len(data) > most {
		data, more = data[:most], "..."
	}
	return fmt.Sprintf("batch %q, record %d (%d bytes, %s%s): %s", f.Batch, f.Record, len(f.Data), strconv.Quote(string(data)), more, f.Text)
}

// Report is the outcome of a test.
type Report struct {
	Spec     string
	Records  int       // records that were computed in adversarial batches
	Done     int       // of those, records with a result
	Samples  []Answer  // one per sample
	Findings []Finding // at most one per batch and kind
	Rate     float64   // bytes per second on the CPU, in records of RateBytes bytes
}

// RateBytes is the size of the records with which Test measures the throughput.
const RateBytes = 2 << 10

// Test runs an operator on the CPU, over adversarial ragged batches and over samples. It checks that no record's code accesses a byte
// outside the record, that the operator leaves nothing that it didn't declare, and that a result depends on the record and the
// parameters alone: not on the contents of memory before, on the other records of a batch, or on their order.
func Test(l *cpulib.Library, query string, samples []Sample) (*Report, error) {
	o, err := l.Description().Bind(query)
	if err != nil {
		return nil, err
	}
	bound, err := l.Bind(o.Params())
	if err != nil {
		return nil, err
	}
	t := &tester{kernel: bound.(*cpulib.Kernel), operator: o}
	t.report.Spec = o.String()
	for _, set := range payloads.Sets(1) {
		if err := t.batch(set.Name, set.Payloads); err != nil {
			return nil, err
		}
	}
	if err := t.samples(samples); err != nil {
		return nil, err
	}
	if t.report.Rate, err = t.rate(); err != nil {
		return nil, err
	}
	return &t.report, nil
}

type tester struct {
	kernel   *cpulib.Kernel
	operator *compiled.Operator
	report   Report
}

// run computes a batch in memory that holds noise.
func (t *tester) run(rows [][]byte, noise byte) ([]Answer, error) {
	data, offsets := payloads.Pack(rows)
	needs := t.kernel.Needs(device.Shape{Rows: len(rows), Bytes: len(data)})
	scratch, result := bytes.Repeat([]byte{noise}, needs.Scratch), bytes.Repeat([]byte{noise}, needs.Result)
	if err := t.kernel.Run(data, offsets, scratch, result, together); err != nil {
		return nil, err
	}
	layout := t.operator.Layout(len(rows), len(data))
	answers := make([]Answer, len(rows))
	for i := range answers {
		a := &answers[i]
		a.Status, a.value = result[layout.Status+i], t.operator.AppendValue(nil, offsets, result, i)
		a.Reason, _ = t.operator.Reason(a.Status)
	}
	return answers, nil
}

// together is a device.Parallel that uses all cores.
func together(n int, fn func(i int)) {
	var all sync.WaitGroup
	workers := min(n, runtime.GOMAXPROCS(0))
	for w := range workers {
		all.Go(func() {
			for i := w; i < n; i += workers {
				fn(i)
			}
		})
	}
	all.Wait()
}

// alone is the number of records of a batch that are also computed alone.
const alone = 64

// batch checks one batch.
func (t *tester) batch(name string, rows [][]byte) error {
	answers, err := t.run(rows, 0xa5)
	if err != nil {
		return fmt.Errorf("batch %q: %w", name, err)
	}
	t.report.Records += len(rows)
	for _, a := range answers {
		if a.Status == 0 {
			t.report.Done++
		}
	}
	t.compare(name, rows, answers, "it accessed a byte outside the record or its result", func(i int) bool { return answers[i].Status != outOfBounds })
	again, err := t.run(rows, 0x5a)
	if err != nil {
		return fmt.Errorf("batch %q: %w", name, err)
	}
	t.compare(name, rows, answers, "its result depends on what was in memory before: set every byte of a byte string, and use no uninitialized variable",
		func(i int) bool { return answers[i].equal(again[i]) })
	reversed := slices.Clone(rows)
	slices.Reverse(reversed)
	if again, err = t.run(reversed, 0xa5); err != nil {
		return fmt.Errorf("batch %q, reversed: %w", name, err)
	}
	t.compare(name, rows, answers, "its result depends on the other records of the batch, or on their order",
		func(i int) bool { return answers[i].equal(again[len(rows)-1-i]) })
	return t.alone(name, rows, answers)
}

// alone computes some records of a batch each in a batch of its own.
func (t *tester) alone(name string, rows [][]byte, answers []Answer) error {
	differs := -1
	for i := 0; i < len(rows) && differs < 0; i += max(1, len(rows)/alone) {
		again, err := t.run(rows[i:i+1], 0x3c)
		if err != nil {
			return fmt.Errorf("batch %q, record %d alone: %w", name, i, err)
		}
		if !again[0].equal(answers[i]) {
			differs = i
		}
	}
	t.compare(name, rows, answers, "its result is different if it is alone in a batch", func(i int) bool { return i != differs })
	return nil
}

// outOfBounds is the status of a record whose code accessed a byte outside it.
const outOfBounds = 254

// compare adds a finding for the first record that isn't right.
func (t *tester) compare(batch string, rows [][]byte, answers []Answer, text string, right func(i int) bool) {
	for i := range answers {
		if !right(i) {
			t.report.Findings = append(t.report.Findings, Finding{Batch: batch, Record: i, Data: rows[i], Text: text})
			return
		}
	}
}

// samples computes the samples, as one batch, and compares results with what their author expects.
func (t *tester) samples(samples []Sample) error {
	if len(samples) == 0 {
		return nil
	}
	var rows [][]byte
	for _, s := range samples {
		rows = append(rows, s.Data)
	}
	if err := t.batch("samples", rows); err != nil {
		return err
	}
	answers, err := t.run(rows, 0)
	if err != nil {
		return err
	}
	for i, s := range samples {
		a := &answers[i]
		if a.Status == 0 {
			a.JSON = t.operator.AppendJSON(nil, a.value)
		}
		if want := bytes.TrimSpace(s.Want); s.Want != nil && string(want) != a.String() {
			t.report.Findings = append(t.report.Findings, Finding{Batch: "samples", Record: i, Data: s.Data,
				Text: fmt.Sprintf("the result of sample %s is %s, want %s", s.Name, a, want)})
		}
	}
	t.report.Samples = answers
	return nil
}

// rate measures the throughput in bytes per second.
func (t *tester) rate() (float64, error) {
	const records, runs = 4096, 5
	text := payloads.Text(1, RateBytes)
	rows := slices.Repeat([][]byte{text}, records)
	data, offsets := payloads.Pack(rows)
	needs := t.kernel.Needs(device.Shape{Rows: records, Bytes: len(data)})
	scratch, result := make([]byte, needs.Scratch), make([]byte, needs.Result)
	var times []time.Duration
	for range runs {
		start := time.Now()
		if err := t.kernel.Run(data, offsets, scratch, result, together); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return float64(len(data)) / times[runs/2].Seconds(), nil
}
