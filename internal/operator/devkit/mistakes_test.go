//go:build cgo

package devkit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/cuda/fakecuda"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
)

// batchesFor returns the batches for a finding: the batch that the text names, or all batches without records of a megabyte.
func batchesFor(text string) (batches []corpus.Set) {
	_, named, _ := strings.Cut(text, `batch "`)
	named, _, _ = strings.Cut(named, `"`)
	for _, set := range Batches(1) {
		large := slices.ContainsFunc(set.Payloads, func(p []byte) bool { return len(p) >= 1<<20 })
		if set.Name == named || named == "" && !large {
			batches = append(batches, set)
		}
	}
	return batches
}

// finds checks that the suite reports a finding of the given kind and text.
func finds(t *testing.T, r, reference *Runner, kind Kind, text string) {
	t.Helper()
	report, err := r.Test(t.Context(), batchesFor(text), reference)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Kind == kind && strings.Contains(f.String(), text) {
			return
		}
	}
	t.Errorf("no finding of kind %d with %q among %q", kind, text, report.Findings)
}

// TestMistakesAreFound: each operator in the folder wrong has one mistake.
func TestMistakesAreFound(t *testing.T) {
	for _, c := range []struct {
		name string
		kind Kind
		text string
	}{
		{"beyond", OutOfBounds, `batch "empties", record 0 (0 bytes, ""): it accessed a byte outside the record or its result`},
		{"pass", OutOfBounds, `batch "one byte", record 0 (1 bytes, "\x00"): a pass accessed something outside the batch, a table or scratch memory`},
		{"leftover", Uninitialized, `batch "empties", record 0 (0 bytes, ""): its result depends on what was in memory before: set every byte of a byte string`},
		{"neighbor", ReadOutside, `batch "one megabyte", record 0 (1048576 bytes, `},
		{"neighbor", Neighbors, "its result depends on the other records of the batch, or on their order"},
		{"overwrite", WroteOutside, `batch "one byte": it wrote outside its memory: 4 bytes before its result`},
		{"scribble", WroteOutside, `batch "one byte": it changed byte 0 of the batch: records are read only`},
		{"counting", Unrepeatable, "another run of the same batch gives another result"},
		{"aligned", Placement, `its result depends on where the batch begins in memory: records may begin at any address (one run gives {"odd":1}, and another gives {"odd":0})`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := library(t, "kernels/test/operators/wrong/"+c.name+".cu")
			o := bind(t, l.Description(), "")
			finds(t, runner(t, Subject{Device: onHost(t, l), Operator: o}), nil, c.kind, c.text)
		})
	}
}

// tampered is an operator whose results the test modifies.
type tampered struct {
	device.HostKernel
	needs func(*device.Needs)
	after func(offsets []uint32, scratch, result []byte)
}

type boundTampered struct {
	device.BoundHostKernel
	t *tampered
}

func (t *tampered) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := t.HostKernel.Bind(params)
	return &boundTampered{bound, t}, err
}

func (b *boundTampered) Needs(s device.Shape) device.Needs {
	needs := b.BoundHostKernel.Needs(s)
	if b.t.needs != nil {
		b.t.needs(&needs)
	}
	return needs
}

func (b *boundTampered) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	err := b.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
	if b.t.after != nil && err == nil {
		b.t.after(offsets, scratch, result)
	}
	return err
}

// damage changes the byte after the end of memory.
func damage(memory []byte) {
	if len(memory) > 0 {
		*(*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(memory)), len(memory))) ^= 1
	}
}

