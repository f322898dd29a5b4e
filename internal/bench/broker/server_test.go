package broker

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// serve is the argument with which a test starts this program as the server's process.
const serve = "serve"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == serve {
		if err := ServeUntilEOF(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestServerIsServedUntilEOF checks that the server writes its URL, and stops at the end of its input.
func TestServerIsServedUntilEOF(t *testing.T) {
	in, stop := io.Pipe()
	output, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- ServeUntilEOF(t.TempDir(), in, out) }()
	line := make([]byte, 256)
	n, err := output.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	url, whole := strings.CutSuffix(string(line[:n]), "\n")
	nc, err := nats.Connect(url)
	if err != nil || !whole {
		t.Fatalf("the URL is %q: %v", url, err)
	}
	nc.Close()
	if err := stop.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if nc, err := nats.Connect(url); err == nil {
		nc.Close()
		t.Error("the server still listens")
	}
}

// TestServerProcess checks that Close ends the server's process. A script replaces the server program.
func TestServerProcess(t *testing.T) {
	dir := t.TempDir()
	a, err := startProcess(t.Context(), script(t, `echo "nats://127.0.0.1:1 $GOGC"; cat >&2; touch "$1/ended"`), dir)
	if err != nil {
		t.Fatal(err)
	}
	if a.url != "nats://127.0.0.1:1" {
		t.Errorf("the server's URL is %q, want one without the worker's GOGC", a.url)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Errorf("Close returned before the process had ended: %v", err)
	}
}

// TestServerProcessFails checks that the error contains the process's output.
func TestServerProcessFails(t *testing.T) {
	for name, c := range map[string]struct {
		program []string
		want    string
	}{
		"no program":    {[]string{filepath.Join(t.TempDir(), "none")}, "no such file"},
		"says nothing":  {script(t, `echo "the folder is full" >&2; exit 3`), "exit status 3: the folder is full"},
		"ends too soon": {script(t, `exit 0`), "it ended without output"},
	} {
		if _, err := startProcess(t.Context(), c.program, t.TempDir()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %q in it", name, err, c.want)
		}
	}
	a, err := startProcess(t.Context(), script(t, `echo up; cat; echo "out of memory" >&2; exit 4`), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err == nil || !strings.Contains(err.Error(), "exit status 4: out of memory") {
		t.Errorf("Close returns %v", err)
	}
}

// script returns a program that runs text in a shell, with its last argument as $1.
func script(t *testing.T, text string) []string {
	t.Helper()
	t.Setenv("GOGC", "50")
	return []string{"/bin/sh", "-c", text, "sh"}
}

// TestUntuned checks that the other variables remain.
func TestUntuned(t *testing.T) {
	got := untuned([]string{"A=1", "GOGC=50", "GOMAXPROCS=2", "GOMEMLIMIT=1GiB", "GODEBUG=x=1", "B"})
	if want := []string{"A=1", "B"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
