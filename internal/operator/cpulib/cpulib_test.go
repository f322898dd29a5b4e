//go:build cgo

package cpulib

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/testbuild"
)

const (
	headers   = "../../../kernels/include"
	entropyCU = "../../../examples/operators/entropy/entropy.cu"
	kindsCU   = "../../../kernels/test/operators/kinds.cu"
)

// compile compiles an operator for the CPU and opens it.
func compile(t testing.TB, source string) *Library {
	t.Helper()
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("SKIPPED: no C++ compiler")
	}
	library, err := testbuild.Output([]string{source}, func(output string) *exec.Cmd {
		return exec.Command("c++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique",
			"-ffp-contract=off", "-I"+headers, "-x", "c++", source, "-o", output)
	})
	if err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "operator.so")
	if err := os.WriteFile(output, library, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(output)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func bind(t testing.TB, l *Library, query string) *Kernel {
	t.Helper()
	o, err := l.Description().Bind(query)
	if err != nil {
		t.Fatal(err)
	}
	k, err := l.Bind(o.Params())
	if err != nil {
		t.Fatal(err)
	}
	return k.(*Kernel)
}

func join(rows [][]byte) (data []byte, offsets []uint32) {
	offsets = []uint32{0}
	for _, row := range rows {
		data = append(data, row...)
		offsets = append(offsets, uint32(len(data)))
	}
	return data, offsets
}

// together is a device.Parallel with one goroutine per call.
func together(n int, fn func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { fn(i) })
	}
	all.Wait()
}

// run runs a kernel on a batch in memory that is filled with noise.
func run(t testing.TB, k *Kernel, rows [][]byte, noise byte) (offsets []uint32, result []byte) {
	t.Helper()
	data, offsets := join(rows)
	needs := k.Needs(device.Shape{Rows: len(rows), Bytes: len(data)})
	scratch, result := bytes.Repeat([]byte{noise}, needs.Scratch), bytes.Repeat([]byte{noise}, needs.Result)
	if err := k.Run(data, offsets, scratch, result, together); err != nil {
		t.Fatal(err)
	}
	return offsets, result
}

// batches returns adversarial batches.
func batches() map[string][][]byte {
	random := rand.New(rand.NewPCG(7, 8))
	ragged := make([][]byte, 0, 3000)
	for range 3000 {
		row := make([]byte, random.IntN(1+random.IntN(2000)))
		for i := range row {
			row[i] = byte(random.Uint32())
		}
		ragged = append(ragged, row)
	}
	return map[string][][]byte{
		"nothing":       {},
		"empty":         {{}},
		"lengths":       corpus.Lengths(5, 130),
		"ragged":        ragged,
		"8192 empties":  make([][]byte, 8192),
		"a megabyte":    {{}, corpus.Text(1, 1<<20), []byte("x")},
		"invalid UTF-8": corpus.InvalidUTF8(3),
	}
}

// peak is the reference implementation of entropy.
func peak(bits int, row []byte) uint32 {
	var bins [256]uint32
	var maximum uint32
	for _, b := range row {
		bin := &bins[b>>(8-bits)]
		*bin++
		maximum = max(maximum, *bin)
	}
	return maximum
}

func TestEntropyComputesWhatItsReferenceComputes(t *testing.T) {
	l := compile(t, entropyCU)
	for _, bits := range []int{1, 4, 6} {
		k := bind(t, l, fmt.Sprintf("bits=%d", bits))
		for name, rows := range batches() {
			offsets, result := run(t, k, rows, 0xa5)
			layout := k.Operator().Layout(len(rows), int(offsets[len(rows)]))
			for i, row := range rows {
				got, status := binary.LittleEndian.Uint32(result[4*i:]), result[layout.Status+i]
				if len(row) == 0 {
					if text, _ := k.Operator().Reason(status); got != 0 || text != "the record is empty" {
						t.Fatalf("%s: empty record %d: %d, status %d (%s)", name, i, got, status, text)
					}
				} else if want := peak(bits, row); got != want || status != 0 {
					t.Fatalf("%s, bits %d: record %d of %d bytes: got %d with status %d, want %d", name, bits, i, len(row), got, status, want)
				}
			}
		}
	}
}

