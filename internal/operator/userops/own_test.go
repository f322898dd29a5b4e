//go:build cgo

package userops

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/testbuild"
)

const entropy = "../../../examples/operators/entropy/entropy.cu"

// folder returns a folder with the source of entropy. With built, it also contains the library.
func folder(t *testing.T, built bool) string {
	t.Helper()
	text, err := os.ReadFile(entropy)
	if err != nil {
		t.Fatal(err)
	}
	return folderWith(t, "entropy", string(text), built)
}

func folderWith(t *testing.T, name, text string, built bool) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, name+compiled.SourceSuffix)
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if !built {
		return dir
	}
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("SKIPPED: no C++ compiler")
	}
	if err := testbuild.Compile(t.Context(), cpulib.Compile, source, filepath.Join(dir, name+compiled.CPUSuffix)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// find returns the operators in the folders, as sources for operator.ParseList.
func find(t *testing.T, folders ...string) []operator.Source {
	t.Helper()
	found, err := Find(folders, nil)
	if err != nil {
		t.Fatal(err)
	}
	var sources []operator.Source
	for _, s := range found {
		sources = append(sources, s)
	}
	return sources
}

func TestOperatorIsParsedLikeABuiltInOne(t *testing.T) {
	sources := find(t, folder(t, true))
	ops, err := operator.ParseList("crc32c, entropy?bits=5", sources...)
	if err != nil {
		t.Fatal(err)
	}
	if ops[1].String() != "entropy?bits=5" || ops[1].Stride() != 4 || ops[1].Name() != "entropy" {
		t.Errorf("%v with records of %d bytes", ops[1], ops[1].Stride())
	}
	payload := []byte("aab")
	var records [][]byte
	for _, op := range ops {
		records = append(records, op.AppendReference(nil, payload))
	}
	if got, want := string(operator.JSON.Append(nil, ops, 3, records)), `{"bytes":3,"crc32c":"2d2e1e2e","entropy":{"peak":3}}`; !strings.HasSuffix(got, `,"entropy":{"peak":3}}`) {
		t.Errorf("%s, want something like %s", got, want)
	}
	for list, want := range map[string]string{
		"entropy?bits=7":  `operator "entropy": parameter "bits" is "7": give a whole number from 1 to 6`,
		"entropie":        `unknown operator "entropie": known are crc32c, minhash, quality, neardup, entropy`,
		"entropy,entropy": "given twice",
	} {
		if _, err := operator.ParseList(list, sources...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", list, err, want)
		}
	}
}

func TestRefusalsHaveTheDeclaredReason(t *testing.T) {
	op, err := operator.Parse("entropy", find(t, folder(t, true))...)
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := Kernels([]operator.Operator{op})
	if err != nil || len(kernels) != 1 || kernels[0].Name() != "entropy" {
		t.Fatalf("%v, %v", kernels, err)
	}
	bound, err := kernels[0].Bind(op.Params())
	if err != nil {
		t.Fatal(err)
	}
	shape := device.Shape{Rows: 3, Bytes: 3}
	result := make([]byte, bound.Needs(shape).Result)
	one := func(n int, fn func(i int)) {
		for i := range n {
			fn(i)
		}
	}
	if err := bound.Run([]byte("abc"), []uint32{0, 1, 1, 3}, nil, result, one); err != nil {
		t.Fatal(err)
	}
	for row, want := range []string{"", "the record is empty", ""} {
		if got := op.(operator.Refuser).Refusal(result, 3, row); got != want {
			t.Errorf("row %d: %q, want %q", row, got, want)
		}
	}
}

func TestProblemsSayWhatToDo(t *testing.T) {
	unbuilt := folder(t, false)
	if _, err := operator.Parse("entropy", find(t, unbuilt)...); err == nil || !strings.Contains(err.Error(), "run `worker operator build "+filepath.Join(unbuilt, "entropy.cu")) {
		t.Errorf("without a library: error %v", err)
	}
	stale := folder(t, true)
	if err := os.WriteFile(filepath.Join(stale, "entropy.cu"), []byte("// changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	twice, strange := folder(t, true), t.TempDir()
	for name, text := range map[string]string{"x.cpu.so": "no library", "crc32c.cu": "", "readme.md": "", ".hidden.cu": ""} {
		if err := os.WriteFile(filepath.Join(strange, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		folders []string
		want    []string
	}{
		"stale":     {[]string{stale}, []string{"was compiled from another version of", "worker operator build"}},
		"no folder": {[]string{strange + "/none"}, []string{"no such file"}},
		"twice":     {[]string{twice, folder(t, true)}, []string{`operator "entropy" is in ` + twice, "remove one of them"}},
		"strange":   {[]string{strange}, []string{"x.cpu.so: not a compiled operator", `"crc32c" is the name of a built-in operator`}},
	} {
		found, err := Find(test.folders, nil)
		for _, s := range found {
			if s.Err() != nil {
				_, used := s.Bind("")
				if used == nil || used.Error() != s.Err().Error() {
					t.Errorf("%s: used in spite of %v: error %v", name, s.Err(), used)
				}
				err = errors.Join(err, s.Err())
			}
		}
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q in it", name, err, want)
			}
		}
	}
}

// TestReferenceOfALiarIsZeros: an undeclared status must not crash the process that computes a reference. The consumer
// refuses such a record.
func TestReferenceOfALiarIsZeros(t *testing.T) {
	dir := folderWith(t, "liar", `#include <millrace/operator.cuh>
MILLRACE_OPERATOR(liar, 1)
MILLRACE_RESULT(uint32_t, size)
MILLRACE_RECORD(record, params, result) {
    result.size = 7;
    if (record.size() == 3) result.internal_code_ = 9;
}
`, true)
	op, err := operator.Parse("liar", find(t, dir)...)
	if err != nil {
		t.Fatal(err)
	}
	if honest, liar := op.AppendReference(nil, []byte("ab")), op.AppendReference(nil, []byte("abc")); honest[0] != 7 || liar[0] != 0 {
		t.Errorf("records %x and %x", honest, liar)
	}
}
