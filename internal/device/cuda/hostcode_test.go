//go:build cgo

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/cuda/fakecuda"
	"millrace/internal/operator/compiled"
)

// halvesCPP is the source of an operator with host code. The file explains its parameter.
const halvesCPP = "internal/device/cuda/testdata/halves.cpp"

var halves struct {
	once sync.Once
	file []byte
}

// halvesLibrary compiles halves once for all tests, and returns the path of a copy.
func halvesLibrary(t testing.TB) string {
	t.Helper()
	halves.once.Do(func() {
		file, err := os.ReadFile(fakecuda.OperatorLibrary(t, halvesCPP))
		if err != nil {
			t.Fatal(err)
		}
		halves.file = file
	})
	path := filepath.Join(t.TempDir(), "halves.so")
	if err := os.WriteFile(path, halves.file, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadLibrary(d device.Device, path string) (device.Module, error) {
	return d.(device.Loader).LoadLibrary(path)
}

func mustLoadLibrary(t *testing.T, d device.Device, path string) device.Module {
	t.Helper()
	m, err := loadLibrary(d, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close operator: %v", err)
		}
	})
	return m
}

// The file contains the operator's description, so a program can read it without running the code.
func TestLibraryDescribesItsOperator(t *testing.T) {
	path := halvesLibrary(t)
	m := mustLoadLibrary(t, openFake(t, ""), path)
	fromFile, err := compiled.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fromFile.Folder = "" // a loaded operator has no folder
	loaded, err := compiled.Decode(m.Description())
	if err != nil || fmt.Sprint(loaded) != fmt.Sprint(fromFile) || m.Name() != "halves" || loaded.Form != compiled.Library || loaded.Version != 3 || loaded.Checked {
		t.Errorf("%s: %+v, %v\nwant %+v", m.Name(), loaded, err, fromFile)
	}
}

func TestHostCodeComputes(t *testing.T) {
	records := [][]byte{{0x12, 0xf3}, {}, bytes.Repeat([]byte{1}, 10), {0xff}}
	record := func(low, high byte) []byte { return []byte{low, 0, 0, 0, high, 0, 0, 0} }
	for name, c := range map[string]struct {
		flags    []string
		records  [][]byte
		statuses []byte
	}{
		"with reasons":      {nil, [][]byte{record(5, 16), record(0, 0), record(0, 0), record(15, 15)}, []byte{0, 1, 2, 0}},
		"with records only": {[]string{"-DNO_REASONS"}, [][]byte{record(5, 16), record(0, 0), record(10, 0), record(15, 15)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := openFake(t, "")
			o := bound(t, mustLoadLibrary(t, d, fakecuda.OperatorLibrary(t, halvesCPP, c.flags...)), "")
			offsets, result := runBatch(t, d, o, records)
			if got, want := result[:4*o.Stride()], slices.Concat(c.records...); !bytes.Equal(got, want) {
				t.Errorf("records %x, want %x", got, want)
			}
			for i, want := range c.statuses {
				if got := o.Status(result, 4, i); got != want {
					t.Errorf("record %d has status %d, want %d", i, got, want)
				}
			}
			if err := o.Check(offsets, result); err != nil || len(result) != o.Layout(4, 13).End || o.HasStatuses() != (c.statuses != nil) {
				t.Errorf("%v, %d bytes, statuses %t", err, len(result), o.HasStatuses())
			}
		})
	}
}

func TestHostCodeWithByteStrings(t *testing.T) {
	for _, flags := range [][]string{{"-DSTRINGS"}, {"-DSTRINGS", "-DNO_REASONS"}} {
		d := openFake(t, "")
		o := bound(t, mustLoadLibrary(t, d, fakecuda.OperatorLibrary(t, halvesCPP, flags...)), "")
		offsets, result := runBatch(t, d, o, [][]byte{[]byte("ab"), []byte("xyz")})
		if err := o.Check(offsets, result); err != nil {
			t.Error(err)
		}
		if got := string(o.AppendStrings(nil, offsets, result, 1)); got != "xyz" {
			t.Errorf("%v: byte string %q, want xyz", flags, got)
		}
	}
}