// TestResultsDependOnTheBatchAlone: a result must not contain former contents of its memory.
func TestResultsDependOnTheBatchAlone(t *testing.T) {
	k := bind(t, compile(t, kindsCU), "n=5")
	for name, rows := range batches() {
		offsets, a := run(t, k, rows, 0x00)
		_, b := run(t, k, rows, 0xff)
		if !k.Equal(offsets, a, b) {
			t.Errorf("%s: the result depends on the earlier contents of its memory", name)
		}
	}
}

func TestByteStringsAreWhereTheLayoutSays(t *testing.T) {
	library := compile(t, kindsCU)
	k := bind(t, library, "")
	rows := [][]byte{[]byte("hello"), {}, []byte("xyz"), []byte("World12345678")}
	offsets, result := run(t, k, rows, 0x5a)
	for i, want := range []string{
		`"upper":"HELLO!-"`, `"upper":"!-"`, "", `"upper":"WORLD12345678!-"`,
	} {
		got := string(k.Operator().AppendJSON(nil, k.Operator().AppendValue(nil, offsets, result, i)))
		if !strings.Contains(got, want) {
			t.Errorf("record %d: %s has no %s", i, got, want)
		}
	}
	if status := result[k.Operator().Layout(4, int(offsets[4])).Status+2]; status != 1 {
		t.Errorf("the record that begins with x has status %d", status)
	}
	k = bind(t, library, "loud=false")
	offsets, result = run(t, k, rows, 0x5a)
	got := string(k.Operator().AppendJSON(nil, k.Operator().AppendValue(nil, offsets, result, 0)))
	if !strings.Contains(got, `"upper":"HELLO-"`) || !strings.Contains(got, `"loud":false`) {
		t.Errorf("with loud=false: %s", got)
	}
}

func TestUndeclaredResultsAreAnError(t *testing.T) {
	k := bind(t, compile(t, "testdata/liar.cu"), "")
	for row, want := range map[string]string{"s": "record 1 has an undeclared result: status 2", "t": "record 1 has an undeclared result: text is too long"} {
		data, offsets := join([][]byte{[]byte("fine"), []byte(row)})
		result := make([]byte, k.Needs(device.Shape{Rows: 2, Bytes: len(data)}).Result)
		if err := k.Run(data, offsets, nil, result, together); err != nil {
			t.Fatal(err)
		}
		if err := k.Operator().Check(offsets, result); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", row, err, want)
		}
	}
}

// TestUndeclaredResultsAreRefusedRecordByRecord: readers must check each status and length that an operator writes.
func TestUndeclaredResultsAreRefusedRecordByRecord(t *testing.T) {
	k := bind(t, compile(t, "testdata/liar.cu"), "")
	data, offsets := join([][]byte{[]byte("fine"), []byte("s"), []byte("t")})
	result := make([]byte, k.Needs(device.Shape{Rows: 3, Bytes: len(data)}).Result)
	if err := k.Run(data, offsets, nil, result, together); err != nil {
		t.Fatal(err)
	}
	o := k.Operator()
	statuses := result[o.Layout(3, len(data)).Status:]
	for i, want := range []string{"", "undeclared result: status 2", "undeclared result: text is too long"} {
		got := o.Refusal(statuses[i])
		if got == "" {
			got = o.Overlong(offsets, result, i)
		}
		if got != want || compiled.IsUndeclared(got) != (want != "") {
			t.Errorf("record %d: %q, want %q", i, got, want)
		}
	}
	if text := o.AppendStrings(nil, offsets, result, 2); len(text) != 0 {
		t.Errorf("a string that is too long was read: %q", text)
	}
	for i := range 4 {
		result[2*o.Stride()+i] = 0xff // a kernel can write any length
	}
	if text := o.AppendStrings(nil, offsets, result, 2); len(text) != 0 || o.Overlong(offsets, result, 2) == "" {
		t.Errorf("a string of 4 GiB was read: %d bytes", len(text))
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	l := compile(t, entropyCU)
	for _, block := range [][]byte{{}, {4, 0, 0}, {0, 0, 0, 0}, {7, 0, 0, 0}} {
		if _, err := l.Bind(block); err == nil {
			t.Errorf("the block %x is accepted", block)
		}
	}
	k := bind(t, l, "")
	if err := k.Run([]byte("abc"), []uint32{0, 3}, nil, make([]byte, 8), together); err == nil {
		t.Error("a result of 8 bytes is accepted")
	}
	if err := k.Run([]byte("abc"), []uint32{0, 2}, nil, make([]byte, 1024), together); err == nil {
		t.Error("offsets of another batch are accepted")
	}
}

func TestOtherLibrariesAreRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(text); err == nil || !strings.Contains(err.Error(), "worker operator build") {
		t.Errorf("a text: error %v contains no advice", err)
	}
}

