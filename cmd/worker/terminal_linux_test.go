package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onTerminal runs the worker on a terminal with the given number of columns, and returns the worker's output.
func onTerminal(t *testing.T, columns int, env []string, args ...string) (code int, text string) {
	t.Helper()
	programs(t)
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("SKIPPED: THIS MACHINE HAS NO PSEUDOTERMINALS: %v", err)
	}
	defer func() { _ = ours.Close() }() // everything is read
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)})
	}
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = environment(env...), t.TempDir(), theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var out bytes.Buffer
	_, _ = io.Copy(&out, ours) // reading fails once the worker has closed the terminal
	_ = cmd.Wait()             // ProcessState has the result
	return cmd.ProcessState.ExitCode(), strings.ReplaceAll(out.String(), "\r\n", "\n")
}

func TestColoursOnATerminal(t *testing.T) {
	t.Parallel()
	s := serve(t)
	taken := strings.TrimPrefix(s.URL(), "nats://")
	for name, c := range map[string]struct {
		env  []string
		want bool
	}{
		"usual":     {[]string{"TERM=xterm-256color", "NO_COLOR="}, true},
		"NO_COLOR":  {[]string{"TERM=xterm-256color", "NO_COLOR=1"}, false},
		"TERM=dumb": {[]string{"TERM=dumb", "NO_COLOR="}, false},
		"JSON":      {[]string{"TERM=xterm", "NO_COLOR=", "MILLRACE_LOG_FORMAT=json"}, false},
	} {
		env := slices.Concat(c.env, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_HTTP_ADDR=" + taken}) // makes the command end
		code, text := onTerminal(t, 80, env)
		if got := strings.Contains(text, "\x1b["); got != c.want || code != exitFailed || !strings.Contains(text, "device ready") {
			t.Errorf("%s: status %d, colours %v, want %v: %q", name, code, got, c.want, text)
		}
	}
}

func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	bench := []string{"bench", "copy", "--bytes", "4KiB", "--seconds=0.001", "--rounds", "1"}
	for term, want := range map[string]bool{"xterm": true, "dumb": false} {
		code, text := onTerminal(t, 80, []string{"TERM=" + term, "NO_COLOR="}, bench...)
		if got := strings.Contains(text, "\x1b[K"); got != want || code != exitDone {
			t.Errorf("TERM=%s: status %d, a line is drawn over: %v, want %v: %q", term, code, got, want, text)
		}
	}
}

func TestSendDrawsItsProgress(t *testing.T) {
	t.Parallel()
	s := serve(t)
	provision(t, client(t, s), false)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("a line\n", 2000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for term, want := range map[string]bool{"xterm": true, "dumb": false} {
		code, text := onTerminal(t, 80, []string{"TERM=" + term, "MILLRACE_NATS_URL=" + s.URL()}, "send", "--lines", file)
		bar := strings.Contains(text, "██") && strings.Contains(text, " 2,000 stored, ")
		if code != exitDone || bar != want || !strings.Contains(text, "stored 2,000 payloads") {
			t.Errorf("TERM=%s: status %d, a bar %v, want %v: %q", term, code, bar, want, text)
		}
		for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r", "\n"), "\n") {
			if n := len([]rune(line)); strings.HasPrefix(line, "█") && n > 80 {
				t.Errorf("the bar has %d columns: %q", n, line)
			}
		}
	}
}

func TestTextFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-h"}, {"bench", "-h"}, {"operator", "test", "-h"}, {"config"}, {"check"}} {
		code, text := onTerminal(t, 72, []string{"TERM=xterm", "MILLRACE_DEVICE=auto"}, args...)
		if code != exitDone && args[0] != "check" || len(text) < 400 {
			t.Errorf("%q: status %d:\n%s", args, code, text)
		}
		for line := range strings.Lines(text) {
			// A long word, such as a path, is not split.
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 72 && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%q on a terminal of 72 columns: a line has %d: %q", args, n, line)
			}
		}
	}
}
