package image

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	worker  = "/opt/millrace/worker"
	library = "/opt/millrace/libmillrace.so"
	loader  = "/lib64/ld-linux-x86-64.so.2"

	// patience limits the start and the stop of the worker.
	patience = time.Minute
)

// call runs a program of the jail until it exits.
func call(t *testing.T, root string, env []string, program ...string) (code int, out string) {
	t.Helper()
	cmd := jailed(t, root, env, program...)
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }) // usually it has exited already
	defer timer.Stop()
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// says runs a program and checks its exit status and its output.
func says(t *testing.T, root string, env []string, program []string, code int, texts ...string) string {
	t.Helper()
	got, out := call(t, root, env, program...)
	if got != code {
		t.Errorf("%q: exit status %d, want %d", program, got, code)
	}
	for _, text := range texts {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), text) {
			t.Errorf("the output of %q doesn't contain %q", program, text)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
	return out
}

// TestEveryLibraryIsFound lists the libraries that the jail's dynamic loader would load.
func TestEveryLibraryIsFound(t *testing.T) {
	root := jailRoot(t, tree(t))
	for _, file := range []string{worker, library} {
		t.Log(file + "\n" + says(t, root, nil, []string{loader, "--list", file}, 0, "libc.so.6 => /lib/"))
	}
}

// TestWorkerFindsItsLibrary checks that the worker opens the kernel library in the image and reports the missing GPU.
func TestWorkerFindsItsLibrary(t *testing.T) {
	root := jailRoot(t, tree(t))
	says(t, root, nil, []string{worker, "version"}, 0, "millrace 1.2.3", "commit 0123456789ab", "kernel library "+library, "CUDA runtime 12.4")
	says(t, root, []string{"MILLRACE_DEVICE=cuda"}, []string{worker, "check"}, 1, "error device cuda", "driver")
	says(t, root, []string{"MILLRACE_NATS_URL=nats://127.0.0.1:1"}, []string{worker, "check"}, 1, "no GPU, the CPU computes")
}

// TestDemoRunsWithAReadOnlyRoot checks that the demo needs only /tmp.
func TestDemoRunsWithAReadOnlyRoot(t *testing.T) {
	root := jailRoot(t, tree(t))
	before := contents(t, root)
	says(t, root, nil, []string{worker, "demo", "--payloads", "300"}, 1, "read-only file system")
	env := []string{jailTmp + "=" + writable(t)}
	says(t, root, env, []string{worker, "demo", "--payloads", "300"}, 0, "verified 300 of 300 results")
	if after := contents(t, root); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the demo changed the image's files:\nbefore %v\nafter %v", before, after)
	}
	says(t, root, env, []string{worker, "demo", "--payloads", "10", "--timeline", "/opt/millrace/t.json"}, 1, "read-only file system")
}

// TestRunWritesWhereItMay checks that, without an external server, the worker stores its streams in its data folder. If it can't write
// there, the error must name the variable to set.
func TestRunWritesWhereItMay(t *testing.T) {
	if l, err := net.Listen("tcp", "127.0.0.1:4222"); err != nil {
		t.Fatalf("the embedded server needs 127.0.0.1:4222, which is in use: %v", err)
	} else if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	root := jailRoot(t, tree(t))
	says(t, root, []string{"MILLRACE_HTTP_ADDR="}, []string{worker, "run"}, 1, "MILLRACE_DATA_DIR", "millrace-data", "read-only file system")

	data := writable(t)
	env := []string{"MILLRACE_HTTP_ADDR=127.0.0.1:0", "MILLRACE_LOG_FORMAT=json"}
	p := start(t, root, append(env, jailHome+"="+data, "MILLRACE_DATA_DIR="+home+"/streams"))
	p.working()
	p.unprivileged()

	// With an external server, the worker writes no files.
	other := start(t, jailRoot(t, tree(t)), append(env, "MILLRACE_NATS_URL=nats://127.0.0.1:4222"))
	other.working()
	other.stop()
	p.stop()
	owned := 0
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Sys().(*syscall.Stat_t).Uid == nobody {
			owned++
		}
		return err
	})
	if err != nil || owned < 2 {
		t.Errorf("%d files of the image's user in its data folder, error %v", owned, err)
	}
}

