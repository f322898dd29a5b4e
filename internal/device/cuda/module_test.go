//go:build cgo

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// The tests of this file load operators into the fake library, which runs their code for the CPU. They show which
// driver calls the runtime makes. They don't show that a GPU can load an image.

const (
	entropyCU = "examples/operators/entropy/entropy.cu"
	spreadCU  = "kernels/test/operators/spread.cu"
	blockCU   = "kernels/test/operators/spread_block.cu"
	kindsCU   = "kernels/test/operators/kinds.cu"
)

var entropy struct {
	once  sync.Once
	image []byte
}

// entropyImage compiles entropy once for all tests.
func entropyImage(t testing.TB) []byte {
	t.Helper()
	entropy.once.Do(func() { entropy.image = fakecuda.Image(t, entropyCU) })
	return entropy.image
}

// openFake opens a device of the fake library, and checks at the end that no object is left open.
func openFake(t *testing.T, settings string) device.Device {
	t.Helper()
	library := fakecuda.Library(t)
	fakecuda.Set(t, settings)
	d, err := cuda.Open(cuda.Options{Library: library})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		fakecuda.Set(t, "")
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

func load(d device.Device, image []byte) (device.Module, error) {
	return d.(device.Loader).LoadOperator(image)
}

func mustLoad(t *testing.T, d device.Device, image []byte) device.Module {
	t.Helper()
	m, err := load(d, image)
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

// bound returns an operator of module m, bound to the parameters in query.
func bound(t *testing.T, m device.Module, query string) *compiled.Operator {
	t.Helper()
	d, err := compiled.Decode(m.Description())
	if err != nil {
		t.Fatal(err)
	}
	o, err := d.Bind(query)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func runBatch(t *testing.T, d device.Device, o *compiled.Operator, rows [][]byte) (offsets []uint32, result []byte) {
	t.Helper()
	k := must[device.Kernel](t)(d.Kernel(o.Name(), o.Params()))
	s := must[device.Stream](t)(d.NewStream("s"))
	offsets = []uint32{0}
	data, table := []byte{}, make([]byte, 4)
	shape := device.Shape{Rows: len(rows)}
	for _, row := range rows {
		data = append(data, row...)
		offsets = append(offsets, uint32(len(data)))
		table = binary.LittleEndian.AppendUint32(table, uint32(len(data)))
		shape.Longest = max(shape.Longest, len(row))
	}
	shape.Bytes = len(data)
	needs := k.Needs(shape)
	const part = 4096 // the batch, its offsets and its result are aligned to multiples of part
	host := must[device.HostBuffer](t)(d.AllocHost(4 * part))
	memory := must[device.Memory](t)(d.Alloc(4*part + needs.Scratch))
	if len(data) > part || len(table) > part || needs.Result > 2*part {
		t.Fatalf("the batch is too large for this test: %+v, %+v", shape, needs)
	}
	copy(host.Bytes(), data)
	copy(host.Bytes()[part:], table)
	result = make([]byte, needs.Result)
	for _, err := range []error{
		s.CopyIn(memory.Slice(0, 4*part), host),
		s.Launch(k, device.LaunchArgs{Shape: shape, Rows: memory.Slice(0, len(data)), Offsets: memory.Slice(part, len(table)),
			Scratch: memory.Slice(4*part, needs.Scratch), Result: memory.Slice(2*part, needs.Result)}),
		s.CopyOut(host.Slice(0, needs.Result), memory.Slice(2*part, needs.Result)), s.Synchronize(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	copy(result, host.Bytes())
	for _, err := range []error{d.FreeHost(host), d.Free(memory), s.Close(), k.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	return offsets, result
}

func TestLoadedOperatorDescribesItself(t *testing.T) {
	image := entropyImage(t)
	m := mustLoad(t, openFake(t, ""), image)
	fromFile, err := compiled.Read(image)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := compiled.Decode(m.Description())
	if err != nil || fmt.Sprint(loaded) != fmt.Sprint(fromFile) || m.Name() != "entropy" {
		t.Errorf("%s: %v, %v\nwant %v", m.Name(), loaded, err, fromFile)
	}
}

func TestLoadedOperatorComputes(t *testing.T) {
	for name, image := range map[string][]byte{
		"cubin": entropyImage(t), "fatbin": fakecuda.Fatbin(entropyImage(t)), "ptx": fakecuda.PTX(t, entropyCU),
	} {
		t.Run(name, func(t *testing.T) {
			d := openFake(t, "")
			o := bound(t, mustLoad(t, d, image), "bits=1")
			_, result := runBatch(t, d, o, [][]byte{[]byte("aaab"), {}, {1, 2, 200, 201, 202}})
			if got, want := result[:12], []byte{4, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0}; !bytes.Equal(got, want) {
				t.Errorf("records %v, want %v", got, want)
			}
			if at := o.Layout(3, 9).Status; !bytes.Equal(result[at:at+3], []byte{0, 1, 0}) {
				t.Errorf("statuses %v, want 0, 1 and 0", result[at:at+3])
			}
		})
	}
}

func rows(n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = []byte{byte(i)}
	}
	return all
}

// A launch has one thread, warp or block per record. It uses the layout of package compiled and passes the parameter
// block unchanged.
func TestLaunchArguments(t *testing.T) {
	for _, c := range []struct {
		source, query string
		rows          int
		want          string // grid and block
		params        string
	}{
		{entropyCU, "bits=5", 1, "grid=1,1,1 block=64,1,1", "05000000"},
		{entropyCU, "bits=6", 64, "grid=1,1,1 block=64,1,1", "06000000"},
		{entropyCU, "", 65, "grid=2,1,1 block=64,1,1", "04000000"},
		{spreadCU, "", 9, "grid=3,1,1 block=128,1,1", ""},
		{blockCU, "", 7, "grid=7,1,1 block=96,1,1", ""},
		{kindsCU, "a=1&b=-2&n=4&scale=0.5&c=-3&f=1.5&d=7&loud=false", 3, "grid=1,1,1 block=64,1,1",
			"0100feff04000000" + "000000000000e03f" + "fdffffffffffffff" + "0000c03f00000000" + "0700000000000000" + "00"},
	} {
		t.Run(fmt.Sprintf("%s %d rows", filepath.Base(c.source), c.rows), func(t *testing.T) {
			trace := filepath.Join(t.TempDir(), "trace")
			image := fakecuda.Image(t, c.source)
			d := openFake(t, "trace="+trace)
			o := bound(t, mustLoad(t, d, image), c.query)
			offsets, result := runBatch(t, d, o, rows(c.rows))
			layout := o.Layout(c.rows, c.rows)
			want := fmt.Sprintf("%s %s shared=0 size=72 rows=%d bytes=%d stride=%d status=%d strings=%d params=%s\n", o.Name(), c.want,
				c.rows, c.rows, o.Stride(), layout.Status, layout.Strings, c.params)
			if got, err := os.ReadFile(trace); err != nil || string(got) != want {
				t.Errorf("%v\ngot  %swant %s", err, got, want)
			}
			if len(result) != layout.End {
				t.Errorf("it needs %d bytes for the result, want %d", len(result), layout.End)
			}
			if err := o.Check(offsets, result); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEmptyBatchLaunchesNothing(t *testing.T) {
	image := entropyImage(t)
	trace := filepath.Join(t.TempDir(), "trace")
	d := openFake(t, "trace="+trace)
	runBatch(t, d, bound(t, mustLoad(t, d, image), ""), nil)
	if text, err := os.ReadFile(trace); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("launches: %s, %v", text, err)
	}
}

// patched returns a copy of image whose description has the given bytes from position `at` on.
func patched(t testing.TB, image []byte, at int, with ...byte) []byte {
	t.Helper()
	start := bytes.Index(image, []byte("MILLROP\x00"))
	if start < 0 {
		t.Fatal("the image has no description")
	}
	image = slices.Clone(image)
	copy(image[start+at:], with)
	return image
}

func TestOtherImagesAreRefused(t *testing.T) {
	entropy := entropyImage(t)
	other, err := os.ReadFile(buildLibrary(t, "int other;"))
	if err != nil {
		t.Fatal(err)
	}
	undescribed, err := os.ReadFile(buildLibrary(t, `const char millrace_operator_description[200] = "no operator";`))
	if err != nil {
		t.Fatal(err)
	}
	codeless, err := os.ReadFile(buildLibrary(t, description(t, entropy)))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		image    []byte
		settings string
		kind     error
		words    []string
	}{
		"nothing":         {nil, "", device.ErrInvalid, []string{"not a cubin, a fatbin or PTX"}},
		"a text":          {[]byte("no operator"), "", device.ErrInvalid, []string{"not a cubin, a fatbin or PTX"}},
		"binary PTX":      {[]byte(".version \x00 8.4"), "", device.ErrInvalid, []string{"not a cubin, a fatbin or PTX"}},
		"half a cubin":    {entropy[:len(entropy)/2], "", device.ErrInvalid, []string{"the image is incomplete"}},
		"half a fatbin":   {fakecuda.Fatbin(entropy)[:1000], "", device.ErrInvalid, []string{"the image is incomplete"}},
		"a header":        {entropy[:32], "", device.ErrInvalid, []string{"the image is incomplete"}},
		"wrong PTX":       {[]byte("// .version /nowhere\n"), "", device.ErrInvalid, []string{"refuses the image"}},
		"no description":  {other, "", device.ErrInvalid, []string{"no millrace_operator_description", "millrace/operator.cuh"}},
		"other contents":  {undescribed, "", device.ErrInvalid, []string{"not the description of an operator"}},
		"no code":         {codeless, "", device.ErrInvalid, []string{"no millrace_operator_run"}},
		"newer contract":  {patched(t, entropy, 16, 2), "", device.ErrInvalid, []string{"entropy", "needs version 2", "has version 1"}},
		"unknown form":    {patched(t, entropy, 28, 9), "", device.ErrInvalid, []string{"entropy", "damaged: its form"}},
		"huge block":      {patched(t, entropy, 44, 1, 1), "", device.ErrInvalid, []string{"entropy", "damaged", "parameter block"}},
		"many parameters": {patched(t, entropy, 48, 33), "", device.ErrInvalid, []string{"entropy", "damaged", "number of parameters"}},
		"far fields":      {patched(t, entropy, 68, 0, 0, 1), "", device.ErrInvalid, []string{"entropy", "damaged", "number of result fields"}},
		"built-in name":   {patched(t, entropy, 120, []byte("crc32c\x00\x00")...), "", device.ErrInvalid, []string{`an operator "crc32c" already`}},
		"too many threads": {entropy, "threads=32", device.ErrUnavailable,
			[]string{"entropy has 64 threads per block", "at most 32"}},
		"an older driver": {entropy, "missing=cuLaunchKernel", device.ErrUnavailable, []string{"no function cuLaunchKernel", "newer driver"}},
		"another GPU's":   {entropy, "call=cuModuleLoadDataEx code=209", device.ErrUnavailable, []string{"can't run the image"}},
		"bad PTX":         {entropy, "call=cuModuleLoadDataEx code=218", device.ErrInvalid, []string{"refuses the image", "ptxas says why"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := openFake(t, "")
			fakecuda.Set(t, c.settings)
			_, err := load(d, c.image)
			if !errors.Is(err, c.kind) {
				t.Errorf("got %v, want an error that wraps %q", err, c.kind)
			}
			for _, word := range c.words {
				if err != nil && !strings.Contains(err.Error(), word) {
					t.Errorf("the message doesn't say %q: %v", word, err)
				}
			}
			if d.Err() != nil {
				t.Errorf("the device is lost: %v", d.Err())
			}
			fakecuda.Set(t, "")
			mustLoad(t, d, entropy) // the refusal left nothing loaded
		})
	}
}

// The checks before the driver accept complete images from nvcc. The fake driver refuses them because it can't run
// them.
func TestImagesOfTheToolkitReachTheDriver(t *testing.T) {
	nvcc := ""
	for _, home := range []string{os.Getenv("CUDA_HOME"), "/usr/local/cuda", "/opt/cuda"} {
		if path := filepath.Join(home, "bin", "nvcc"); nvcc == "" && home != "" {
			nvcc, _ = exec.LookPath(path)
		}
	}
	if nvcc == "" {
		t.Skip("NOT TESTED: THERE IS NO NVCC HERE (CUDA_HOME) TO MAKE IMAGES WITH")
	}
	d := openFake(t, "")
	for _, arguments := range [][]string{
		{"-cubin", "-arch=sm_90"}, {"-ptx", "-arch=compute_90"},
		{"-fatbin", "-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]"},
	} {
		output := filepath.Join(t.TempDir(), "image")
		arguments = append(arguments, "-std=c++17", "-I"+headerFolder(t), "-o", output, filepath.Join("..", "..", "..", entropyCU))
		if out, err := exec.Command(nvcc, arguments...).CombinedOutput(); err != nil {
			t.Fatalf("nvcc %s: %v\n%s", arguments[0], err, out)
		}
		image, err := os.ReadFile(output)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := load(d, image); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), "the driver refuses the image") {
			t.Errorf("%s: got %v", arguments[0], err)
		}
		if arguments[0] == "-ptx" {
			continue // PTX is text without an end mark
		}
		if _, err := load(d, image[:len(image)-1]); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), "incomplete") {
			t.Errorf("%s without its last byte: got %v", arguments[0], err)
		}
	}
}

// description returns a C file that contains the image's description and no code.
func description(t *testing.T, image []byte) string {
	t.Helper()
	start := bytes.Index(image, []byte("MILLROP\x00"))
	text := strings.Builder{}
	text.WriteString("const unsigned char millrace_operator_description[] = {")
	for _, b := range image[start : start+int(binary.LittleEndian.Uint32(image[start+12:]))] {
		fmt.Fprintf(&text, "%d,", b)
	}
	return text.String() + "};"
}

func TestOperatorIsLoadedOnce(t *testing.T) {
	d := openFake(t, "")
	mustLoad(t, d, entropyImage(t))
	if _, err := load(d, entropyImage(t)); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), `an operator "entropy" already`) {
		t.Errorf("a second time: %v", err)
	}
}

func TestOtherBlocksAreRefused(t *testing.T) {
	d := openFake(t, "")
	mustLoad(t, d, entropyImage(t))
	mustLoad(t, d, fakecuda.Image(t, kindsCU))
	loud := make([]byte, 41)
	loud[4], loud[32], loud[40] = 1, 1, 2 // n, d and loud
	entropy := func(bits uint32) []byte { return binary.LittleEndian.AppendUint32(nil, bits) }
	for _, c := range []struct {
		name  string
		block []byte
		word  string
	}{
		{"entropy", nil, "a parameter block of 0 bytes: it takes 4"},
		{"entropy", make([]byte, 8), "a parameter block of 8 bytes: it takes 4"},
		{"entropy", entropy(0), "parameter bits is outside its bounds"},
		{"entropy", entropy(7), "parameter bits is outside its bounds"},
		{"kinds", make([]byte, 41), "parameter n is outside its bounds"},
		{"kinds", loud, "parameter loud is outside its bounds"},
	} {
		if _, err := d.Kernel(c.name, c.block); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s with %x: got %v, want %q", c.name, c.block, err, c.word)
		}
	}
}

