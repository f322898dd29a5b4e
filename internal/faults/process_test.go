package faults

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"millrace/internal/ingest/natstest"
)

// process is a running program. Its output goes to a file.
type process struct {
	t        testing.TB
	name     string
	cmd      *exec.Cmd
	log      string
	done     chan struct{} // closed once the process has ended
	expected atomic.Bool   // the test expects the process to end
}

// births receives the functions by which nurse starts processes.
var births = make(chan func())

// nurse starts all processes from one thread that lives as long as the tests. The kernel kills the processes when that
// thread ends. So no process survives if the tests panic or are killed.
func nurse() {
	pinThread()
	for birth := range births {
		birth()
	}
}

// start starts a program in dir, and writes its log there. The program is stopped when the test ends.
func start(t testing.TB, dir, name, binary string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(binary, args...), log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = env, dir, out, out
	dieWithParent(p.cmd)
	born := make(chan error)
	births <- func() { born <- p.cmd.Start() }
	err = errors.Join(<-born, out.Close())
	if err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // cmd.ProcessState has the exit status
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("last output of %s (%v):\n%s", p.name, p.cmd.ProcessState, p.tail())
		}
	})
	return p
}

// signal sends a signal that is expected to end the process.
func (p *process) signal(s os.Signal) {
	p.expected.Store(true)
	_ = p.cmd.Process.Signal(s) // the exit status shows if the process has already exited
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// terminate sends SIGTERM to the process and returns its exit status.
func (p *process) terminate() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(natstest.Patience):
		p.t.Fatalf("%s has not ended %v after SIGTERM", p.name, natstest.Patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// said searches for the first line of output that contains all of the texts. It returns the part of the line after the
// last text, or false if there is no such line.
func (p *process) said(texts ...string) (rest string, ok bool) {
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		if rest, ok := after(string(line), texts); ok {
			return rest, true
		}
	}
	return "", false
}

func (p *process) sayings(text string) int {
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return bytes.Count(log, []byte(text))
}

func after(line string, texts []string) (string, bool) {
	for _, text := range texts {
		_, rest, ok := strings.Cut(line, text)
		if !ok {
			return "", false
		}
		line = rest
	}
	return line, true
}

func (p *process) tail() string {
	const lines, width = 30, 600
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(log)), "\n")
	last := all[max(len(all)-lines, 0):]
	for i, line := range last {
		last[i] = line[:min(len(line), width)]
	}
	return strings.Join(last, "\n")
}
