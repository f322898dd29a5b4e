package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"millrace/internal/operator/payloads"
)

// Batches returns the batches of the suite: the sets of package payloads, no record, and records of several megabytes. They have about
// 10 MB.
func Batches(seed uint64) []payloads.Set {
	return append([]payloads.Set{{Name: "nothing"}}, append(payloads.Sets(seed),
		payloads.Set{Name: "megabytes", Payloads: [][]byte{payloads.Random(seed, 3<<20+1), {}, []byte("x"), payloads.Text(seed, 2<<20-3)}})...)
}

// largeRecord is the size from which records are left out of a brief test, in bytes.
const largeRecord = 1 << 20

// Test runs batches in several ways, and checks that each result depends on its record and the parameters alone. It compares results with
// those of another device if reference isn't nil. The error is about the test itself; what is wrong with the operator is in the report.
func (r *Runner) Test(ctx context.Context, batches []payloads.Set, reference *Runner) (*Report, error) {
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

// Singly computes each record alone and drops the results. It is for finding a record that ends the process: see Subject.Before.
func (r *Runner) Singly(ctx context.Context, batches []payloads.Set) error {
	for _, set := range batches {
		for i := range set.Payloads {
			r.subject.Before(set.Name, i)
			var found *Finding // which Test reports
			if _, err := r.run(ctx, set.Payloads[i:i+1], first); err != nil && !errors.As(err, &found) {
				return err
			}
		}
	}
	return nil
}

// tester is a test under way.
type tester struct {
	*Runner
	ctx       context.Context
	reference *Runner
	report    Report
}

// Bounds of a batch.
const (
	mostMemory = 64 << 20 // bytes of records, scratch and result together
	mostPieces = 4        // batches that a set is divided into if its memory would exceed mostMemory
)

// set checks a set of records, in several batches if their results need too much memory for one.
func (t *tester) set(set payloads.Set) error {
	pieces := t.divide(set.Payloads)
	tested := 0
	for i, rows := range pieces {
		name := set.Name
		if len(pieces) > 1 {
			name = fmt.Sprintf("%s (part %d)", set.Name, i+1)
		}
		if i == mostPieces || t.memory(rows) > mostMemory {
			t.report.Untested = append(t.report.Untested, fmt.Sprintf("%d records of batch %q: memory for a batch is bounded, and %d such records take %d MiB",
				len(set.Payloads)-tested, set.Name, len(rows), t.memory(rows)>>20))
			return nil
		}
		tested += len(rows)
		t.subject.Before(name, -1)
		err := t.batch(name, rows)
		var found *Finding
		if errors.As(err, &found) {
			found.Batch = name
			t.report.Findings = append(t.report.Findings, *found)
			t.report.Stopped = found.fatal()
			err = nil
		}
		if err != nil || t.report.Stopped {
			return err
		}
	}
	return nil
}

// memory returns the bytes that a batch needs on the device.
func (t *tester) memory(rows [][]byte) int {
	shape := shapeOf(rows)
	return shape.Bytes + t.kernel.Needs(shape).Scratch + resultBytes(t.operator(), shape)
}

// divide halves a batch until each part is within mostMemory, or a single record.
func (t *tester) divide(rows [][]byte) [][][]byte {
	if len(rows) < 2 || t.memory(rows) <= mostMemory {
		return [][][]byte{rows}
	}
	half := len(rows) / 2
	return append(t.divide(rows[:half]), t.divide(rows[half:])...)
}

// The contents of memory for the first run of a batch, and for others.
var (
	first      = contents{poison: 0xa5, shift: 1}
	variations = []struct {
		kind     Kind
		contents contents
		text     string
	}{
		{Unrepeatable, first, "another run of the same batch gives another result: use no variable that outlives the record, and no memory that lanes write at once"},
		{Uninitialized, contents{poison: 0x5a, shift: 1}, "its result depends on what was in memory before: set every byte of a byte string, and use no uninitialized variable"},
		{ReadOutside, contents{poison: 0xa5, noise: 0xff, shift: 1}, "its result depends on bytes outside the batch: it reads before or behind its record"},
		{Placement, contents{poison: 0xa5}, "its result depends on where the batch begins in memory: records may begin at any address"},
		{Placement, contents{poison: 0xa5, shift: 1, mapped: true}, "its result is different if the batch is in host memory"},
	}
)

// batch checks one batch. It ends with the first finding that is about several runs, because the others would say the same in other words.
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
	for _, v := range variations {
		if v.contents.mapped && !t.kernel.Needs(shapeOf(rows)).InPlace {
			continue
		}
		again, err := t.run(t.ctx, rows, v.contents)
		if err == nil {
			err = compare(v.kind, rows, answers, again, v.text, "one run", "another")
		}
		if err != nil {
			return err
		}
	}
	for _, check := range []func([][]byte, []Answer) error{t.reversed, t.cut, t.alone, t.elsewhere} {
		if err := check(rows, answers); err != nil {
			return err
		}
	}
	return nil
}

