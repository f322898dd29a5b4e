package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/topology"
)

// documented returns the server configuration in docs/security.md with the users admin, worker, exclusive, publisher,
// reader, auditor and retrier.
func documented(t *testing.T) string {
	t.Helper()
	return documentedAfter(t, "## What the worker's user must be allowed")
}

// documentedAfter returns the first server configuration after a heading in docs/security.md.
func documentedAfter(t *testing.T, heading string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n"+heading+"\n")
	_, rest, found := strings.Cut(section, "```conf\n")
	conf, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/security.md has no block of the server's configuration")
	}
	return conf
}

// documentedServer starts a server with the documented configuration. The returned function connects as the named user.
func documentedServer(t *testing.T) (s *server.Server, as func(user string) (*nats.Conn, jetstream.JetStream)) {
	t.Helper()
	return serverOf(t, documented(t))
}

// serverOf is like documentedServer, but with the given configuration text.
func serverOf(t *testing.T, text string) (s *server.Server, as func(user string) (*nats.Conn, jetstream.JetStream)) {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	s = guarded(t, *options)
	return s, func(user string) (*nats.Conn, jetstream.JetStream) {
		t.Helper()
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, user+"-password"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return nc, js
	}
}

// TestDocumentedPermissionsAreEnough runs workers as the users of docs/security.md. The server refuses nothing, and the
// workers leave no files.
func TestDocumentedPermissionsAreEnough(t *testing.T) {
	t.Parallel()
	for user, delivery := range map[string]string{"worker": "shared", "exclusive": "exclusive"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			s, as := documentedServer(t)
			_, admin := as("admin")
			provision(t, admin, delivery == "exclusive")
			scratch := t.TempDir()
			env := []string{"MILLRACE_NATS_URL=nats://" + user + ":" + user + "-password@" + s.Addr().String(), "MILLRACE_OPERATORS=crc32c",
				"MILLRACE_DELIVERY=" + delivery, "MILLRACE_PARTITIONS=2", "MILLRACE_BATCH_BYTES=64KiB",
				"MILLRACE_LOG_FORMAT=json", "MILLRACE_HTTP_ADDR=127.0.0.1:0", "TMPDIR=" + scratch}
			checked := call(t, env, "check")
			checked.want(t, exitDone, "ok       processed inputs in stream INGEST: workers remove them")
			if checked.want(t, exitDone, " 0 errors"); delivery == "exclusive" {
				checked.want(t, exitDone, "ok       stream RESULTS: exactly once", "ok       dead letters deadletter.>: exactly once")
			}
			p := start(t, env)
			p.await(`"msg":"working"`)
			_, publisher := as("publisher")
			const n = 100
			for i := range n {
				size := 10
				if i == n/2 {
					size = 100 << 10 // exceeds a batch and becomes a dead letter
				}
				if _, err := publisher.Publish(t.Context(), fmt.Sprint("ingest.", i), make([]byte, size)); err != nil {
					t.Fatal(err)
				}
			}
			metrics := address(t, p, "serving metrics and health") + "metrics"
			awaitBody(t, metrics, fmt.Sprintf(`millrace_messages_total{outcome="published"} %d`, n-1))
			awaitBody(t, metrics, `millrace_messages_total{outcome="deadlettered"} 1`)
			awaitBody(t, metrics, "millrace_trimmed_inputs_total "+strconv.Itoa(n))
			if code := p.terminate(); code != exitDone {
				t.Errorf("exit status %d after SIGTERM, want 0", code)
			}
			if strings.Contains(strings.ToLower(p.text()), "permissions violation") {
				t.Error("the worker lacks a permission")
			}
			for _, dir := range []string{p.cmd.Dir, scratch} {
				if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
					t.Errorf("the worker left %v, %v", files, err)
				}
			}
			for subjects, want := range map[string]uint64{"results.>": n - 1, "deadletter.>": 1} {
				if got := messagesOn(t, admin, subjects); got != want {
					t.Errorf("%d messages on %s, want %d", got, subjects, want)
				}
			}
			url := func(user string) string {
				return "MILLRACE_NATS_URL=nats://" + user + ":" + user + "-password@" + s.Addr().String()
			}
			call(t, append(env, url("auditor")), "audit").want(t, exitDone, "99 have one result", "1 have one dead letter", "nothing is missing")
			call(t, append(env, url("publisher")), "audit").want(t, exitFailed, "ermission")
			call(t, append(env, url("retrier")), "retry", "--dry-run").want(t, exitDone, "would send 1 dead letter again")
			call(t, append(env, url("reader")), "retry").want(t, exitFailed, "ermission", "docs/security.md")
			call(t, append(env, url("retrier")), "retry").want(t, exitDone, "sent 1 dead letter again")
			call(t, append(env, url("retrier")), "retry", "--dry-run").want(t, exitDone, "would send 0 dead letters again")
		})
	}
}

func messagesOn(t *testing.T, js jetstream.JetStream, subjects string) (n uint64) {
	t.Helper()
	name, err := js.StreamNameBySubject(t.Context(), subjects)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(subjects))
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range info.State.Subjects {
		n += count
	}
	return n
}

