package devkit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"millrace/internal/corpus"
)

// Batches returns the batches of the suite: the sets of package corpus, a batch without records, and a batch with records of
// several megabytes. All batches together have about 10 MB.
func Batches(seed uint64) []corpus.Set {
	return append([]corpus.Set{{Name: "nothing"}}, append(corpus.Sets(seed),
		corpus.Set{Name: "megabytes", Payloads: [][]byte{corpus.Bytes(seed, 3<<20+1), {}, []byte("x"), corpus.Text(seed, 2<<20-3)}})...)
}

// largeRecord is a size in bytes. A brief test omits every batch that has a record of at least this size.
const largeRecord = 1 << 20

// Test runs batches in several ways, and checks that each result depends only on its record and the parameters. It compares
// results with those of reference, a Runner on another device, unless reference is nil. The report has the findings about the
// operator. The error is about the test itself.
func (r *Runner) Test(ctx context.Context, batches []corpus.Set, reference *Runner) (*Report, error) {
	t := &tester{Runner: r, ctx: ctx, reference: reference}
	for _, set := range batches {
		if r.subject.Brief && shapeOf(set.Payloads).Longest >= largeRecord {
			continue
		}
		if err := t.set(set); err != nil {
			return &t.report, err
		}
		if t.report.Stopped {
			break
		}
	}
	return &t.report, nil
}

// tester is the state of a test.
type tester struct {
	*Runner
	ctx       context.Context
	reference *Runner
	report    Report
}

// Limits of a batch.
const (
	maxMemory = 64 << 20 // bytes of records, scratch and result together
	maxPieces = 4        // maximum number of batches of a set that exceeds maxMemory
)

// set checks a set of records, in several batches if one batch would need too much memory.
func (t *tester) set(set corpus.Set) error {
	pieces := t.divide(set.Payloads)
	tested := 0
	for i, rows := range pieces {
		name := set.Name
		if len(pieces) > 1 {
			name = fmt.Sprintf("%s (part %d)", set.Name, i+1)
		}
		if i == maxPieces || t.memory(rows) > maxMemory {
			t.report.Untested = append(t.report.Untested, fmt.Sprintf("%d records of batch %q: memory for a batch is bounded, and %d such records take %d MiB",
				len(set.Payloads)-tested, set.Name, len(rows), t.memory(rows)>>20))
			return nil
		}
		tested += len(rows)
		t.before(name, -1, nil)
		err := t.batch(name, rows)
		var found *Finding
		if errors.As(err, &found) {
			found.Batch = name
			t.report.Findings = append(t.report.Findings, *found)
			t.report.Stopped = found.isFatal()
			err = nil
		}
		if err != nil || t.report.Stopped {
			return err
		}
	}
	return nil
}

// divide halves a batch until each part is within maxMemory or is a single record.
func (t *tester) divide(rows [][]byte) [][][]byte {
	if len(rows) < 2 || t.memory(rows) <= maxMemory {
		return [][][]byte{rows}
	}
	half := len(rows) / 2
	return append(t.divide(rows[:half]), t.divide(rows[half:])...)
}

// first describes the contents of memory in the first run of a batch.
var first = contents{poison: 0xa5, shift: 1}

// batch checks one batch. It returns after the first difference between runs, because later differences probably have the same cause.
func (t *tester) batch(name string, rows [][]byte) error {
	answers, err := t.run(t.ctx, rows, first)
	if err != nil {
		return err
	}
	t.count(answers)
	if failed(answers) {
		return t.failing(rows)
	}
	for i, a := range answers {
		if a.Status == outOfBounds {
			t.report.Findings = append(t.report.Findings, Finding{Kind: OutOfBounds, Batch: name, Record: i, Data: rows[i],
				Text: "it accessed a byte outside the record or its result"})
			break
		}
	}
	for _, c := range t.checks(rows) {
		again, err := c.again(answers)
		if err != nil {
			return err
		}
		for i := range answers {
			if !answers[i].equal(again[i]) {
				return &Finding{Kind: c.kind, Record: i, Data: rows[i], Text: c.text + " (" + unlike(answers[i], again[i], c.first, c.second) + ")"}
			}
		}
	}
	return nil
}

// failed reports whether the operator failed on a batch as a whole.
func failed(answers []Answer) bool { return len(answers) > 0 && answers[0].Status == batchOutOfBounds }

