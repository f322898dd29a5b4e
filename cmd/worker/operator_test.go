package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestOperatorFromAnEmptyFolder(t *testing.T) {
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("SKIPPED: no C++ compiler")
	}
	folder := t.TempDir()
	source := filepath.Join(folder, "runs.cu")
	call(t, nil, "operator", "new", "runs", "--in", folder).want(t, exitDone, "wrote "+source, "next: worker operator test "+source)
	call(t, nil, "operator", "new", "--in", folder, "runs").want(t, exitFailed, "file exists")
	call(t, nil, "operator", "test", source).want(t, exitDone, `{"longest":3}`, "rejected: the record is empty", "runs?value=32: ", "GB/s", "every check passed on the CPU")
	call(t, nil, "operator", "test", source, "--with", "value=120").want(t, exitFailed, "want {\"longest\":3}", "1 checks failed")
	call(t, nil, "operator", "build", source).want(t, exitDone, "runs.cpu.so: operator runs, version 1, for the CPU")
	r := call(t, nil, "operator", "list", filepath.Join(folder, "runs.cpu.so"))
	r.want(t, exitDone, "crc32c, version 1, built in", "minhash, version 1, built in", "signature uint32[hashes]", "runs, version 1, "+folder,
		"parameter value=32 (uint32, 0 to 255)", "result    longest uint32", "rejects   the record is empty")
	if r.errors != "" {
		t.Errorf("errors: %s", r.errors)
	}
}

func TestBadUsageOfOperator(t *testing.T) {
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"", "name one of its commands", exitUsage},
		{"compile x.cu", `there is no command "compile"`, exitUsage},
		{"test", "give one file, not 0", exitUsage},
		{"build a.cu b.cu", "give one file, not 2", exitUsage},
		{"new x --out y", "flag provided but not defined", exitUsage},
		{"new Upper", `"Upper" can't be the name of an operator`, exitFailed},
		{"test nothing.cu", "no such file", exitFailed},
		{"list nothing.so", "no such file", exitFailed},
		{"test x.cu --on nothing", "no such file", exitFailed},
		{"-h", "write a commented operator", exitDone},
		{"build -h", "NAME.cpu.so", exitDone},
	} {
		call(t, nil, append([]string{"operator"}, strings.Fields(c.args)...)...).want(t, c.code, c.want)
	}
}
