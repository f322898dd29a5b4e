package main

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// elsewhere is a JetStream in a different server or account than the worker's connection.
type elsewhere struct {
	*testing.T
	js  jetstream.JetStream // test's connection to the streams
	env []string            // variables with which the worker reaches the streams
}

// processes runs two workers with env, one after the other. Each processes earlier inputs and inputs that arrive during
// its run. Every input must have one result or dead letter, both in the stream and in the output of `worker results`.
func (e *elsewhere) processes(delivery string) {
	env := append([]string{
		"MILLRACE_DELIVERY=" + delivery, "MILLRACE_PROVISION=true", "MILLRACE_PARTITIONS=2", "MILLRACE_OPERATORS=crc32c", "MILLRACE_BATCH_BYTES=64KiB",
		"MILLRACE_LOG_FORMAT=json", "MILLRACE_HTTP_ADDR=127.0.0.1:0", "MILLRACE_STREAM_MAX_BYTES=64MiB", "MILLRACE_RESULT_MAX_BYTES=64MiB",
		"MILLRACE_DEADLETTER_MAX_BYTES=64MiB",
	}, e.env...)
	inputs := filepath.Join(e.TempDir(), "inputs")
	const each = 100
	send := func(name string) {
		e.Helper()
		var lines bytes.Buffer
		for i := range each {
			fmt.Fprintln(&lines, name, i)
		}
		if err := os.WriteFile(inputs, lines.Bytes(), 0o600); err != nil {
			e.Fatal(err)
		}
		call(e.T, env, "send", "--lines", "--subject", "ingest."+name, inputs).want(e.T, exitDone)
	}
	large := filepath.Join(e.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, 100<<10), 0o600); err != nil {
		e.Fatal(err)
	}

	p := start(e.T, env)
	p.await(`"msg":"working"`)
	metrics := address(e.T, p, "serving metrics and health") + "metrics"
	send("live")
	call(e.T, env, "send", "--subject", "ingest.large", large).want(e.T, exitDone) // exceeds a batch
	awaitBody(e.T, metrics, fmt.Sprintf(`millrace_messages_total{outcome="published"} %d`, each))
	awaitBody(e.T, metrics, `millrace_messages_total{outcome="deadlettered"} 1`)
	awaitBody(e.T, metrics, fmt.Sprintf("millrace_trimmed_inputs_total %d", each+1))
	if code := p.terminate(); code != exitDone {
		e.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	send("waiting")
	p = start(e.T, env)
	p.await(`"msg":"working"`)
	awaitBody(e.T, address(e.T, p, "serving metrics and health")+"metrics", fmt.Sprintf(`millrace_messages_total{outcome="published"} %d`, each))
	if delivery == "exclusive" {
		call(e.T, env, "check").want(e.T, exitDone, "ok       stream RESULTS: exactly once", " 0 errors")
	} else {
		call(e.T, env, "check").want(e.T, exitDone, " 0 errors")
	}
	if code := p.terminate(); code != exitDone {
		e.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	for subjects, want := range map[string]uint64{"results.>": 2 * each, "deadletter.>": 1} {
		if got := messagesOn(e.T, e.js, subjects); got != want {
			e.Errorf("%d messages on %s, want %d", got, subjects, want)
		}
	}
	printed := call(e.T, env, "results", "--all")
	printed.want(e.T, exitDone)
	if got := strings.Count(printed.out, "\n"); got != 2*each+1 {
		e.Errorf("`worker results` prints %d lines, want %d", got, 2*each+1)
	}
	for _, sent := range []string{"sent 1 dead letter again", "sent 0 dead letters again"} {
		call(e.T, env, "retry").want(e.T, exitDone, sent)
	}
	call(e.T, env, "audit").want(e.T, exitDone, "1 have one dead letter", "1 are pending")
}

// TestJetStreamOfAnotherDomain runs workers on a leaf node. The leaf node's own JetStream must receive no requests. Package pull tests that
// the worker parses both forms of acknowledgement subjects. With exclusive delivery, the worker also builds the long form here, and the
// short form in TestJetStreamOfAnotherAccount.
func TestJetStreamOfAnotherDomain(t *testing.T) {
	t.Parallel()
	for delivery, flags := range map[string]map[string]bool{"shared": nil, "exclusive": {server.FeatureFlagJsAckFormatV2: true}} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			js, leaf := leafNode(t, flags)
			e := elsewhere{T: t, js: js, env: []string{"MILLRACE_NATS_URL=" + leaf.ClientURL(), "MILLRACE_NATS_JS_DOMAIN=hub"}}
			e.processes(delivery)
			if delivery == "exclusive" {
				call(t, e.env, "bench", "nats", "--bytes", "64", "--seconds=0.002", "--rounds", "1", "--storage", "memory", "--row", "millrace-exclusive",
					"--server", leaf.ClientURL()).want(t, exitDone, "millrace-exclusive", "records/s")
			}
			if use, err := leaf.Jsz(nil); err != nil || use.JetStreamStats.API.Total != 0 {
				t.Errorf("the leaf node's own JetStream got %d requests, want none (%v)", use.JetStreamStats.API.Total, err)
			}
		})
	}
}

// leafNode starts a server with the JetStream domain hub, and a leaf node with a different domain. js is hub's
// JetStream.
func leafNode(t *testing.T, flags map[string]bool) (js jetstream.JetStream, leaf *server.Server) {
	t.Helper()
	// The server sets the leaf node port in its options when it starts.
	o := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(), JetStreamDomain: "hub",
		FeatureFlags: flags, LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: server.RANDOM_PORT},
	}
	hub, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	hub.Start()
	t.Cleanup(func() { hub.Shutdown(); hub.WaitForShutdown() })
	if !hub.ReadyForConnections(patience) {
		t.Fatal("the server did not start")
	}
	to := &url.URL{Scheme: "nats-leaf", Host: fmt.Sprint("127.0.0.1:", o.LeafNode.Port)}
	leaf = natstest.Plain(t, server.Options{
		JetStream: true, StoreDir: t.TempDir(), JetStreamDomain: "leaf",
		LeafNode: server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{{URLs: []*url.URL{to}}}},
	})
	natstest.Until(t, "the leaf node is connected", func() bool { return hub.NumLeafNodes() == 1 && leaf.NumLeafNodes() == 1 })
	nc, err := nats.Connect(hub.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return js, leaf
}

// TestJetStreamOfAnotherAccount runs workers with the accounts of docs/security.md.
func TestJetStreamOfAnotherAccount(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{"shared", "exclusive"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			s, as := serverOf(t, documentedAfter(t, "### When JetStream is elsewhere"))
			_, admin := as("admin")
			e := elsewhere{T: t, js: admin, env: []string{
				"MILLRACE_NATS_URL=nats://worker:worker-password@" + s.Addr().String(), "MILLRACE_NATS_JS_PREFIX=from.mill",
			}}
			e.processes(delivery)
		})
	}
}