// TestMistakesOfOtherCodeAreFound simulates mistakes that operator.cuh makes impossible in a source file.
func TestMistakesOfOtherCodeAreFound(t *testing.T) {
	l := library(t, "examples/operators/entropy/entropy.cu")
	status := func(offsets []uint32) int { return (4*(len(offsets)-1) + 255) / 256 * 256 }
	for name, c := range map[string]struct {
		tampered
		kind Kind
		text string
	}{
		"a result of a refused record": {tampered{after: func(_ []uint32, _, result []byte) {
			if len(result) > 0 {
				result[0] |= 1
			}
		}}, LeftOver, `record 0 (0 bytes, ""): its status is 1 (the record is empty), but its result isn't zeros`},
		"an undeclared status": {tampered{after: func(offsets []uint32, _, result []byte) {
			if len(offsets) > 1 {
				result[status(offsets)] = 2
			}
		}}, Undeclared, "operator entropy: record 0 has an undeclared result: status 2: it declares entropy version 1"},
		"a larger result": {tampered{needs: func(n *device.Needs) { n.Result += 256 }}, WrongNeeds,
			"it asks for 41216 bytes for the result of 8192 records with 0 bytes, and its declaration says 40960"},
		"writing behind scratch": {tampered{needs: func(n *device.Needs) { n.Scratch = 1000 },
			after: func(_ []uint32, scratch, _ []byte) { damage(scratch) }}, WroteOutside,
			"it wrote outside its memory: 1 bytes behind the end of its scratch memory of 1000 bytes"},
		"writing behind the result": {tampered{after: func(_ []uint32, _, result []byte) { damage(result) }}, WroteOutside,
			`batch "one megabyte": it wrote outside its memory: 1 bytes behind the end of its result of 512 bytes`},
		"scratch that is read": {tampered{needs: func(n *device.Needs) { n.Scratch = 256 },
			after: func(offsets []uint32, scratch, result []byte) {
				if n := len(offsets) - 1; n > 0 && result[status(offsets)+n-1] == 0 {
					result[4*(n-1)] ^= scratch[7]
				}
			}}, Uninitialized,
			"its result depends on what was in memory before"},
		"the number of records": {tampered{after: func(offsets []uint32, _, result []byte) {
			for i := range len(offsets) - 1 {
				if offsets[i] < offsets[i+1] {
					result[4*i] = byte(len(offsets))
				}
			}
		}}, Neighbors, "its result depends on the number of records in the batch"},
		"a panic": {tampered{after: func(offsets []uint32, _, result []byte) {
			if len(offsets) == 2 && len(result) > 0 {
				panic("out of ideas")
			}
		}}, Lost, "the device failed: device host: operator entropy: launch: device lost by a kernel: kernel entropy on stream devkit: panic: out of ideas"},
	} {
		t.Run(name, func(t *testing.T) {
			c.HostKernel = l
			finds(t, runner(t, Subject{Device: onHost(t, &c.tampered), Operator: bind(t, l.Description(), "")}), nil, c.kind, c.text)
		})
	}
}

func TestBatchThatDoesNotEndIsFound(t *testing.T) {
	release := make(chan struct{})
	k := &tampered{HostKernel: operator.HostKernels()[0], after: func([]uint32, []byte, []byte) { <-release }}
	d := onHost(t, k)
	defer close(release)
	r, err := Open(Subject{Device: d, Operator: bind(t, compiled.BuiltIn()[0], ""), Patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() }) // the device reports leaks
	report, err := r.Test(t.Context(), Batches(1), nil)
	if err != nil || len(report.Findings) != 1 || report.Findings[0].Kind != Endless ||
		report.Findings[0].String() != `batch "nothing": it didn't finish within 1ms: look for a loop that doesn't end` {
		t.Errorf("%v, %v", report.Findings, err)
	}
}

// TestBatchThatTakesLongIsNoticed ends the batch when Waiting is called, to keep the test short.
func TestBatchThatTakesLongIsNoticed(t *testing.T) {
	noticed := make(chan struct{})
	k := &tampered{HostKernel: operator.HostKernels()[0], after: func([]uint32, []byte, []byte) { <-noticed }}
	r := runner(t, Subject{Device: onHost(t, k), Operator: bind(t, compiled.BuiltIn()[0], ""),
		Notice: time.Millisecond, Waiting: func(string, time.Duration) { close(noticed) }})
	if answers, err := r.Compute(t.Context(), "a batch", [][]byte{[]byte("123456789")}); err != nil || answers[0].String() != `"e3069283"` {
		t.Errorf("%v, %v", answers, err)
	}
}

