package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
)

// TestOldestServers runs each delivery mode end to end on its oldest supported server. Exclusive delivery must fail on
// an older one.
func TestOldestServers(t *testing.T) {
	if os.Getenv("MILLRACE_TEST_OLDEST") == "" {
		t.Skip("SKIPPED: this test installs old servers: .ci/run oldest")
	}
	t.Parallel()
	t.Run("shared", func(t *testing.T) {
		t.Parallel()
		url, js := oldServer(t, topology.OldestShared)
		e := elsewhere{T: t, js: js, env: []string{"MILLRACE_NATS_URL=" + url}}
		e.processes("shared")
		call(t, append(e.env, "MILLRACE_DELIVERY=exclusive"), "check").want(t, exitFailed, "exclusive delivery needs nats-server "+topology.OldestExclusive.String())
	})
	t.Run("exclusive", func(t *testing.T) {
		t.Parallel()
		url, js := oldServer(t, topology.OldestExclusive)
		e := elsewhere{T: t, js: js, env: []string{"MILLRACE_NATS_URL=" + url}}
		e.processes("exclusive")
	})
}

// oldServer installs the first version of a nats-server release and starts it with JetStream.
func oldServer(t *testing.T, release jsapi.Release) (url string, js jetstream.JetStream) {
	t.Helper()
	dir := t.TempDir()
	install := exec.Command("go", "install", fmt.Sprintf("github.com/nats-io/nats-server/v2@v%s.0", release))
	install.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install nats-server %s.0: %v\n%s", release, err, out)
	}
	addr := freeAddr()
	host, port, _ := strings.Cut(addr, ":")
	server := exec.Command(filepath.Join(dir, "nats-server"), "-js", "-sd", t.TempDir(), "-a", host, "-p", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	var nc *nats.Conn
	natstest.Until(t, "the server answers", func() bool {
		var err error
		nc, err = nats.Connect("nats://" + addr)
		return err == nil
	})
	t.Cleanup(nc.Close)
	if got, want := nc.ConnectedServerVersion(), release.String()+".0"; got != want {
		t.Fatalf("the server is version %s, want %s", got, want)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return "nats://" + addr, js
}
