//go:build cgo

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/cuda/fakecuda"
	"millrace/internal/operator/compiled"
)

const tallyCU = "kernels/test/operators/tally.cu"

// boundTally returns the operator tally, bound with its tables.
func boundTally(t *testing.T, m device.Module) *compiled.Operator {
	t.Helper()
	d, err := compiled.Decode(m.Description())
	if err != nil {
		t.Fatal(err)
	}
	d.Folder = t.TempDir()
	for name, text := range map[string]string{"weights": "\x01\x02", "swaps": "AB"} {
		if err := os.WriteFile(filepath.Join(d.Folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o, err := d.Bind("weights=weights&swaps=swaps")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The passes are launched in order before the records are computed. Each pass has as many blocks as its declaration
// requires.
func TestPassesAreLaunched(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	image := fakecuda.Image(t, tallyCU)
	d := openFake(t, "trace="+trace)
	o := boundTally(t, mustLoad(t, d, image))
	for _, c := range []struct {
		rows  [][]byte
		grids []string
	}{
		{[][]byte{[]byte("ab\x00c"), {}, []byte(strings.Repeat("z", 197))},
			[]string{"tally.prepare grid=3,1,1 block=32", "tally.bytes grid=3,1,1 block=64", "tally.records grid=1,1,1 block=96", "tally grid=1,1,1 block=128"}},
		{make([][]byte, 97), []string{"tally.prepare grid=3,1,1 block=32", "tally.records grid=2,1,1 block=96", "tally grid=25,1,1 block=128"}},
	} {
		if err := os.RemoveAll(trace); err != nil {
			t.Fatal(err)
		}
		offsets, result := runBatch(t, d, o, c.rows)
		n, size := len(c.rows), int(offsets[len(c.rows)])
		layout := o.Layout(n, size)
		want := ""
		for _, grid := range c.grids {
			want += fmt.Sprintf("%s,1,1 shared=0 size=72 rows=%d bytes=%d stride=%d status=%d strings=%d params=%s\n", grid, n, size, o.Stride(),
				layout.Status, layout.Strings, hex.EncodeToString(o.Block()))
		}
		if got, err := os.ReadFile(trace); err != nil || string(got) != want {
			t.Errorf("%v\ngot\n%swant\n%s", err, got, want)
		}
		if err := o.Check(offsets, result); err != nil {
			t.Error(err)
		}
		if size == 0 {
			continue
		}
		const first = `{"weight":9,"letters":3,"seen":15,"least":-128,"most":0,"last":3,"swapped":"abAc"}`
		if got := string(o.AppendJSON(nil, o.AppendValue(nil, offsets, result, 0))); got != first {
			t.Errorf("%s, want %s", got, first)
		}
	}
}

func TestNeedsCountScratchMemory(t *testing.T) {
	image := fakecuda.Image(t, tallyCU)
	d := openFake(t, "")
	o := boundTally(t, mustLoad(t, d, image))
	k := must[device.Kernel](t)(d.Kernel("tally", o.Params()))
	for _, shape := range []device.Shape{{}, {Rows: 1}, {Rows: 3, Bytes: 1000}, {Rows: 1 << 20, Bytes: 1 << 30}} {
		if got, want := k.Needs(shape), (device.Needs{Scratch: o.Scratch(shape.Rows, shape.Bytes), Result: o.Layout(shape.Rows, shape.Bytes).End}); got != want {
			t.Errorf("%+v needs %+v, want %+v", shape, got, want)
		}
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

func TestBadTablesOfABlockAreRefused(t *testing.T) {
	image := fakecuda.Image(t, tallyCU)
	d := openFake(t, "")
	params := boundTally(t, mustLoad(t, d, image)).Params()
	change := func(at int, to byte) []byte {
		block := append([]byte{}, params...)
		block[at] = to
		return block
	}
	for name, c := range map[string]struct {
		block []byte
		word  string
	}{
		"nothing":       {nil, "a parameter block of 0 bytes: it takes 32"},
		"no tables":     {params[:24], "a parameter block of 24 bytes: it takes 32"},
		"half":          {params[:len(params)-1], "table swaps isn't in the parameter block of 49 bytes"},
		"one byte more": {append(params[:len(params):len(params)], 0), "a parameter block of 51 bytes: it takes 50"},
		"empty":         {change(12, 0), "table weights isn't in the parameter block"},
		"far":           {change(11, 0x80), "table weights isn't in the parameter block"},
		"huge":          {change(15, 0x80), "table weights isn't in the parameter block"},
		"too large":     {change(20, 65), "table swaps isn't in the parameter block"},
	} {
		if _, err := d.Kernel("tally", c.block); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: got %v, want %q", name, err, c.word)
		}
	}
}

// Operators with tables or passes make additional calls. A device failure in any of them is reported and leaves no
// object open.
func TestFailuresOfTablesAndPassesAreReported(t *testing.T) {
	image := fakecuda.Image(t, tallyCU)
	d := openFake(t, "")
	o := boundTally(t, mustLoad(t, d, image))
	for _, call := range []string{"cudaMalloc", "cudaMemcpyAsync"} {
		fakecuda.Set(t, "call="+call+" code=2 how=once")
		if _, err := d.Kernel("tally", o.Params()); !errors.Is(err, device.ErrOutOfMemory) {
			t.Errorf("%s fails: got %v", call, err)
		}
	}
	fakecuda.Set(t, "")
	k := must[device.Kernel](t)(d.Kernel("tally", o.Params()))
	s := must[device.Stream](t)(d.NewStream("s"))
	shape := device.Shape{Rows: 1, Bytes: 1, Longest: 1}
	needs := k.Needs(shape)
	memory := must[device.Memory](t)(d.Alloc(4096 + needs.Scratch))
	args := device.LaunchArgs{Shape: shape, Rows: memory.Slice(0, 1), Offsets: memory.Slice(256, 8), Result: memory.Slice(512, needs.Result),
		Scratch: memory.Slice(4096, needs.Scratch)}
	for _, settings := range []string{"call=cudaMemsetAsync code=2 how=once", "call=cuLaunchKernel code=2 how=once", "call=cuLaunchKernel code=2 how=once from=3"} {
		fakecuda.Set(t, settings)
		if err := s.Launch(k, args); !errors.Is(err, device.ErrOutOfMemory) {
			t.Errorf("%s: got %v", settings, err)
		}
	}
	small := args
	small.Scratch = memory.Slice(4096, needs.Scratch-1)
	if err := s.Launch(k, small); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), "bytes of scratch") {
		t.Errorf("too little scratch memory: got %v", err)
	}
	fakecuda.Set(t, "call=cudaFree code=2 how=once")
	if err := k.Close(); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("the table was not freed: got %v", err)
	}
	fakecuda.Set(t, "")
	for _, err := range []error{s.Close(), d.Free(memory)} {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestImagesWithDamagedPassesAreRefused(t *testing.T) {
	image := fakecuda.Image(t, tallyCU)
	_, description, found := bytes.Cut(image, []byte("MILLROP\x00"))
	if !found {
		t.Fatal("the image has no description")
	}
	passes := int(binary.LittleEndian.Uint32(description[160-8:])) // passes_at
	for name, c := range map[string]struct {
		at   int
		with []byte
		want string
	}{
		"many passes":      {152, []byte{9}, "the number of passes"},
		"far passes":       {160, []byte{0, 0, 1}, "the number of passes"},
		"little scratch":   {164, []byte{3, 0, 0, 0}, "the size of scratch memory"},
		"huge scratch":     {168, []byte{0, 0, 0, 1}, "the size of scratch memory"},
		"no threads":       {passes + 32, []byte{0, 0}, "a pass"},
		"many blocks":      {passes + 36, []byte{1, 0, 1, 0}, "a pass"},
		"blocks per row":   {passes + 40, []byte{2}, "a pass"},
		"no share":         {passes + 48, []byte{0}, "a pass"},
		"an unknown name":  {passes, []byte("x"), "the image has no millrace_operator_pass_xrepare"},
		"an endless name":  {passes, []byte(strings.Repeat("x", 32)), "a pass"},
		"threads of a GPU": {passes + 32, []byte{0, 8}, "a pass"},
	} {
		d := openFake(t, "")
		if _, err := load(d, patched(t, image, c.at, c.with...)); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	d := openFake(t, "threads=32")
	if _, err := load(d, image); !errors.Is(err, device.ErrUnavailable) || !strings.Contains(err.Error(), "tally has 64 threads per block in millrace_operator_pass_bytes") {
		t.Errorf("too many threads: %v", err)
	}
}