// TestImageWithoutTheServer builds the image with TAGS=noembedded. That image is smaller and requires a server.
func TestImageWithoutTheServer(t *testing.T) {
	args := maps.Clone(stamped)
	args["TAGS"] = "noembedded"
	dir := t.TempDir()
	if err := playAll(dir, args, stages); err != nil {
		t.Fatal(err)
	}
	lean := filepath.Join(dir, final)
	root := jailRoot(t, lean)
	const asks = `"error":"MILLRACE_NATS_URL=\"\": this build has no NATS server in it` // the log is in JSON
	says(t, root, nil, []string{worker, "run"}, 2, asks, "set nats://")
	says(t, root, nil, []string{worker, "check"}, 1, "error MILLRACE_NATS_URL")
	says(t, root, nil, []string{worker, "demo"}, 2, "use a build without that tag")
	says(t, root, nil, []string{worker, "version"}, 0, "embedded NATS server none", "kernel library "+library)
	size := func(tree string) int64 {
		info, err := os.Stat(tree + worker)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	with, without := size(tree(t)), size(lean)
	if t.Logf("%d bytes with the server, %d without", with, without); with-without < 8_000_000 { // docs/adr/0021: the server takes 8.8 MB
		t.Errorf("the worker has %d bytes without the server and %d with it, so the server was not left out", without, with)
	}
}

// writable returns a new folder that only the image's user can access.
func writable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	return dir
}

type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	said  []string
}

func start(t *testing.T, root string, env []string) *process {
	t.Helper()
	p := &process{t: t, cmd: jailed(t, root, env, worker, "run"), lines: make(chan string, 1000)}
	r, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // already exited unless the test failed
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p
}

// await reads the worker's output until it contains text.
func (p *process) await(text string) {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line, more := <-p.lines:
			if p.said = append(p.said, line); strings.Contains(line, text) {
				return
			}
			if !more {
				p.t.Fatalf("the worker ended without logging %s:\n%s", text, strings.Join(p.said, "\n"))
			}
		case <-timer.C:
			p.t.Fatalf("the worker did not log %s:\n%s", text, strings.Join(p.said, "\n"))
		}
	}
}

// field returns the value after name in the line that contains text.
func (p *process) field(text, name string) string {
	p.t.Helper()
	for _, line := range p.said {
		if _, value, ok := strings.Cut(line, name); ok && strings.Contains(line, text) {
			value, _, _ = strings.Cut(value, `"`)
			return value
		}
	}
	p.t.Fatalf("no line has %s and %s:\n%s", text, name, strings.Join(p.said, "\n"))
	return ""
}

// working waits until the worker logs that it works, and then until it is ready.
func (p *process) working() {
	p.t.Helper()
	p.await(`"msg":"working"`)
	address := p.field(`"msg":"serving metrics and health"`, `"address":"`)
	over := time.NewTimer(patience)
	defer over.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		got := get(p.t, address+"readyz")
		if got == http.StatusOK {
			return
		}
		select {
		case <-again.C:
		case <-over.C:
			p.t.Fatalf("/readyz answers %d", got)
		}
	}
}

// unprivileged checks the process's privileges in the kernel's report.
func (p *process) unprivileged() {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	status := strings.Join(strings.Fields(string(text)), " ")
	user := fmt.Sprintf("Uid: %d %[1]d %[1]d %[1]d Gid: %[1]d %[1]d %[1]d %[1]d", nobody)
	for _, want := range []string{user, "CapPrm: 0000000000000000 CapEff: 0000000000000000 CapBnd: 0000000000000000", "NoNewPrivs: 1"} {
		if !strings.Contains(status, want) {
			p.t.Errorf("the process's status is not %q:\n%s", want, text)
		}
	}
}

// stop requests a drain and waits until the worker exits.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	p.await("every payload was finished or given back")
	for line := range p.lines {
		p.said = append(p.said, line)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the worker ended with %v", err)
	}
}

func get(t *testing.T, url string) int {
	t.Helper()
	response, err := http.Get(url) //nolint:noctx // the worker answers at once or not at all
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Error(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	return response.StatusCode
}
