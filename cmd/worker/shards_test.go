package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// createInput creates an input stream as a user would, with a subject transform for exclusive delivery.
func createInput(t *testing.T, js jetstream.JetStream, name string, exclusive bool) {
	t.Helper()
	subjects := strings.ToLower(name) + ".>"
	c := jetstream.StreamConfig{Name: name, Subjects: []string{subjects}, AllowMsgTTL: true}
	if exclusive {
		c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: ">", Destination: "{{partition(2)}}.>"}
	}
	if _, err := js.CreateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// TestWorkerOfManyStreams shows that a worker finds the streams of a pattern when it starts and within 5 s while it runs, and that the
// commands that users type handle each stream. Each stream has its own result stream, or all have the same.
func TestWorkerOfManyStreams(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{"shared", "exclusive"} {
		for _, results := range []string{"OUT-{1}", "OUT"} {
			t.Run(delivery+" "+results, func(t *testing.T) {
				t.Parallel()
				s := serve(t)
				js := client(t, s)
				env := []string{
					"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_LOG_FORMAT=json", "MILLRACE_STREAM=IN-*", "MILLRACE_RESULT_STREAM=" + results,
					"MILLRACE_PROVISION=true", "MILLRACE_DELIVERY=" + delivery, "MILLRACE_PARTITIONS=2",
				}
				createInput(t, js, "IN-a", delivery == "exclusive")
				createInput(t, js, "IN-b", delivery == "exclusive")
				if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}}); err != nil {
					t.Fatal(err)
				}
				call(t, env, "check").want(t, 0, "names 2 streams", "0 errors")
				p := start(t, append(env, "MILLRACE_HTTP_ADDR=127.0.0.1:0"))
				p.await(`"msg":"working"`)
				lines := filepath.Join(t.TempDir(), "lines")
				if err := os.WriteFile(lines, []byte(strings.Repeat("a line of text\n", 2000)), 0o600); err != nil {
					t.Fatal(err)
				}
				for _, stream := range []string{"IN-a", "IN-b", "IN-c"} {
					if stream == "IN-c" {
						began := time.Now()
						createInput(t, js, stream, delivery == "exclusive")
						p.await(`"msg":"working on a stream","stream":"IN-c"`)
						if took := time.Since(began); took > 5*time.Second {
							t.Errorf("the new stream was found after %v", took)
						}
					}
					call(t, env, "send", "--stream", stream, "--lines", lines).want(t, 0, "stored 2,000 payloads", "stream "+stream)
				}
				awaitAudit(t, env, "IN-a", "IN-b", "IN-c")
				call(t, env, "results", "--stream", "IN-b", "--last", "3").want(t, 0, `"crc32c"`)
				call(t, env, "send", lines).want(t, exitUsage, "name one stream with --stream")
				call(t, env, "send", "--stream", "OTHER", lines).want(t, exitUsage, "which MILLRACE_STREAM (IN-*) doesn't name")
				call(t, env, "retry", "--stream", "IN-a", "--dry-run").want(t, 0, "would send 0 dead letters again to stream IN-a")
				if err := js.DeleteStream(t.Context(), "IN-b"); err != nil {
					t.Fatal(err)
				}
				p.await(`"msg":"a stream is gone, so its shard ends","stream":"IN-b"`)
				call(t, env, "send", "--stream", "IN-a", "--lines", lines).want(t, 0, "stored 2,000 payloads")
				awaitAudit(t, env, "IN-a", "IN-c")
				if code := p.terminate(); code != 0 {
					t.Errorf("exit status %d", code)
				}
			})
		}
	}
}

// awaitAudit waits until an audit of all streams finds no pending input, and checks that it names each stream.
func awaitAudit(t *testing.T, env []string, streams ...string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		r := call(t, env, "audit")
		if r.code == 0 && !strings.Contains(r.out, "pending") {
			for _, s := range streams {
				r.want(t, 0, fmt.Sprintf("stream %s:", s))
			}
			return
		}
		if time.Now().After(deadline) || r.code != 0 {
			t.Fatalf("exit status %d\n%s%s", r.code, r.out, r.errors)
		}
	}
}