func TestHostCodeIsNotLaunchedWithoutRows(t *testing.T) {
	d := openFake(t, "")
	runBatch(t, d, bound(t, mustLoadLibrary(t, d, halvesLibrary(t)), ""), nil) // a launch would fail
}

// An undeclared status of host code is found by the same check as for any other user-written operator.
func TestUndeclaredStatusOfHostCodeIsFound(t *testing.T) {
	d := openFake(t, "")
	o := bound(t, mustLoadLibrary(t, d, halvesLibrary(t)), "most=104")
	offsets, result := runBatch(t, d, o, [][]byte{{1}})
	if err := o.Check(offsets, result); err == nil || !strings.Contains(err.Error(), "operator halves: record 0 has an undeclared result: status 99") {
		t.Errorf("got %v", err)
	}
}

func TestFailuresOfHostCodeNameTheOperator(t *testing.T) {
	d := openFake(t, "")
	mustLoadLibrary(t, d, halvesLibrary(t))
	s := must[device.Stream](t)(d.NewStream("s"))
	memory := must[device.Memory](t)(d.Alloc(4096))
	block := func(maximum uint32) []byte { return binary.LittleEndian.AppendUint32(nil, maximum) }
	launch := func(maximum uint32) error {
		k := must[device.Kernel](t)(d.Kernel("halves", block(maximum)))
		err := s.Launch(k, device.LaunchArgs{Shape: device.Shape{Rows: 2, Bytes: 1, Longest: 1}, Rows: memory.Slice(0, 1),
			Offsets: memory.Slice(4, 12), Scratch: memory.Slice(256, 256), Result: memory.Slice(1024, 2048)})
		return errors.Join(err, k.Close())
	}
	create := func(block []byte) error { return errOf(d.Kernel("halves", block)) }
	for _, c := range []struct {
		what string
		err  error
		kind error
		text string
	}{
		{"no block", create(nil), device.ErrInvalid, "operator halves: a parameter block of 0 bytes: it takes 4"},
		{"a parameter out of bounds", create(block(1001)), device.ErrInvalid, "operator halves: parameter most is outside its bounds"},
		{"no memory", create(block(666)), device.ErrOutOfMemory, "operator halves: no room for 666"},
		{"another GPU's code", create(block(669)), device.ErrUnavailable, "operator halves: no code for this GPU"},
		{"a status without meaning", create(block(667)), device.ErrInvalid, "operator halves: it failed and gave no message"},
		{"another size of the result", create(block(100)), device.ErrInvalid, "operator halves: it asks for a result of 513 bytes, and it declares 512"},
		{"another size for two records", launch(105), device.ErrInvalid, "operator halves: it asks for a result of 511 bytes, and it declares 512"},
		{"endless scratch", create(block(101)), device.ErrInvalid, "operator halves: it asks for 18446744073709551615 bytes of scratch"},
		{"no needs", create(block(102)), device.ErrInvalid, "operator halves: no needs"},
		{"no launch", launch(103), device.ErrLaunch, "operator halves: no launch"},
	} {
		if !errors.Is(c.err, c.kind) || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%s: got %v, want %v with %q", c.what, c.err, c.kind, c.text)
		}
	}
	k := must[device.Kernel](t)(d.Kernel("halves", block(668)))
	if err := k.Close(); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), "operator halves: not destroyed") {
		t.Errorf("destroy: got %v", err)
	}
	for _, err := range []error{d.Err(), s.Close(), d.Free(memory)} {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestOtherLibrariesAreRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	unlike := func(description, op, library string) string {
		return fakecuda.OperatorLibrary(t, halvesCPP, "-DUNLIKE", "-DUNLIKE_DESCRIPTION="+description, "-DUNLIKE_OPERATOR="+op, "-DUNLIKE_LIBRARY="+library)
	}
	for name, c := range map[string]struct {
		path  string
		kind  error
		words []string
	}{
		"no file":             {filepath.Join(t.TempDir(), "nosuch.so"), device.ErrUnavailable, []string{"nosuch.so"}},
		"a text":              {text, device.ErrUnavailable, []string{"text.so"}},
		"a needed library":    {buildLibrary(t, "extern int nowhere(void); int here(void) { return nowhere(); }"), device.ErrUnavailable, []string{"nowhere"}},
		"no operator":         {buildLibrary(t, "int other;"), device.ErrInvalid, []string{"no millrace_operator_description", "millrace/library.cuh"}},
		"no table":            {buildLibrary(t, `const char millrace_operator_description[200] = "no operator";`), device.ErrInvalid, []string{"no millrace_operator_library"}},
		"zero byte":           {"a\x00b", device.ErrInvalid, []string{"zero byte"}},
		"an older ABI":        {unlike("", "", "library.abi_version=4,library.size=0"), device.ErrInvalid, []string{"has ABI version 4", "the kernel library has version 6", "needs version 5 or later"}},
		"a newer ABI":         {unlike("", "", "library.abi_version=9,library.least_version=8"), device.ErrInvalid, []string{"has ABI version 9", "needs version 8 or later", "the kernel library has version 6"}},
		"a short table":       {unlike("", "", "library.size=16"), device.ErrInvalid, []string{"millrace_operator_library has 16"}},
		"no entry":            {unlike("", "", "library.op=nullptr"), device.ErrInvalid, []string{"its operator is incomplete"}},
		"no launch":           {unlike("", "op.launch=nullptr", ""), device.ErrInvalid, []string{"its operator is incomplete"}},
		"a short entry":       {unlike("", "op.size=40", ""), device.ErrInvalid, []string{"its operator is incomplete"}},
		"another description": {unlike("", "op.description=&other", ""), device.ErrInvalid, []string{"is not millrace_operator_description"}},
		"another name":        {unlike("", `op.name="thirds"`, ""), device.ErrInvalid, []string{"has operator thirds version 3, and describes halves version 3"}},
		"another version":     {unlike("", "op.version=4", ""), device.ErrInvalid, []string{"has operator halves version 4, and describes halves version 3"}},
		"a kernel":            {unlike("all.head.form=1,all.head.threads=all.head.teams=64", "", ""), device.ErrInvalid, []string{"form 1, not as host code"}},
		"threads":             {unlike("all.head.threads=64", "", ""), device.ErrInvalid, []string{"halves", "damaged: its form"}},
		"passes":              {unlike(`all.head.passes=1,all.passes[0]={"first",64,1,0,0,1,0},all.head.scratch_bytes=4`, "", ""), device.ErrInvalid, []string{"halves is host code, and it describes 1 passes"}},
		"newer contract":      {unlike("all.head.contract=2", "", ""), device.ErrInvalid, []string{"halves", "needs version 2", "has version 1"}},
		"a long description":  {unlike("all.head.bytes=4096", "", ""), device.ErrInvalid, []string{"halves", "damaged: its size"}},
		"built-in name":       {unlike(`millrace::copy_text(all.head.name,"crc32c")`, `op.name="crc32c"`, ""), device.ErrInvalid, []string{`an operator "crc32c" already`}},
	} {
		t.Run(name, func(t *testing.T) {
			d := openFake(t, "")
			_, err := loadLibrary(d, c.path)
			if !errors.Is(err, c.kind) || d.Err() != nil {
				t.Errorf("got %v, want an error that wraps %q; lost: %v", err, c.kind, d.Err())
			}
			for _, word := range c.words {
				if err != nil && !strings.Contains(err.Error(), word) {
					t.Errorf("the message doesn't say %q: %v", word, err)
				}
			}
		})
	}
}

