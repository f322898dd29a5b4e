package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// documented is the configuration of a server between fences in docs/security.md, for users admin, worker and publisher.
func documented(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(doc), "```conf\n")
	conf, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/security.md has no block of the server's configuration")
	}
	return conf
}

// TestDocumentedPermissionsAreEnough runs a worker as the user that docs/security.md describes, and tries what that user
// and the publisher may not.
func TestDocumentedPermissionsAreEnough(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	text := fmt.Sprintf("listen: \"127.0.0.1:-1\"\njetstream { store_dir: %q }\n%s", t.TempDir(), documented(t))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	s := guarded(t, *options)
	as := func(user string) (*nats.Conn, jetstream.JetStream) {
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
	_, admin := as("admin")
	for _, c := range []jetstream.StreamConfig{
		{Name: "INGEST", Subjects: []string{"ingest.>"}}, {Name: "RESULTS", Subjects: []string{"results.>"}, AllowAtomicPublish: true, AllowBatchPublish: true},
		{Name: "DEAD", Subjects: []string{"deadletter.>"}},
	} {
		if _, err := admin.CreateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.CreateConsumer(t.Context(), "INGEST", jetstream.ConsumerConfig{Durable: "millrace", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	env := []string{"MILLRACE_NATS_URL=nats://worker:worker-password@" + s.Addr().String(), "MILLRACE_OPERATORS=crc32c",
		"MILLRACE_BATCH_BYTES=64KiB", "MILLRACE_LOG_FORMAT=json", "MILLRACE_HTTP_ADDR=127.0.0.1:0", "TMPDIR=" + t.TempDir()}
	call(t, env, "check").want(t, exitDone, "0 errors")
	call(t, append(env, "MILLRACE_CONSUMER=other"), "check").want(t, exitFailed, "error    permissions", `"$JS.API.CONSUMER.INFO.INGEST.other"`, "docs/security.md")
	p := start(t, env)
	p.await(`"msg":"working"`)
	_, publisher := as("publisher")
	const n = 100
	for i := range n {
		size := 10
		if i == n/2 {
			size = 100 << 10 // more than a batch takes: a dead letter
		}
		if _, err := publisher.Publish(t.Context(), "ingest.test", make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	metrics := address(t, p, "serving metrics and health") + "metrics"
	awaitBody(t, metrics, fmt.Sprintf(`millrace_messages_total{outcome="published"} %d`, n-1))
	awaitBody(t, metrics, `millrace_messages_total{outcome="deadlettered"} 1`)
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	if strings.Contains(strings.ToLower(p.text()), "permissions violation") {
		t.Error("the worker lacks a permission")
	}
	for _, dir := range []string{p.cmd.Dir, strings.TrimPrefix(env[len(env)-1], "TMPDIR=")} {
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("the worker left %v, %v", files, err)
		}
	}
	for stream, want := range map[string]uint64{"RESULTS": n - 1, "DEAD": 1} {
		if got := streamMessages(t, admin, stream); got != want {
			t.Errorf("%d messages in %s, want %d", got, stream, want)
		}
	}
	for user, subjects := range map[string][]string{
		"worker":    {"ingest.test", "$JS.API.STREAM.DELETE.INGEST", "$JS.API.STREAM.PURGE.RESULTS", "other"},
		"publisher": {"results.test", "deadletter.test", "$JS.API.STREAM.INFO.RESULTS", "$JS.API.CONSUMER.MSG.NEXT.INGEST.millrace", "$JS.ACK.INGEST.millrace.1.1.1.1.0"},
	} {
		nc, _ := as(user)
		for _, subject := range subjects {
			if err := refusal(nc, subject); err == nil {
				t.Errorf("user %s may publish on %s", user, subject)
			}
		}
	}
}

// refusal publishes and returns what the server has against it, if anything.
func refusal(nc *nats.Conn, subject string) error {
	refused := make(chan error, 1)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case refused <- err:
		default:
		}
	})
	if err := nc.Publish(subject, nil); err != nil {
		return err
	}
	if err := nc.Flush(); err != nil { // the server's word on the message comes before its answer to this
		return err
	}
	if err := nc.LastError(); err != nil {
		return err
	}
	select {
	case err := <-refused:
		return err
	default:
		return nil
	}
}