// provision creates the streams and consumers of the workers. With exclusive delivery, the streams accept commit
// markers.
func provision(t *testing.T, js jetstream.JetStream, exclusive bool) {
	t.Helper()
	dead := jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"deadletter.>", "commits.DEAD.>"}, AllowAtomicPublish: true}
	if _, err := js.CreateStream(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	err := topology.Provision(t.Context(), js, topology.Topology{
		Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace", ResultStream: "RESULTS", ResultPrefix: "results",
		DeadLetterPrefix: "deadletter", CommitPrefix: "commits", ResultIDs: true, Exclusive: exclusive, Partitions: 2, AckWait: 30 * time.Second, MaxAckPending: 200000,
		Kept: topology.Kept{Trim: true},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
}

// TestDocumentedPermissionsAreTheLeast tries forbidden operations as each user. `worker check` must name a missing
// permission.
func TestDocumentedPermissionsAreTheLeast(t *testing.T) {
	t.Parallel()
	s, as := documentedServer(t)
	_, admin := as("admin")
	provision(t, admin, false)
	for user, subjects := range map[string][]string{
		"worker":    {"ingest.test", "$JS.API.STREAM.DELETE.INGEST", "$JS.API.STREAM.UPDATE.INGEST", "$JS.API.STREAM.PURGE.RESULTS", "$JS.API.CONSUMER.DELETE.INGEST.millrace", "other"},
		"exclusive": {"ingest.test", "$JS.API.STREAM.DELETE.INGEST", "$JS.API.STREAM.UPDATE.INGEST", "$JS.API.STREAM.PURGE.RESULTS", "other"},
		"publisher": {"results.test", "deadletter.test", "commits.RESULTS.test", "$JS.API.STREAM.INFO.RESULTS", "$JS.API.CONSUMER.MSG.NEXT.INGEST.millrace", "$JS.ACK.INGEST.millrace.1.1.1.1.0"},
		"retrier": {"results.test", "deadletter.test", "commits.RESULTS.test", "$JS.API.STREAM.DELETE.DEAD", "$JS.API.STREAM.PURGE.DEAD", "$JS.API.STREAM.MSG.DELETE.DEAD",
			"$JS.API.CONSUMER.DELETE.DEAD.millrace-retry", "$JS.ACK.INGEST.millrace.1.1.1.1.0", "$JS.API.CONSUMER.CREATE.INGEST.x", "$JS.API.STREAM.MSG.GET.INGEST"},
		"reader": {"ingest.test", "results.test", "commits.RESULTS.test", "$JS.API.CONSUMER.MSG.NEXT.INGEST.millrace", "$JS.API.STREAM.PURGE.RESULTS", "$JS.API.CONSUMER.CREATE.INGEST.x"},
	} {
		nc, _ := as(user)
		for _, subject := range subjects {
			if err := refusal(nc, subject); err == nil {
				t.Errorf("user %s may publish on %s", user, subject)
			}
		}
	}
	call(t, []string{"MILLRACE_NATS_URL=nats://worker:worker-password@" + s.Addr().String(), "MILLRACE_CONSUMER=other"}, "check").
		want(t, exitFailed, "error    permissions", `"$JS.API.CONSUMER.INFO.INGEST.other"`, "docs/security.md")
}

// refusal publishes on subject and returns the server's error if it refuses the message.
func refusal(nc *nats.Conn, subject string) error {
	if err := nc.Publish(subject, nil); err != nil {
		return err
	}
	if err := nc.Flush(); err != nil { // the server reports a refusal before its reply to the flush
		return err
	}
	if err := nc.LastError(); err != nil && strings.Contains(err.Error(), `"`+subject+`"`) {
		return err
	}
	return nil
}

// TestAWorkerThatMayNotPurge checks that `worker check` and the log warn that the stream fills up. The worker must still work.
func TestAWorkerThatMayNotPurge(t *testing.T) {
	t.Parallel()
	s, as := serverOf(t, strings.ReplaceAll(documented(t), `, "$JS.API.STREAM.PURGE.INGEST"`, ""))
	_, admin := as("admin")
	provision(t, admin, false)
	env := []string{"MILLRACE_NATS_URL=nats://worker:worker-password@" + s.Addr().String(), "MILLRACE_OPERATORS=crc32c", "MILLRACE_LOG_FORMAT=json", "MILLRACE_HTTP_ADDR=127.0.0.1:0"}
	call(t, env, "check").want(t, exitDone, "warning  processed inputs in stream INGEST: this worker can't remove them, so the stream fills", "$JS.API.STREAM.PURGE.INGEST", "MILLRACE_STREAM_TRIM=false")
	p := start(t, env)
	p.await(`"msg":"working"`)
	if _, err := admin.Publish(t.Context(), "ingest.a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	metrics := address(t, p, "serving metrics and health") + "metrics"
	awaitBody(t, metrics, `millrace_messages_total{outcome="published"} 1`)
	p.await("this worker may not remove processed inputs")
	awaitBody(t, metrics, `millrace_trim_held{reason="forbidden"} 1`)
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
}
