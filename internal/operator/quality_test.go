package operator

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	client "millrace/client/quality"
	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/operator/compiled"
)

// qualitySpecs are the specs with different results.
var qualitySpecs = []string{"quality", "quality?ngrams=true"}

// qualityKernelOf returns the host kernel with pieces of a few units.
func qualityKernelOf(t testing.TB, op Operator, pieceUnits int) device.BoundHostKernel {
	t.Helper()
	kernel := bind(t, op).(qualityKernel)
	kernel.pieceUnits = pieceUnits
	return kernel
}

// compareQuality compares the results of a batch with the reference, and returns the number of refused rows.
func compareQuality(t *testing.T, op Operator, set [][]byte, result []byte) (refused int) {
	t.Helper()
	r := op.(ReferenceRefuser)
	compare(t, op, set, result[:len(set)*op.Stride()], reference(op, set))
	for i, payload := range set {
		got, want := r.Refusal(result, len(set), i), r.ReferenceRefusal(payload)
		if got != want {
			t.Fatalf("row %d of %d: refusal %q, want %q", i, len(set), got, want)
		}
		if got != "" {
			refused++
		}
	}
	return refused
}

func TestQualityHostKernelOnAllSets(t *testing.T) {
	refused, rows := 0, 0
	for _, spec := range qualitySpecs {
		op := parse(t, spec)
		for _, set := range corpus.Sets(12) {
			t.Run(spec+"/"+set.Name, func(t *testing.T) {
				refused += compareQuality(t, op, set.Payloads, compute(t, bind(t, op), set.Payloads, atOnce))
				rows += len(set.Payloads)
			})
		}
	}
	if refused == 0 || refused == rows {
		t.Errorf("%d of %d rows are refused, want some", refused, rows)
	}
}

// TestQualityHostKernelSplitsAnywhere splits short rows into tiny pieces. A row belongs to the piece in which it begins.
func TestQualityHostKernelSplitsAnywhere(t *testing.T) {
	set := slices.Concat(corpus.InvalidUTF8(21)[:20], corpus.Empties(9), corpus.TextLengths(22, 60),
		[][]byte{[]byte("a\n\nb\n\na\n\nb\nb"), nil, []byte("\n\n\n")})
	for _, pieceUnits := range []int{1, 2, 7, 64, 1000} {
		for name, parallel := range parallels {
			t.Run(name, func(t *testing.T) {
				for _, spec := range qualitySpecs {
					op := parse(t, spec)
					compareQuality(t, op, set, compute(t, qualityKernelOf(t, op, pieceUnits), set, parallel))
				}
			})
		}
	}
}

// TestQualityHostKernelKeepsToItsMemory: the kernel writes nothing outside its memory, wherever the batch starts.
func TestQualityHostKernelKeepsToItsMemory(t *testing.T) {
	for _, spec := range qualitySpecs {
		t.Run(spec, func(t *testing.T) { keepsToItsMemory(t, parse(t, spec)) })
	}
}

func keepsToItsMemory(t *testing.T, op Operator) {
	t.Helper()
	set := append(corpus.TextLengths(41, 100), bytes.Repeat([]byte("a b "), 100), bytes.Repeat([]byte("a "), 99), []byte("a b c d e a b c d e"))
	rows, offsets := corpus.Pack(set)
	for i := range offsets {
		offsets[i] += 1000
	}
	rows = append(append(bytes.Repeat([]byte{'\n'}, 1000), rows...), "\n\nbehind"...)
	kernel := qualityKernelOf(t, op, 128)
	needs := kernel.Needs(shapeOf(set))
	edge := bytes.Repeat([]byte{0xA5}, 64)
	scratch, result := bytes.Repeat([]byte{0xA5}, needs.Scratch+64), bytes.Repeat([]byte{0xA5}, needs.Result+64)
	if err := kernel.Run(rows, offsets, scratch, result, inOrder); err != nil {
		t.Fatal(err)
	}
	compareQuality(t, op, set, result[:needs.Result])
	if !bytes.Equal(scratch[needs.Scratch:], edge) || !bytes.Equal(result[needs.Result:], edge) {
		t.Error("the kernel wrote beyond the memory that it requested")
	}
}

