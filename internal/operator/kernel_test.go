package operator

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/device"
)

// parallels are implementations of device.Parallel with different orders.
var parallels = map[string]device.Parallel{
	"in order":  inOrder,
	"backwards": backwards,
	"at once":   atOnce,
}

func inOrder(n int, fn func(int)) {
	for i := range n {
		fn(i)
	}
}

func backwards(n int, fn func(int)) {
	for i := n - 1; i >= 0; i-- {
		fn(i)
	}
}

func atOnce(n int, fn func(int)) {
	var group sync.WaitGroup
	for worker := range min(8, n) {
		group.Go(func() {
			for i := worker; i < n; i += 8 {
				fn(i)
			}
		})
	}
	group.Wait()
}

func parse(t testing.TB, spec string) Operator {
	t.Helper()
	op, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// parseKernel returns the operator that pipelines run for spec.
func parseKernel(t testing.TB, spec string) Operator {
	t.Helper()
	return KernelOf(parse(t, spec))
}

// bind returns the host kernel of op with op's parameters.
func bind(t testing.TB, op Operator) device.BoundHostKernel {
	t.Helper()
	for _, kernel := range HostKernels() {
		if kernel.Name() == op.Name() {
			bound, err := kernel.Bind(op.Params())
			if err != nil {
				t.Fatal(err)
			}
			return bound
		}
	}
	t.Fatalf("no host kernel is called %q", op.Name())
	return nil
}

// variants returns the host kernel of op with op's parameters, in each variant that this processor supports.
func variants(t testing.TB, op Operator) map[string]device.BoundHostKernel {
	t.Helper()
	kernel := bind(t, op)
	all := make(map[string]device.BoundHostKernel)
	for _, v := range minhashVariants {
		switch k := kernel.(type) {
		case minhashKernel:
			k.sign = v.Sign
			all[v.Name] = k
		case neardupKernel:
			k.minhash.sign = v.Sign
			all[v.Name] = k
		default:
			return map[string]device.BoundHostKernel{"Go": kernel}
		}
	}
	return all
}

// cutAt returns k with a different piece size, to split even short rows.
func cutAt(k device.BoundHostKernel, pieceUnits int) device.BoundHostKernel {
	switch k := k.(type) {
	case crc32cKernel:
		k.pieceUnits = pieceUnits
		return k
	case minhashKernel:
		k.pieceUnits = pieceUnits
		return k
	case neardupKernel:
		k.minhash.pieceUnits = pieceUnits
		return k
	}
	panic(fmt.Sprintf("no pieces to cut in a %T", k))
}

// reference returns the records of all payloads, back to back.
func reference(op Operator, set [][]byte) []byte {
	var records []byte
	for _, payload := range set {
		records = op.AppendReference(records, payload)
	}
	return records
}

// compute runs k on a batch in memory of exactly the requested size, which is filled with garbage.
func compute(t testing.TB, k device.BoundHostKernel, set [][]byte, parallel device.Parallel) []byte {
	t.Helper()
	rows, offsets := corpus.Pack(set)
	needs := k.Needs(shapeOf(set))
	scratch := bytes.Repeat([]byte{0xA5}, needs.Scratch)
	result := bytes.Repeat([]byte{0x01}, needs.Result)
	if err := k.Run(rows, offsets, scratch, result, parallel); err != nil {
		t.Fatal(err)
	}
	return result
}

func shapeOf(set [][]byte) device.Shape {
	s := device.Shape{Rows: len(set)}
	for _, payload := range set {
		s.Bytes += len(payload)
		s.Longest = max(s.Longest, len(payload))
	}
	return s
}

// compare reports the payload whose record differs.
func compare(t testing.TB, op Operator, set [][]byte, got, want []byte) {
	t.Helper()
	if len(got) != len(set)*op.Stride() {
		t.Fatalf("%s: %d result bytes for %d payloads, want %d", op, len(got), len(set), len(set)*op.Stride())
	}
	for i, payload := range set {
		record := got[i*op.Stride():][:op.Stride()]
		if wanted := want[i*op.Stride():][:op.Stride()]; !bytes.Equal(record, wanted) {
			t.Fatalf("%s: payload %d of %d bytes: %v", op, i, len(payload),
				Compare(op.AppendJSON(nil, record), op.AppendJSON(nil, wanted)))
		}
	}
}

// TestHostKernelsOnAllSets tests every set of payloads with the piece size of real batches.
func TestHostKernelsOnAllSets(t *testing.T) {
	for _, spec := range []string{"crc32c", "minhash?hashes=32", "minhash?k=1&hashes=1", "minhash?k=256&hashes=3&seed=0", "neardup", "neardup?bands=3&rows=1&k=5"} {
		op := parseKernel(t, spec)
		for _, set := range corpus.Sets(11) {
			want := reference(op, set.Payloads)
			for name, kernel := range variants(t, op) {
				t.Run(spec+"/"+set.Name+"/"+name, func(t *testing.T) {
					compare(t, op, set.Payloads, compute(t, kernel, set.Payloads, atOnce), want)
				})
			}
		}
	}
}

// TestHostKernelsSplitAnywhere splits short rows into tiny pieces. Boundaries occur at every position: within
// characters, within shingles and between empty rows.
func TestHostKernelsSplitAnywhere(t *testing.T) {
	set := corpus.InvalidUTF8(21)[:40]
	set = append(set, corpus.Empties(9)...)
	set = append(set, corpus.TextLengths(22, 60)...)
	set = append(set, asciiText(23, 300))
	set = append(set, corpus.Empties(1)...)
	for _, spec := range []string{"crc32c", "minhash?k=1&hashes=2", "minhash?k=5&hashes=3", "minhash?k=24&hashes=1", "neardup?bands=3&rows=5&k=3"} {
		op := parseKernel(t, spec)
		want := reference(op, set)
		for pieceUnits := 1; pieceUnits < 70; pieceUnits += 1 + pieceUnits/8 {
			for variant, kernel := range variants(t, op) {
				for name, parallel := range parallels {
					t.Run(fmt.Sprintf("%s/%s/%d units/%s", spec, variant, pieceUnits, name), func(t *testing.T) {
						compare(t, op, set, compute(t, cutAt(kernel, pieceUnits), set, parallel), want)
					})
				}
			}
		}
	}
}

func TestMinhashHostKernelParameters(t *testing.T) {
	set := append(corpus.TextLengths(31, 50), corpus.Text(32, 500), corpus.Bytes(33, 500), asciiText(34, 700))
	for _, k := range []int{1, 2, 3, 4, 5, 6, 7, 23, 24, 25, 255, 256} {
		for _, hashes := range []int{1, 2, 3, 15, 16, 17, 127, 128, 129, 1023, 1024} {
			if k > 3 && hashes > 128 && k != 256 {
				continue // extreme values suffice, because each test takes some milliseconds
			}
			op := parse(t, fmt.Sprintf("minhash?k=%d&hashes=%d&seed=%d", k, hashes, k*hashes))
			want := reference(op, set)
			for name, kernel := range variants(t, op) {
				t.Run(op.String()+"/"+name, func(t *testing.T) {
					compare(t, op, set, compute(t, cutAt(kernel, 200), set, atOnce), want)
				})
			}
		}
	}
}

// TestMinhashMixesCharacters uses text of one-byte characters with a longer character at every distance. The beginning and the end of a
// vectorized block therefore reach that character.
func TestMinhashMixesCharacters(t *testing.T) {
	set := [][]byte{asciiText(35, 300)}
	for at := range 300 {
		text := asciiText(uint64(at), 300)
		set = append(set, slices.Concat(text[:at], []byte("é"), text[at:]), slices.Concat(text[:at], []byte("\x80\x80\x80"), text[at:]))
	}
	for _, spec := range []string{"minhash?k=1&hashes=5", "minhash?k=24&hashes=5", "minhash?k=27&hashes=5"} {
		op := parseKernel(t, spec)
		want := reference(op, set)
		for name, kernel := range variants(t, op) {
			t.Run(spec+"/"+name, func(t *testing.T) { compare(t, op, set, compute(t, kernel, set, inOrder), want) })
		}
	}
}

// TestHostKernelsKeepToTheirMemory: the kernel writes nothing outside its memory. The batch starts at any address, and memory is
// larger than needed.
func TestHostKernelsKeepToTheirMemory(t *testing.T) {
	set := corpus.TextLengths(41, 100)
	rows, offsets := corpus.Pack(set)
	rows = append(bytes.Repeat([]byte{'x'}, 1000), rows...)
	for i := range offsets {
		offsets[i] += 1000
	}
	for _, spec := range []string{"crc32c", "minhash?hashes=16", "minhash?hashes=9", "neardup?bands=5&rows=3"} {
		op := parseKernel(t, spec)
		for name, kernel := range variants(t, op) {
			t.Run(spec+"/"+name, func(t *testing.T) { checkMemory(t, op, cutAt(kernel, 128), set, rows, offsets) })
		}
	}
}

func checkMemory(t *testing.T, op Operator, kernel device.BoundHostKernel, set [][]byte, rows []byte, offsets []uint32) {
	needs := kernel.Needs(shapeOf(set))
	scratch := bytes.Repeat([]byte{0xA5}, needs.Scratch+64)
	result := bytes.Repeat([]byte{0xA5}, needs.Result+64)
	if err := kernel.Run(append(rows[:len(rows):len(rows)], "behind"...), offsets, scratch, result, inOrder); err != nil {
		t.Fatal(err)
	}
	compare(t, op, set, result[:needs.Result], reference(op, set))
	untouched := bytes.Repeat([]byte{0xA5}, 64)
	if !bytes.Equal(scratch[needs.Scratch:], untouched) || !bytes.Equal(result[needs.Result:], untouched) {
		t.Errorf("%s wrote beyond the memory that it requested", op)
	}
}

func TestHostKernelsOfNoRows(t *testing.T) {
	for _, spec := range []string{"crc32c", "minhash", "neardup"} {
		kernel := bind(t, parseKernel(t, spec))
		if needs := kernel.Needs(device.Shape{}); needs != (device.Needs{}) {
			t.Errorf("%s needs %+v for an empty batch", spec, needs)
		}
		if err := kernel.Run(nil, []uint32{0}, nil, nil, inOrder); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestNeedsGrowWithTheBatch(t *testing.T) {
	op := bind(t, parse(t, "minhash?hashes=64"))
	small := op.Needs(device.Shape{Rows: 3, Bytes: 300, Longest: 200})
	if want := (device.Needs{Scratch: 1200, Result: 3 * 256}); small != want {
		t.Errorf("a small batch needs %+v, want %+v", small, want)
	}
	large := op.Needs(device.Shape{Rows: 3, Bytes: 1 << 20, Longest: 1 << 19})
	if large.Scratch <= 4<<20 || large.Result != small.Result {
		t.Errorf("a large batch needs %+v, want more than %d bytes of scratch, and %d of result", large, 4<<20, small.Result)
	}
	keys := bind(t, parseKernel(t, "neardup?bands=4&rows=16")).Needs(device.Shape{Rows: 3, Bytes: 300, Longest: 200})
	if want := (device.Needs{Scratch: 1200 + 3*256, Result: 3 * 32}); keys != want {
		t.Errorf("a small batch of neardup needs %+v, want %+v", keys, want)
	}
	if got := bind(t, parse(t, "crc32c")).Needs(device.Shape{Rows: 5, Bytes: 100}); got != (device.Needs{Result: 20}) {
		t.Errorf("crc32c of five small rows needs %+v, want 20 bytes of result and no scratch", got)
	}
}

func TestHostKernelsRefuseBadBatches(t *testing.T) {
	rows, scratch, result := make([]byte, 10), make([]byte, 1<<13), make([]byte, 1<<12)
	for name, offsets := range map[string][]uint32{
		"no offsets":        {},
		"falling offsets":   {0, 6, 5},
		"offset behind end": {0, 11},
	} {
		for _, spec := range []string{"crc32c", "minhash", "neardup"} {
			if err := bind(t, parseKernel(t, spec)).Run(rows, offsets, scratch, result, inOrder); !errors.Is(err, device.ErrInvalid) {
				t.Errorf("%s, %s: error %v, want ErrInvalid", spec, name, err)
			}
		}
	}
	for _, spec := range []string{"crc32c", "minhash", "neardup"} {
		kernel := cutAt(bind(t, parseKernel(t, spec)), 4)
		needs := kernel.Needs(device.Shape{Rows: 1, Bytes: 10, Longest: 10})
		for name, err := range map[string]error{
			"scratch": kernel.Run(rows, []uint32{0, 10}, scratch[:needs.Scratch-1], result, inOrder),
			"result":  kernel.Run(rows, []uint32{0, 10}, scratch, result[:needs.Result-1], inOrder),
		} {
			if !errors.Is(err, device.ErrInvalid) {
				t.Errorf("%s with short %s: error %v, want ErrInvalid", spec, name, err)
			}
		}
	}
	if err := bind(t, parse(t, "minhash")).Run(rows, []uint32{0, 10}, scratch[1:], result, inOrder); !errors.Is(err, device.ErrInvalid) {
		t.Errorf("minhash with unaligned scratch: error %v, want ErrInvalid", err)
	}
}

func TestBindRefusesBadBlocks(t *testing.T) {
	block := func(k, hashes byte) []byte { return []byte{k, 0, 0, 0, hashes, 0, 0, 0, 1, 0, 0, 0} }
	minhash := builtIns[1].(*builtInSource).kernel
	keys := builtIns[3].(*builtInSource).kernel
	tooLong := block(0, 0)
	tooLong[1], tooLong[4] = 2, 1 // k is 512
	for name, bad := range map[string]struct {
		kernel device.HostKernel
		block  []byte
	}{
		"crc32c takes nothing":  {crc32cHost{}, []byte{0}},
		"minhash wants a block": {minhash, nil},
		"a byte too many":       {minhash, append(block(1, 1), 0)},
		"k of 0":                {minhash, block(0, 1)},
		"k of 512":              {minhash, tooLong},
		"hashes of 0":           {minhash, block(1, 0)},
		"neardup wants a block": {keys, nil},
		"1,025 hashes":          {keys, slices.Concat([]byte{41, 0, 0, 0, 25, 0, 0, 0}, block(24, 1))[:16]},
	} {
		if _, err := bad.kernel.Bind(bad.block); !errors.Is(err, device.ErrInvalid) {
			t.Errorf("%s: error %v, want ErrInvalid", name, err)
		}
	}
}

// TestHostKernelsAllocateNothingAPayload: the number of allocations per batch must not grow with the number of
// payloads.
func TestHostKernelsAllocateNothingAPayload(t *testing.T) {
	for _, spec := range []string{"crc32c", "minhash?hashes=4", "neardup?bands=2&rows=2"} {
		kernel := bind(t, parseKernel(t, spec))
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
		one, many := allocations(corpus.Lengths(51, 0)), allocations(corpus.Lengths(51, 400))
		if many > one || one > 4 {
			t.Errorf("%s: %v allocations for a batch of 1 payload, %v for 401", spec, one, many)
		}
	}
}

func BenchmarkHostMinhash(b *testing.B) { benchmarkOperator(b, "minhash") }
func BenchmarkHostNeardup(b *testing.B) { benchmarkOperator(b, "neardup") }
func BenchmarkHostCRC32C(b *testing.B)  { benchmarkOperator(b, "crc32c") }

// benchmarkOperator runs batches of 512 KiB. Each variant of the host kernel uses one core or all cores, and the reference uses one
// core. The documents have characters of one byte, or of one to four bytes.
func benchmarkOperator(b *testing.B, spec string) {
	const batchBytes = 512 << 10
	op := parseKernel(b, spec)
	for _, c := range []struct {
		name     string
		rowBytes int
		text     func(seed uint64, n int) []byte
	}{{"2KiB", 2 << 10, asciiText}, {"64KiB", 64 << 10, asciiText}, {"2KiB-characters", 2 << 10, corpus.Text}} {
		var set [][]byte
		for i := range batchBytes / c.rowBytes {
			set = append(set, c.text(uint64(i), c.rowBytes))
		}
		for name, kernel := range variants(b, op) {
			b.Run(c.name+"/"+name+"/1core", func(b *testing.B) { benchmarkKernel(b, kernel, set, inOrder) })
			b.Run(fmt.Sprintf("%s/%s/%dcores", c.name, name, runtime.GOMAXPROCS(0)), func(b *testing.B) { benchmarkKernel(b, kernel, set, atOnce) })
		}
		b.Run(c.name+"/reference/1core", func(b *testing.B) {
			b.SetBytes(batchBytes)
			var record []byte
			for b.Loop() {
				for _, payload := range set {
					record = op.AppendReference(record[:0], payload)
				}
			}
		})
	}
}

func benchmarkKernel(b *testing.B, kernel device.BoundHostKernel, set [][]byte, parallel device.Parallel) {
	rows, offsets := corpus.Pack(set)
	needs := kernel.Needs(shapeOf(set))
	scratch, result := make([]byte, needs.Scratch), make([]byte, needs.Result)
	b.SetBytes(int64(len(rows)))
	b.ReportAllocs()
	for b.Loop() {
		if err := kernel.Run(rows, offsets, scratch, result, parallel); err != nil {
			b.Fatal(err)
		}
	}
}

// asciiText returns text of one-byte characters, which has the most shingles per byte.
func asciiText(seed uint64, n int) []byte {
	text := corpus.Text(seed, n)
	for i := range text {
		text[i] &= 0x7F
	}
	return text
}