// TestHostDeviceRunsIt runs an operator on streams of the host device.
func TestHostDeviceRunsIt(t *testing.T) {
	l := compile(t, entropyCU)
	d, err := host.Open(host.Options{Cores: 2, Kernels: []device.HostKernel{l}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	rows := corpus.Lengths(9, 100)
	data, offsets := join(rows)
	k, err := d.Kernel("entropy", bind(t, l, "").Operator().Params())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	shape := device.Shape{Rows: len(rows), Bytes: len(data), Longest: 100}
	in, err := d.AllocHost(len(data) + 4*len(offsets))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.FreeHost(in) }()
	table, err := d.AllocHost(4 * len(offsets))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.FreeHost(table) }()
	out, err := d.AllocHost(k.Needs(shape).Result)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.FreeHost(out) }()
	copy(in.Bytes(), data)
	for i, offset := range offsets {
		binary.LittleEndian.PutUint32(table.Bytes()[4*i:], offset)
	}
	s, err := d.NewStream("test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	mapped := func(b device.HostBuffer) device.Memory {
		m, err := d.Map(b)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	args := device.LaunchArgs{Shape: shape, Rows: mapped(in), Offsets: mapped(table), Result: mapped(out)}
	if err := s.Launch(k, args); err != nil {
		t.Fatal(err)
	}
	if err := s.Notify(1); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WaitCompletion(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if got, want := binary.LittleEndian.Uint32(out.Bytes()[4*i:]), peak(4, row); got != want {
			t.Errorf("record %d: %d, want %d", i, got, want)
		}
	}
}

func TestRunAllocatesNothingPerRecord(t *testing.T) {
	k := bind(t, compile(t, entropyCU), "")
	one := func(n int, fn func(i int)) {
		for i := range n {
			fn(i)
		}
	}
	allocations := func(n int) float64 {
		data, offsets := join(slicesOf(n))
		result := make([]byte, k.Needs(device.Shape{Rows: n, Bytes: len(data)}).Result)
		return testing.AllocsPerRun(20, func() {
			if err := k.Run(data, offsets, nil, result, one); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := allocations(10), allocations(5000); many > few {
		t.Errorf("%v allocations for 5000 records, and %v for 10", many, few)
	}
}

// slicesOf returns n records.
func slicesOf(n int) [][]byte {
	rows := make([][]byte, n)
	for i := range rows {
		rows[i] = []byte("a record of some bytes")
	}
	return rows
}

func BenchmarkEntropy(b *testing.B) {
	k := bind(b, compile(b, entropyCU), "")
	rows := make([][]byte, 2048)
	for i := range rows {
		rows[i] = corpus.Text(uint64(i), 2048)
	}
	data, offsets := join(rows)
	result := make([]byte, k.Needs(device.Shape{Rows: len(rows), Bytes: len(data)}).Result)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := k.Run(data, offsets, nil, result, together); err != nil {
			b.Fatal(err)
		}
	}
}
