package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// needsLinker skips a test that links a worker unless MILLRACE_TEST_NOEMBEDDED is set, as in CI. Linking is slower than
// all other tests together.
func needsLinker(t *testing.T) {
	t.Helper()
	if os.Getenv("MILLRACE_TEST_NOEMBEDDED") == "" {
		t.Skip("SKIPPED: this test links a worker without a NATS server: MILLRACE_TEST_NOEMBEDDED=1 go test -run WithoutEmbedded ./cmd/worker")
	}
}

// withoutServer builds the worker without the embedded NATS server. Until the test ends, call and start use that
// worker. Unlike go build, go run caches the linked program.
func withoutServer(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "worker")
	if out, err := exec.Command("go", "run", "-exec=cp", "-tags=noembedded", ".", path).CombinedOutput(); err != nil {
		t.Fatalf("go run: %v\n%s", err, out)
	}
	full := binary
	binary = path
	t.Cleanup(func() { binary = full })
}

// TestWithoutEmbeddedServer checks that commands that need a server fail at once with advice, and that all other
// commands work.
func TestWithoutEmbeddedServer(t *testing.T) {
	needsLinker(t)
	withoutServer(t)
	const reason = "this build has no NATS server in it"
	call(t, nil, "run").want(t, exitUsage, "MILLRACE_NATS_URL", reason, "set nats://")
	call(t, []string{"MILLRACE_LANES=none"}, "run").want(t, exitUsage, "MILLRACE_NATS_URL", reason, "MILLRACE_LANES")
	call(t, nil, "check").want(t, exitFailed, "error", "MILLRACE_NATS_URL", reason)
	call(t, nil, "config").want(t, exitUsage, "MILLRACE_NATS_URL", reason, "MILLRACE_BATCH_BYTES")
	call(t, nil, "demo").want(t, exitUsage, "demo:", reason, "a build without that tag")
	call(t, nil, "bench", "nats").want(t, exitUsage, reason, "--server")
	call(t, nil, "bench").want(t, exitUsage, reason, "--server", "without nats")
	call(t, nil, "help").want(t, exitDone, "MILLRACE_NATS_URL must be set")
	if r := call(t, nil, "version"); !strings.Contains(strings.Join(strings.Fields(r.out), " "), "embedded NATS server none") {
		t.Errorf("version does not report that there is no server:\n%s", r.out)
	}
	call(t, nil, "bench", "latency", "--row", "streams", "--bytes", "4KiB", "--seconds=0.01", "--rounds", "1").want(t, exitDone, "p99 us")

	s := serve(t)
	call(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true"}, "check").want(t, exitDone, "0 errors")
	p := start(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_LOG_FORMAT=json"})
	p.await(`"msg":"working"`)
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
}

// TestWithoutEmbeddedServerItIsNotLinked compares the packages of the builds with and without the embedded server.
func TestWithoutEmbeddedServerItIsNotLinked(t *testing.T) {
	needsLinker(t)
	for tags, want := range map[string]bool{"": true, "noembedded": false} {
		out, err := exec.Command("go", "list", "-deps", "-tags="+tags, ".").Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if has := strings.Contains(string(out), "github.com/nats-io/nats-server/"); has != want {
			t.Errorf("with the tags %q the NATS server is linked: %v, want %v", tags, has, want)
		}
	}
}
