package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFallbackIsTwoShortLines runs a worker without a GPU and without a kernel library, as a new user does.
func TestFallbackIsTwoShortLines(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"MILLRACE_DEVICE=auto", "MILLRACE_NATS_URL=nats://" + freeAddr(), "MILLRACE_LOG_FORMAT=text"}, "run")
	p.await("waiting for NATS") // next warning, about the missing server
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	if strings.Contains(p.text(), "without cgo") {
		t.Skip("SKIPPED: THE WORKER IS BUILT WITHOUT CGO AND OPENS NO LIBRARY")
	}
	var warnings []string
	for line := range strings.Lines(p.text()) {
		if strings.Contains(line, " WRN ") && !strings.Contains(line, "waiting for NATS") {
			warnings = append(warnings, line)
		}
	}
	if len(warnings) != 2 {
		t.Fatalf("want two warnings, got\n%s", p.text())
	}
	for i, want := range []string{"NO GPU: FALLING BACK TO THE CPU reason=\"there is no kernel library", "set MILLRACE_DEVICE to host"} {
		if !strings.Contains(warnings[i], want) || len(warnings[i]) > 130 {
			t.Errorf("a line of %d characters, want %q: %s", len(warnings[i]), want, warnings[i])
		}
	}
}

func TestKernelsThatAreMissingAreAnError(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	missing, text := filepath.Join(folder, "libmillrace.so"), filepath.Join(folder, "text.so")
	if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{missing, text} {
		for _, device := range []string{"auto", "cuda"} {
			env := []string{"MILLRACE_DEVICE=" + device, "MILLRACE_KERNELS=" + path, "MILLRACE_NATS_URL=nats://127.0.0.1:1"}
			for command, status := range map[string]int{"run": exitUsage, "check": exitFailed, "bench copy": exitUsage} {
				r := call(t, env, strings.Fields(command)...)
				r.want(t, status, "MILLRACE_KERNELS can't be used: correct it, or unset it")
				if strings.Contains(r.out+r.errors, "FALLING BACK") {
					t.Errorf("%s uses the CPU with MILLRACE_KERNELS=%s", command, path)
				}
			}
		}
	}
	// The CPU device needs no kernel library.
	call(t, []string{"MILLRACE_DEVICE=host", "MILLRACE_KERNELS=" + missing}, "bench", "copy", "--bytes", "4KiB", "--seconds=0.001", "--rounds", "1").want(t, exitDone)
}