func TestQualityHostKernelNeeds(t *testing.T) {
	op := bind(t, parse(t, "quality"))
	if got := op.Needs(device.Shape{}); got != (device.Needs{}) {
		t.Errorf("no rows need %+v", got)
	}
	if got, want := op.Needs(device.Shape{Rows: 300, Bytes: 1000}), (device.Needs{Scratch: 4000, Result: 45824 + 512}); got != want {
		t.Errorf("300 rows need %+v, want %+v", got, want)
	}
	op = bind(t, parse(t, "quality?ngrams=true"))
	if got, want := op.Needs(device.Shape{Rows: 300, Bytes: 1000}), (device.Needs{Scratch: 15600, Result: 52992 + 512}); got != want {
		t.Errorf("300 rows with n-grams need %+v, want %+v", got, want)
	}
	kernel := bind(t, parse(t, "quality"))
	if err := kernel.Run(nil, []uint32{0}, nil, nil, inOrder); err != nil {
		t.Error(err)
	}
	for name, run := range map[string]func() error{
		"short scratch": func() error {
			return kernel.Run(make([]byte, 9), []uint32{0, 9}, make([]byte, 35), make([]byte, 512), inOrder)
		},
		"short result": func() error {
			return kernel.Run(make([]byte, 9), []uint32{0, 9}, make([]byte, 36), make([]byte, 511), inOrder)
		},
		"falling offsets": func() error {
			return kernel.Run(make([]byte, 9), []uint32{5, 4}, make([]byte, 36), make([]byte, 512), inOrder)
		},
		"a block": func() error {
			_, err := qualityHost{compiled.BuiltIn()[2]}.Bind([]byte{2})
			return err
		},
	} {
		if err := run(); !errors.Is(err, device.ErrInvalid) {
			t.Errorf("%s: error %v, want ErrInvalid", name, err)
		}
	}
}

func TestQualityHostKernelAllocatesNothingARow(t *testing.T) {
	kernel := bind(t, parse(t, "quality?ngrams=true"))
	allocations := func(set [][]byte) float64 {
		rows, offsets := corpus.Pack(set)
		needs := kernel.Needs(shapeOf(set))
		scratch, result := make([]byte, needs.Scratch), make([]byte, needs.Result)
		return testing.AllocsPerRun(10, func() {
			if err := kernel.Run(rows, offsets, scratch, result, inOrder); err != nil {
				panic(err)
			}
		})
	}
	one, many := allocations(corpus.TextLengths(51, 0)), allocations(corpus.TextLengths(51, 400))
	if many > one || one > 4 {
		t.Errorf("%v allocations for a batch of 1 row, %v for 401", one, many)
	}
}

// TestQualityResultsAreReadByTheClient: the value of a record gives the same counters in JSON and in binary.
func TestQualityResultsAreReadByTheClient(t *testing.T) {
	for spec, number := range map[string]client.Counter{"quality": client.Duplicate5GramChars, "quality?ngrams=true": client.NumCounters} {
		op := parse(t, spec)
		value := op.AppendReference(nil, []byte("We have to be there.\nWe have to be there.\n"))
		var fromJSON client.Counters
		if err := json.Unmarshal(op.AppendJSON(nil, value), &fromJSON); err != nil {
			t.Fatal(err)
		}
		fromBinary := make(client.Counters, number)
		if n, err := binary.Decode(value, binary.LittleEndian, fromBinary); err != nil || n != len(value) {
			t.Fatalf("%d of %d bytes, %v", n, len(value), err)
		}
		if !slices.Equal(fromJSON, fromBinary) || fromJSON[client.Words] != 10 || fromJSON[client.GrRepeatedLineChars] != 20 {
			t.Errorf("JSON gives %v, and binary gives %v", fromJSON, fromBinary)
		}
		if fromJSON.HasNGrams() && (fromJSON[client.Duplicate5GramChars] != 20 || fromJSON[client.Duplicate6GramChars] != 0) {
			t.Errorf("duplicates %v", fromJSON[client.Duplicate5GramChars:])
		}
	}
}

func BenchmarkHostQuality(b *testing.B) { benchmarkOperator(b, "quality") }

func BenchmarkHostQualityNGrams(b *testing.B) { benchmarkOperator(b, "quality?ngrams=true") }
