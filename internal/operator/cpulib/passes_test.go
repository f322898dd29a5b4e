//go:build cgo

package cpulib

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/host"
)

const (
	tallyCU    = "../../../kernels/test/operators/tally.cu"
	keywordsCU = "../../../examples/operators/keywords/keywords.cu"
)

// bindWithTables returns a kernel of an operator with the given tables.
func bindWithTables(t *testing.T, source, query string, tables map[string]string) *Kernel {
	t.Helper()
	l := compile(t, source)
	l.Description().Folder = t.TempDir()
	for name, text := range tables {
		if err := os.WriteFile(filepath.Join(l.Description().Folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return bind(t, l, query)
}

func tally(t *testing.T) *Kernel {
	return bindWithTables(t, tallyCU, "weights=w&swaps=s", map[string]string{"w": "\x01", "s": "A"})
}

// TestRecordsThatShareWorkHaveTheirOwnResults runs the blocks of a pass on all cores in any order. Neither the order nor other
// records change a record's result.
func TestRecordsThatShareWorkHaveTheirOwnResults(t *testing.T) {
	for name, k := range map[string]*Kernel{
		"tally":    tally(t),
		"keywords": bindWithTables(t, keywordsCU, "words=w&whole=0", map[string]string{"w": "the\nwhile water\nä\n\x00\n"}),
	} {
		for batch, rows := range batches() {
			offsets, result := run(t, k, rows, 0xa5)
			if _, again := run(t, k, rows, 0x5a); !k.Equal(offsets, result, again) {
				t.Errorf("%s, %s: the result depends on the earlier contents of memory", name, batch)
			}
			status := k.Operator().Layout(len(rows), int(offsets[len(rows)])).Status
			for i := 0; i < len(rows); i += 1 + len(rows)/50 {
				alone, single := run(t, k, rows[i:i+1], 0x33)
				got, want := k.Operator().AppendValue(nil, offsets, result, i), k.Operator().AppendValue(nil, alone, single, 0)
				if !bytes.Equal(got, want) || result[status+i] != single[k.Operator().Layout(1, len(rows[i])).Status] {
					t.Fatalf("%s, %s: record %d of %d bytes is %x with status %d in the batch, and %x alone", name, batch, i, len(rows[i]), got, result[status+i], want)
				}
			}
		}
	}
}

func TestPassesSeeTheTables(t *testing.T) {
	k := tally(t)
	rows := [][]byte{[]byte("ab\x00c"), {}}
	offsets, result := run(t, k, rows, 0x77)
	got := string(k.Operator().AppendJSON(nil, k.Operator().AppendValue(nil, offsets, result, 0)))
	if want := `{"weight":7,"letters":3,"seen":15,"least":-128,"most":0,"last":3,"swapped":"abAc"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestScratchMemoryIsChecked(t *testing.T) {
	k := tally(t)
	data, offsets := join([][]byte{[]byte("abc")})
	needs := k.Needs(device.Shape{Rows: 1, Bytes: 3})
	result, scratch := make([]byte, needs.Result), make([]byte, needs.Scratch+1)
	if needs.Scratch < 1000 {
		t.Fatalf("needs %+v", needs)
	}
	for name, bad := range map[string][]byte{"none": nil, "too small": scratch[:needs.Scratch-1], "not aligned": scratch[1:]} {
		if err := k.Run(data, offsets, bad, result, together); err == nil || !strings.Contains(err.Error(), "bytes of scratch memory: it takes") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := k.Run(data, offsets, scratch, result, together); err != nil {
		t.Error(err)
	}
}

// TestHostDeviceGivesScratchMemory runs an operator with passes on streams of the host device.
func TestHostDeviceGivesScratchMemory(t *testing.T) {
	bound := tally(t)
	d, err := host.Open(host.Options{Cores: 2, Kernels: []device.HostKernel{tallyLibrary{bound}}})
	if err != nil {
		t.Fatal(err)
	}
	k, err := d.Kernel("tally", nil)
	if err != nil {
		t.Fatal(err)
	}
	data, offsets := join([][]byte{[]byte("ab\x00c"), {}, bytes.Repeat([]byte("z"), 1000)})
	shape := device.Shape{Rows: 3, Bytes: len(data), Longest: 1000}
	needs := k.Needs(shape)
	const part = 4096 // alignment of the batch, its offsets and its result
	memory, err := d.AllocHost(4 * part)
	if err != nil {
		t.Fatal(err)
	}
	scratch, err := d.Alloc(needs.Scratch)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Map(memory)
	if err != nil {
		t.Fatal(err)
	}
	copy(memory.Bytes(), data)
	for i, offset := range offsets {
		binary.LittleEndian.PutUint32(memory.Bytes()[part+4*i:], offset)
	}
	s, err := d.NewStream("test")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // scratch memory isn't zero in the second run
		for _, err := range []error{
			s.Launch(k, device.LaunchArgs{Shape: shape, Rows: m.Slice(0, len(data)), Offsets: m.Slice(part, 4*len(offsets)),
				Result: m.Slice(2*part, needs.Result), Scratch: scratch}),
			s.Synchronize(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		got := string(bound.Operator().AppendJSON(nil, bound.Operator().AppendValue(nil, offsets, memory.Bytes()[2*part:], 0)))
		if want := `{"weight":7,"letters":3,"seen":15,"least":-128,"most":0,"last":3,"swapped":"abAc"}`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, err := range []error{s.Close(), k.Close(), d.FreeHost(memory), d.Free(scratch), d.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}

// tallyLibrary is a device.HostKernel with bound parameters.
type tallyLibrary struct{ kernel *Kernel }

func (t tallyLibrary) Name() string                                { return t.kernel.operator.Name() }
func (t tallyLibrary) Bind([]byte) (device.BoundHostKernel, error) { return t.kernel, nil }