func TestOperatorInUseIsNotUnloaded(t *testing.T) {
	d := openFake(t, "")
	m, err := load(d, entropyImage(t))
	if err != nil {
		t.Fatal(err)
	}
	k := must[device.Kernel](t)(d.Kernel("entropy", []byte{4, 0, 0, 0}))
	if err := m.Close(); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), "entropy is in use: 1 instances") {
		t.Errorf("in use: got %v", err)
	}
	if _, err := d.Kernel("entropy", []byte{5, 0, 0, 0}); err != nil {
		t.Errorf("after a refused Close: %v", err)
	} else if err := m.Close(); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), "2 instances") {
		t.Errorf("in use twice: got %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	var leak *device.LeakError
	if err := d.Close(); !errors.As(err, &leak) || !slices.Equal(leak.Open, []string{"kernel entropy"}) {
		t.Errorf("closing the device with a kernel: got %v", err)
	}
}

func TestUnloadedOperatorIsGone(t *testing.T) {
	d := openFake(t, "")
	m, err := load(d, entropyImage(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Kernel("entropy", []byte{4, 0, 0, 0}); !errors.Is(err, device.ErrNotFound) {
		t.Errorf("got %v, want %v", err, device.ErrNotFound)
	}
	mustLoad(t, d, entropyImage(t))
}

// A batch of a loaded operator makes no allocations, like a batch of a built-in operator.
func TestLaunchOfALoadedOperatorAllocatesNothing(t *testing.T) {
	g := newGear(t, fakecuda.Library(t))
	g.loadOperators(t)
	list := []device.Command{{Kind: device.DoLaunch, Stream: g.stream, Kernel: g.own, Args: &g.ownArgs}}
	if n := testing.AllocsPerRun(100, func() {
		if err := g.dev.Enqueue(list); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per launch, want none", n)
	}
}