// A GPU can't run an image with host code.
func TestHostCodeIsNotAnImage(t *testing.T) {
	file, err := os.ReadFile(halvesLibrary(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load(openFake(t, ""), file); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), "operator halves is host code: build it as a shared library") {
		t.Errorf("got %v", err)
	}
}

func TestHostCodeInUseIsNotUnloaded(t *testing.T) {
	d, path := openFake(t, ""), halvesLibrary(t)
	m, err := loadLibrary(d, path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loadLibrary(d, path); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), `an operator "halves" already`) {
		t.Errorf("a second time: %v", err)
	}
	k := must[device.Kernel](t)(d.Kernel("halves", []byte{4, 0, 0, 0}))
	if err := m.Close(); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), "halves is in use: 1 instances") {
		t.Errorf("in use: got %v", err)
	}
	for _, err := range []error{k.Close(), m.Close(), m.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Kernel("halves", []byte{4, 0, 0, 0}); !errors.Is(err, device.ErrNotFound) {
		t.Errorf("unloaded: got %v", err)
	}
	mustLoadLibrary(t, d, path)
}

// aboveMean returns the path of the library that `make -C kernels library` built, beside the kernel library under test.
func aboveMean(t *testing.T) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(builtLibrary()), "above_mean.so")
	if _, err := os.Stat(path); err != nil {
		message := fmt.Sprintf("A LIBRARY THAT NVCC BUILT IS NOT TESTED: BUILD IT WITH `make -C kernels library`: %v", err)
		if os.Getenv("MILLRACE_REQUIRE_GPU") == "1" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	return path
}

