package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	core "k8s.io/api/core/v1"
)

// theWorker builds the worker once for all tests and returns its path. TestMain removes the file.
var theWorker = sync.OnceValues(func() (binary string, err error) {
	dir, err := os.MkdirTemp("", "millrace-chart-")
	if err != nil {
		return "", err
	}
	workerDir = dir
	binary = filepath.Join(dir, "worker")
	command := exec.Command("go", "build", "-o", binary, "./cmd/worker")
	command.Dir = "../.."
	if said, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, said)
	}
	return binary, nil
})

// workerDir is the folder of theWorker, or empty if no test has built it.
var workerDir string

func buildWorker(t *testing.T) string {
	t.Helper()
	binary, err := theWorker()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// build builds a program in the folder of a module.
func build(t *testing.T, module, program string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), path.Base(program))
	command := exec.CommandContext(t.Context(), "go", "build", "-o", binary, program)
	command.Dir = module
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return binary
}

// asContainer returns a command that runs program as in a container, with the container's arguments and only its
// variables.
func asContainer(ctx context.Context, program string, c core.Container) *exec.Cmd {
	command := exec.CommandContext(ctx, program, c.Args...)
	for name, value := range environment(c) {
		command.Env = append(command.Env, name+"="+value)
	}
	return command
}

// TestPodLives runs the Deployment's container program with a NATS server. It acts as a kubelet: it calls the probes,
// runs the pod of helm test, and ends the container within its grace period.
func TestPodLives(t *testing.T) {
	worker := buildWorker(t)
	list := objects(t, enough.with(values{
		"nats.url": natsServer(t), "gpu.mode": "none", "config.provision": true, "http.port": freePort(t), "config.drainTimeout": "2s",
	}))
	pod := workerPod(t, list)
	c := pod.Containers[0]
	var said output
	running := asContainer(t.Context(), worker, c)
	running.Stdout, running.Stderr = &said, &said
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- running.Wait() }()

	for name, probe := range map[string]*core.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		if err := succeeds(t, probe, c.Ports[0].ContainerPort); err != nil {
			t.Fatalf("the %s probe: %v\n%s", name, err, &said)
		}
	}
	if found, err := asContainer(t.Context(), worker, find[*core.Pod](t, list).Spec.Containers[0]).CombinedOutput(); err != nil || !strings.Contains(string(found), " 0 errors") {
		t.Errorf("helm test: %v\n%s", err, found)
	}

	if err := running.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("after SIGTERM: %v\n%s", err, &said)
		}
	case <-time.After(time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second):
		t.Errorf("the grace period of %d s is over, but the worker still runs\n%s", *pod.TerminationGracePeriodSeconds, &said)
	}
}

// succeeds calls a probe until it succeeds, at most as often as the kubelet, at shorter intervals.
func succeeds(t *testing.T, probe *core.Probe, port int32) (err error) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	patience := time.Duration(max(probe.FailureThreshold*probe.PeriodSeconds, 60)) * time.Second
	for over := time.After(patience); ; {
		if err = get(t, fmt.Sprintf("http://127.0.0.1:%d%s", port, probe.HTTPGet.Path)); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-over:
			return err
		}
	}
}

// get returns nil if a probe accepts the response.
func get(t *testing.T, url string) error {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // the body is only read
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return err
}

// output collects a program's output. Tests may read it while the program runs.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// natsServer starts a server with JetStream until the test ends.
func natsServer(t *testing.T) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server does not become ready")
	}
	return s.ClientURL()
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the listener sent nothing
	return l.Addr().(*net.TCPAddr).Port
}