// failed reports whether the operator failed on a batch as a whole.
func failed(answers []Answer) bool { return len(answers) > 0 && answers[0].Status == batchOutOfBounds }

// failing returns a finding about the first record on which a pass fails alone, or about the whole batch if there is none.
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

// compare returns a finding for the first record whose answers differ.
func compare(kind Kind, rows [][]byte, a, b []Answer, text, first, second string) error {
	for i := range a {
		if !a[i].equal(b[i]) {
			return &Finding{Kind: kind, Record: i, Data: rows[i], Text: text + " (" + unlike(a[i], b[i], first, second) + ")"}
		}
	}
	return nil
}

// reversed computes the batch in reverse order.
func (t *tester) reversed(rows [][]byte, answers []Answer) error {
	backward := slices.Clone(rows)
	slices.Reverse(backward)
	again, err := t.run(t.ctx, backward, first)
	if err != nil {
		return err
	}
	slices.Reverse(again)
	return compare(Neighbors, rows, answers, again, "its result depends on the other records of the batch, or on their order", "the batch", "the reversed batch")
}

// cut computes the batch as several smaller ones of growing sizes.
func (t *tester) cut(rows [][]byte, answers []Answer) error {
	var again []Answer
	for size := 2; len(again) < len(rows); size += size/2 + 1 {
		from := len(again)
		part, err := t.run(t.ctx, rows[from:min(from+size, len(rows))], first)
		if err != nil {
			return err
		}
		again = append(again, part...)
	}
	return compare(Neighbors, rows, answers, again, "its result depends on the number of records in the batch", "the batch", "a smaller batch")
}

// single is the maximum number of records of a batch that are also computed alone, and singleBrief is that of a brief test.
const (
	single      = 64
	singleBrief = 8
)

// alone computes some records of the batch each in a batch of its own.
func (t *tester) alone(rows [][]byte, answers []Answer) error {
	most := single
	if t.subject.Brief {
		most = singleBrief
	}
	for i := 0; i < len(rows); i += max(1, (len(rows)+most-1)/most) {
		again, err := t.run(t.ctx, rows[i:i+1], first)
		if err != nil {
			return err
		}
		if !again[0].equal(answers[i]) {
			return &Finding{Kind: Neighbors, Record: i, Data: rows[i], Text: "its result is different if it is alone in a batch (" +
				unlike(answers[i], again[0], "the batch", "the record alone") + ")"}
		}
	}
	return nil
}

// elsewhere compares the batch with what the other device computes.
func (t *tester) elsewhere(rows [][]byte, answers []Answer) error {
	if t.reference == nil {
		return nil
	}
	again, err := t.reference.run(t.ctx, rows, first)
	if err != nil {
		return errors.New("the " + t.reference.deviceName() + ", with which results are compared: " + err.Error()) // not a finding of this one
	}
	return compare(Devices, rows, answers, again, "its result depends on the device", "the "+t.deviceName(), "the "+t.reference.deviceName())
}

// deviceName returns what users call the kind of device.
func (r *Runner) deviceName() string {
	switch r.subject.Device.Info().Kind {
	case "cuda":
		return "GPU"
	case "host":
		return "CPU"
	}
	return "simulated device"
}