// A library that nvcc builds from host code and kernels is valid. Without a GPU, its operator is refused with an error.
func TestLibraryOfTheToolkit(t *testing.T) {
	path := aboveMean(t)
	d, err := compiled.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := d.Declaration(), `above_mean version 1, host code, percent=100 (uint32, 1 to 1000), above uint32, mean uint8, reason "the record is empty"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if m, err := loadLibrary(openFake(t, ""), path); err != nil || m.Name() != "above_mean" {
		t.Errorf("%v, %v", m, err)
	} else if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func TestLibraryOnGPUs(t *testing.T) {
	library, all := gpus(t)
	path := aboveMean(t)
	records := [][]byte{{}, {7}, {1, 2, 3, 4}, bytes.Repeat([]byte{0, 255}, 700), []byte("the mean of a text"), {}, bytes.Repeat([]byte{9}, 33)}
	for _, info := range all {
		d := must[device.Device](t)(cuda.Open(cuda.Options{Library: library, Ordinal: info.Ordinal}))
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		o := bound(t, mustLoadLibrary(t, d, path), "percent=110")
		offsets, result := runBatch(t, d, o, records)
		if err := o.Check(offsets, result); err != nil {
			t.Error(err)
		}
		for i, record := range records {
			want, status := aboveMeanOf(record, 110)
			if got := result[8*i : 8*i+8]; !bytes.Equal(got, want) || o.Status(result, len(records), i) != status {
				t.Errorf("%s, record %d: %x with status %d, want %x with %d", info.ID, i, got, o.Status(result, len(records), i), want, status)
			}
		}
	}
}

// aboveMeanOf returns the expected record and status of the operator above_mean.
func aboveMeanOf(record []byte, percent int) (result []byte, status byte) {
	result = make([]byte, 8)
	if len(record) == 0 {
		return result, 1
	}
	sum, above := 0, 0
	for _, b := range record {
		sum += int(b)
	}
	for _, b := range record {
		if 100*int(b)*len(record) > percent*sum {
			above++
		}
	}
	binary.LittleEndian.PutUint32(result, uint32(above))
	result[4] = byte(sum / len(record))
	return result, 0
}