// failing returns a finding about the first record that alone makes a pass fail, or about the whole batch if there is no such
// record.
func (t *tester) failing(rows [][]byte) error {
	found := &Finding{Kind: OutOfBounds, Record: -1, Text: "a pass accessed something outside the batch, a table or scratch memory"}
	for i := range rows {
		alone, err := t.run(t.ctx, rows[i:i+1], first)
		if err != nil {
			return err
		}
		if failed(alone) {
			found.Record, found.Data = i, rows[i]
			break
		}
	}
	return found
}

func (t *tester) count(answers []Answer) {
	t.report.Records += len(answers)
	for _, a := range answers {
		if a.Status == done {
			t.report.Done++
		}
	}
}

// check is another way to compute a batch. If its answers differ from those of the first run, text describes the cause.
type check struct {
	kind          Kind
	text          string
	first, second string // the user's terms for the two runs
	again         func(answers []Answer) ([]Answer, error)
}

func (t *tester) checks(rows [][]byte) []check {
	inMemory := func(c contents) func([]Answer) ([]Answer, error) {
		return func([]Answer) ([]Answer, error) { return t.run(t.ctx, rows, c) }
	}
	all := []check{
		{Unrepeatable, "another run of the same batch gives another result: use no variable that outlives the record, and no memory that lanes write at once",
			"one run", "another", inMemory(first)},
		{Uninitialized, "its result depends on what was in memory before: set every byte of a byte string, and use no uninitialized variable",
			"one run", "another", inMemory(contents{poison: 0x5a, shift: 1})},
		{ReadOutside, "its result depends on bytes outside the batch: it reads before or behind its record",
			"one run", "another", inMemory(contents{poison: 0xa5, noise: 0xff, shift: 1})},
		{Placement, "its result depends on where the batch begins in memory: records may begin at any address", "one run", "another", inMemory(contents{poison: 0xa5})},
	}
	if t.kernel.Needs(shapeOf(rows)).InPlace {
		all = append(all, check{Placement, "its result is different if the batch is in host memory",
			"one run", "another", inMemory(contents{poison: 0xa5, shift: 1, mapped: true})})
	}
	all = append(all,
		check{Neighbors, "its result depends on the other records of the batch, or on their order", "the batch", "the reversed batch",
			func([]Answer) ([]Answer, error) { return t.reversed(rows) }},
		check{Neighbors, "its result depends on the number of records in the batch", "the batch", "a smaller batch",
			func([]Answer) ([]Answer, error) { return t.cut(rows) }},
		check{Neighbors, "its result is different if it is alone in a batch", "the batch", "the record alone",
			func(answers []Answer) ([]Answer, error) { return t.runAlone(rows, answers) }})
	if t.reference != nil {
		all = append(all, check{Devices, "its result depends on the device", "the " + t.deviceName(), "the " + t.reference.deviceName(),
			func([]Answer) ([]Answer, error) { return t.runElsewhere(rows) }})
	}
	return all
}

// reversed computes the batch in reverse order.
func (t *tester) reversed(rows [][]byte) ([]Answer, error) {
	backward := slices.Clone(rows)
	slices.Reverse(backward)
	again, err := t.run(t.ctx, backward, first)
	slices.Reverse(again)
	return again, err
}

// cut computes the batch as several smaller batches of growing sizes.
func (t *tester) cut(rows [][]byte) (again []Answer, err error) {
	for size := 2; len(again) < len(rows); size += size/2 + 1 {
		from := len(again)
		part, err := t.run(t.ctx, rows[from:min(from+size, len(rows))], first)
		if err != nil {
			return nil, err
		}
		again = append(again, part...)
	}
	return again, nil
}

// single is the maximum number of records of a batch that are also computed alone. singleBrief is this maximum in a brief
// test.
const (
	single      = 64
	singleBrief = 8
)

// runAlone computes some records of the batch alone. It returns answers, with the new answers for these records.
func (t *tester) runAlone(rows [][]byte, answers []Answer) ([]Answer, error) {
	limit := single
	if t.subject.Brief {
		limit = singleBrief
	}
	again := slices.Clone(answers)
	for i := 0; i < len(rows); i += max(1, (len(rows)+limit-1)/limit) {
		one, err := t.run(t.ctx, rows[i:i+1], first)
		if err != nil {
			return nil, err
		}
		again[i] = one[0]
	}
	return again, nil
}

// runElsewhere computes the batch on the other device.
func (t *tester) runElsewhere(rows [][]byte) ([]Answer, error) {
	again, err := t.reference.run(t.ctx, rows, first)
	if err != nil {
		return nil, errors.New("the " + t.reference.deviceName() + ", with which results are compared: " + err.Error()) // not a finding about this device
	}
	return again, nil
}
