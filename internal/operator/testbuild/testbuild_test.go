package testbuild

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func write(t *testing.T, folder, name, text string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestHashDependsOnEverything: every change alters the hash, except a move of the sources to another folder.
func TestHashDependsOnEverything(t *testing.T) {
	base := func(t *testing.T) (folder, source string, options []string) {
		folder = t.TempDir()
		write(t, folder, "near.cuh", "near")
		write(t, folder, "notes.txt", "notes")
		return folder, write(t, folder, "a.cu", "code"), []string{"-O1", "-I" + filepath.Join(Root(), "kernels"), write(t, folder, "tool", "a tool")}
	}
	hash := func(t *testing.T, sources, options []string, compilers ...string) string {
		t.Helper()
		got, err := Hash(sources, options, compilers...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	_, source, options := base(t)
	want := hash(t, []string{source}, options, "sh")
	for name, c := range map[string]struct {
		change    func(folder string, options []string)
		compilers []string
		same      bool
	}{
		"nothing":       {same: true},
		"notes":         {change: func(folder string, _ []string) { write(t, folder, "notes.txt", "more") }, same: true},
		"source":        {change: func(folder string, _ []string) { write(t, folder, "a.cu", "Code") }},
		"header":        {change: func(folder string, _ []string) { write(t, folder, "near.cuh", "far") }},
		"new header":    {change: func(folder string, _ []string) { write(t, folder, "new.h", "") }},
		"option":        {change: func(_ string, options []string) { options[0] = "-O2" }},
		"file":          {change: func(folder string, _ []string) { write(t, folder, "tool", "another") }},
		"compiler":      {compilers: []string{"cat"}},
		"more of them":  {compilers: []string{"sh", "cat"}},
		"none of them":  {compilers: []string{"a compiler that nobody has"}},
		"a search path": {change: func(string, []string) { t.Setenv("CPATH", "/elsewhere") }},
	} {
		t.Run(name, func(t *testing.T) {
			folder, source, options := base(t)
			if c.change != nil {
				c.change(folder, options)
			}
			if c.compilers == nil {
				c.compilers = []string{"sh"}
			}
			if got := hash(t, []string{source}, options, c.compilers...); (got == want) != c.same {
				t.Errorf("hash %s, and the hash of the base is %s", got, want)
			}
		})
		_ = os.Unsetenv("CPATH")
	}
	if _, err := Hash([]string{filepath.Join(t.TempDir(), "none.cu")}, nil, "sh"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a source that is missing: error %v", err)
	}
}

// TestCompileRunsTheCompilerOnce: equal sources in different folders share one compilation. An error isn't cached.
func TestCompileRunsTheCompilerOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	runs, wrong := 0, errors.New("line 3")
	compile := func(_ context.Context, source, output string) (int, error) {
		runs++
		text, err := os.ReadFile(source)
		if string(text) == "wrong" {
			return 0, wrong
		}
		return 0, errors.Join(err, os.WriteFile(output, text, 0o600))
	}
	for i, c := range []struct {
		text string
		runs int
	}{{"code", 1}, {"code", 1}, {"other", 2}, {"code", 2}, {"wrong", 3}, {"wrong", 4}} {
		output := write(t, t.TempDir(), "a.so", "old")
		err := Compile(t.Context(), compile, write(t, t.TempDir(), "a.cu", c.text), output)
		if c.text == "wrong" {
			if !errors.Is(err, wrong) {
				t.Errorf("step %d: error %v", i, err)
			}
		} else if library, failed := os.ReadFile(output); err != nil || failed != nil || string(library) != c.text {
			t.Errorf("step %d: library %q, errors %v and %v", i, library, err, failed)
		}
		if runs != c.runs {
			t.Errorf("step %d: compiled %d times, want %d", i, runs, c.runs)
		}
	}
}

// TestOutputRunsTheCommandOnce: equal sources and arguments share one run. An error isn't cached.
func TestOutputRunsTheCommandOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	folder := t.TempDir()
	source, log := write(t, folder, "a.cu", "code"), filepath.Join(folder, "log")
	for i, c := range []struct{ exit, logged string }{{"0", "x"}, {"0", "x"}, {"1", "xx"}, {"1", "xxx"}, {"0", "xxx"}} {
		output, err := Output([]string{source}, func(output string) *exec.Cmd {
			command := exec.Command("sh", "-c", `printf x >>"$LOG"; cat "$0" >"$1"; exit `+c.exit, source, output)
			command.Env = append(os.Environ(), "LOG="+log)
			return command
		})
		if (err != nil) != (c.exit == "1") || err == nil && string(output) != "code" {
			t.Errorf("step %d: output %q, error %v", i, output, err)
		}
		if logged, err := os.ReadFile(log); err != nil || string(logged) != c.logged {
			t.Errorf("step %d: the command has written %q, want %q; %v", i, logged, c.logged, err)
		}
	}
}
