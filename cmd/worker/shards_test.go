package main

import (
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
			if delivery == "exclusive" && results == "OUT" {
				continue // each stream needs its own result stream
			}
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
				r.want(t, 0, s+", inputs")
			}
			return
		}
		if time.Now().After(deadline) || r.code != 0 {
			t.Fatalf("exit status %d\n%s%s", r.code, r.out, r.errors)
		}
	}
}

// TestAStreamThatIsCreatedAgainIsRead shows that a worker goes on with an input stream that was deleted and created again between two looks.
func TestAStreamThatIsCreatedAgainIsRead(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{"shared", "exclusive"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			js := client(t, s)
			env := []string{
				"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_LOG_FORMAT=json", "MILLRACE_STREAM=IN-*", "MILLRACE_RESULT_STREAM=OUT-{1}",
				"MILLRACE_PROVISION=true", "MILLRACE_DELIVERY=" + delivery, "MILLRACE_PARTITIONS=2",
			}
			createInput(t, js, "IN-a", delivery == "exclusive")
			p := start(t, append(env, "MILLRACE_HTTP_ADDR=127.0.0.1:0"))
			p.await(`"msg":"working"`)
			if err := js.DeleteStream(t.Context(), "IN-a"); err != nil {
				t.Fatal(err)
			}
			createInput(t, js, "IN-a", delivery == "exclusive")
			file := filepath.Join(t.TempDir(), "lines")
			if err := os.WriteFile(file, []byte(strings.Repeat("a line of text\n", 20)), 0o600); err != nil {
				t.Fatal(err)
			}
			call(t, env, "send", "--stream", "IN-a", "--lines", file).want(t, 0, "stored 20 payloads")
			awaitAudit(t, env, "IN-a")
			p.terminate()
		})
	}
}

// TestResultsOfOneStream shows that `worker results --stream` prints only the results of that stream if one stream stores all results.
func TestResultsOfOneStream(t *testing.T) {
	t.Parallel()
	s := serve(t)
	js := client(t, s)
	env := []string{
		"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_LOG_FORMAT=json", "MILLRACE_STREAM=IN-*", "MILLRACE_RESULT_STREAM=OUT", "MILLRACE_PROVISION=true",
	}
	createInput(t, js, "IN-a", false)
	createInput(t, js, "IN-b", false)
	p := start(t, append(env, "MILLRACE_HTTP_ADDR=127.0.0.1:0"))
	p.await(`"msg":"working"`)
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte(strings.Repeat("a line of text\n", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	call(t, env, "send", "--stream", "IN-a", "--lines", file).want(t, 0, "stored 20 payloads")
	awaitAudit(t, env, "IN-a")
	if r := call(t, env, "results", "--stream", "IN-b", "--all"); strings.Contains(r.out, `"IN-a"`) {
		t.Errorf("results of IN-a are printed for IN-b: %.200s", r.out)
	}
	p.terminate()
}

// TestNewSubjectsOfAStream shows that a worker reads the subjects that an input stream gets later, because without MILLRACE_SUBJECTS it reads
// those that the stream has.
func TestNewSubjectsOfAStream(t *testing.T) {
	t.Parallel()
	s := serve(t)
	js := client(t, s)
	env := []string{
		"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_LOG_FORMAT=json", "MILLRACE_STREAM=IN-*", "MILLRACE_RESULT_STREAM=OUT-{1}", "MILLRACE_PROVISION=true",
	}
	createInput(t, js, "IN-a", false)
	p := start(t, append(env, "MILLRACE_HTTP_ADDR=127.0.0.1:0"))
	p.await(`"msg":"working"`)
	in, err := js.Stream(t.Context(), "IN-a")
	if err != nil {
		t.Fatal(err)
	}
	c := in.CachedInfo().Config
	c.Subjects = append(c.Subjects, "extra.>")
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"extra.x", "in-a.x"} {
		if _, err := js.Publish(t.Context(), subject, []byte("text")); err != nil {
			t.Fatal(err)
		}
	}
	awaitAudit(t, env, "IN-a")
	out, err := js.Stream(t.Context(), "OUT-a")
	if err != nil {
		t.Fatal(err)
	}
	if n := out.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("2 inputs, one of them on the new subject, have %d results", n)
	}
	p.terminate()
}