// TestDevicesThatDifferAreFound simulates two devices with different results by two sources of one operator.
func TestDevicesThatDifferAreFound(t *testing.T) {
	l := library(t, "examples/operators/entropy/entropy.cu")
	four := runner(t, Subject{Device: onHost(t, l), Operator: bind(t, l.Description(), "?bits=4")})
	five := runner(t, Subject{Device: onSim(t, l), Operator: bind(t, l.Description(), "?bits=5")})
	finds(t, five, four, Devices, `its result depends on the device (the simulated device gives {"peak":`)
}

// TestUndeclaredResultsOfAGPUAreFound: on a GPU, the suite itself performs the checks of the host device. The fake GPU runs the
// code for the CPU.
func TestUndeclaredResultsOfAGPUAreFound(t *testing.T) {
	path := fakecuda.Library(t)
	fakecuda.Set(t, "")
	d, err := cuda.Open(cuda.Options{Library: path})
	opened(t, d, err)
	m, err := d.(device.Loader).LoadOperator(fakecuda.Image(t, "internal/operator/cpulib/testdata/liar.cu"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() }) // the device reports leaks
	description, err := compiled.Decode(m.Description())
	if err != nil {
		t.Fatal(err)
	}
	r := runner(t, Subject{Device: d, Operator: bind(t, description, "")})
	finds(t, r, nil, Undeclared, "operator liar: record 115 has an undeclared result: status 2: it declares liar version 1")
}

func TestFaultOfAGPUIsFound(t *testing.T) {
	path := fakecuda.Library(t)
	fakecuda.Set(t, "")
	d, err := cuda.Open(cuda.Options{Library: path})
	opened(t, d, err)
	r := runner(t, Subject{Device: d, Operator: bind(t, compiled.BuiltIn()[0], "")})
	fakecuda.Set(t, "call=cudaLaunchKernel code=700 how=device")
	finds(t, r, nil, Lost, "; compute-sanitizer shows the access: worker operator test --sanitize")
	fakecuda.Set(t, "")
}

// TestLargeBoundsAreDivided: the suite divides a batch whose results need too much memory, and reports the untested part.
func TestLargeBoundsAreDivided(t *testing.T) {
	l := library(t, "kernels/test/operators/wrong/wide.cu")
	r := runner(t, Subject{Device: onHost(t, l), Operator: bind(t, l.Description(), ""), Brief: true})
	report, err := r.Test(t.Context(), []corpus.Set{{Name: "many", Payloads: corpus.Empties(32)}}, nil)
	if err != nil || len(report.Findings) > 0 || report.Records != 16 || len(report.Untested) != 1 ||
		!strings.HasPrefix(report.Untested[0], `16 records of batch "many": memory for a batch is bounded, and 4 such records take 32 MiB`) {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestComputeReturnsAnswers(t *testing.T) {
	l := library(t, "examples/operators/entropy/entropy.cu")
	r := runner(t, Subject{Device: onHost(t, l), Operator: bind(t, l.Description(), "")})
	answers, err := r.Compute(t.Context(), "a batch", [][]byte{[]byte("aab"), nil})
	if err != nil || len(answers) != 2 || answers[0].String() != `{"peak":3}` || answers[1].Status != 1 || answers[1].String() != "rejected: the record is empty" {
		t.Errorf("%v, %v", answers, err)
	}
}

// TestSinglyTellsEachRecord: RunSingly passes each record to Before, so that a supervising process knows the current record.
func TestSinglyTellsEachRecord(t *testing.T) {
	l := library(t, "examples/operators/entropy/entropy.cu")
	var told []string
	r := runner(t, Subject{Device: onHost(t, l), Operator: bind(t, l.Description(), ""),
		Before: func(batch string, record int, _ []byte) { told = append(told, fmt.Sprint(batch, record)) }})
	if err := r.RunSingly(t.Context(), []corpus.Set{{Name: "a", Payloads: corpus.Empties(2)}, {Name: "b", Payloads: corpus.Empties(1)}}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a0", "a1", "b0"}; !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}
