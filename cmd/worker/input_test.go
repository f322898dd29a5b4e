package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
)

func TestEveryWrongVariableIsNamed(t *testing.T) {
	call(t, []string{
		"MILLRACE_LANES=none", "MILLRACE_BATCH_BYTES=4MB", "MILLRACE_LINGER=soon", "MILLRACE_OPERATORS=crc32c,md5",
		"MILLRACE_DEVICE=tpu", "MILLRACE_RESULT_PREFIX=ingest",
	}).want(t, exitUsage, "MILLRACE_LANES", "MILLRACE_BATCH_BYTES", "MILLRACE_LINGER", "MILLRACE_OPERATORS", "md5",
		"MILLRACE_DEVICE", "MILLRACE_RESULT_PREFIX")
}

func TestBadUsage(t *testing.T) {
	call(t, nil, "fly").want(t, exitUsage, `there is no command "fly"`, "Usage: worker")
	call(t, nil, "run", "--fast").want(t, exitUsage, "-fast")
	call(t, nil, "demo", "12").want(t, exitUsage, "takes flags only")
	call(t, nil, "demo", "--framing", "csv", "--compress", "gzip").want(t, exitUsage, `unknown framing "csv"`, `unknown encoding "gzip"`)
	call(t, nil, "demo", "--framing", "auto").want(t, exitUsage, "--framing: auto is for workers")
	call(t, nil, "demo", "--framing", "arrow", "--record-bytes", "0").want(t, exitUsage, "--record-bytes is 0")
	call(t, nil, "demo", "--framing", "arrow", "--frame-records", "9000").want(t, exitUsage, "--frame-records is 9000, want 1 to 8192")
	call(t, nil, "demo", "--payloads", "-3").want(t, exitUsage, "--payloads is -3")
	call(t, []string{"MILLRACE_NATS_URL=nats://127.0.0.1:1"}, "demo").want(t, exitUsage, "unset it")
	call(t, []string{"MILLRACE_OPERATORS=crc32c,neardup", "MILLRACE_DELIVERY=exclusive", "MILLRACE_PARTITIONS=2"}, "demo").want(t, exitUsage, "MILLRACE_PARTITIONS=1")
	call(t, []string{"MILLRACE_FRAMING=arrow"}, "demo").want(t, exitUsage, "MILLRACE_FRAMING is arrow", "unset it and use --framing")
	call(t, []string{"MILLRACE_FIELD=text"}, "demo").want(t, exitUsage, "MILLRACE_FIELD is text", "unset it and use --field")
	call(t, []string{"MILLRACE_RESULT_FORMAT=annotated"}, "demo").want(t, exitUsage, "needs JSON objects: add --field text")
	call(t, nil, "demo", "--field", "text", "--framing", "arrow").want(t, exitUsage, "--field is for JSON")
	call(t, nil, "demo", "--framing", "json_array").want(t, exitUsage, "needs JSON objects: add --field text")
	call(t, []string{"MILLRACE_DECOMPRESS=zstd"}, "demo").want(t, exitUsage, "MILLRACE_DECOMPRESS is zstd", "unset it and use --compress")
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}} {
		call(t, nil, args...).want(t, exitDone, "run", "demo", "check", "config", "version", "70 device lost")
	}
	call(t, nil, "run", "-h").want(t, exitDone, "-progress", "SIGTERM")
}

// TestUnreachableServer checks that `worker run` waits for its server and logs that. Commands that only read must not wait.
func TestUnreachableServer(t *testing.T) {
	addr := freeAddr()
	p := start(t, []string{"MILLRACE_NATS_URL=nats://user:secret@" + addr})
	p.await("cannot connect to NATS at nats://" + addr)
	p.await("is a server running there")
	if code := p.terminate(); code != exitDone || strings.Contains(p.text(), "secret") {
		t.Errorf("exit status %d after SIGTERM, want 0; or the password is in the log", code)
	}
	r := call(t, []string{"MILLRACE_NATS_URL=nats://user:secret@" + addr}, "check")
	r.want(t, exitFailed, "error", "cannot connect to NATS")
	if strings.Contains(r.out+r.errors, "secret") {
		t.Error("the password is in the output")
	}
}

func TestMissingLibrary(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libmillrace.so")
	r := call(t, []string{"MILLRACE_DEVICE=cuda", "MILLRACE_KERNELS=" + missing})
	if r.want(t, exitUsage, "device unavailable"); strings.Contains(r.errors, "without cgo") {
		return // without cgo, the error reports that the build can't load a library
	}
	r.want(t, exitUsage, missing, "make -C kernels", "MILLRACE_KERNELS")
}

func TestLibraryOfAnotherABI(t *testing.T) {
	if r := call(t, []string{"MILLRACE_DEVICE=cuda"}); strings.Contains(r.errors, "without cgo") {
		t.Skip("SKIPPED: THE WORKER IS BUILT WITHOUT CGO AND OPENS NO LIBRARY")
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "other.c"), filepath.Join(dir, "libmillrace.so")
	code := "unsigned millrace_abi_version(void) { return 4711; }\nconst void *millrace_api_get(unsigned v) { (void)v; return 0; }\n"
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	call(t, []string{"MILLRACE_DEVICE=cuda", "MILLRACE_KERNELS=" + library}).
		want(t, exitUsage, "ABI", "4711", library)
}

func TestMissingStreamWithoutProvisioning(t *testing.T) {
	s := serve(t)
	call(t, []string{"MILLRACE_NATS_URL=" + s.URL()}).want(t, exitFailed,
		"stream INGEST: not there", "stream RESULTS: not there", "MILLRACE_PROVISION=true")
	call(t, []string{"MILLRACE_NATS_URL=" + s.URL()}, "check").want(t, exitFailed,
		"error    stream INGEST", "MILLRACE_PROVISION=true")
	call(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true"}, "check").want(t, exitDone,
		"warning  stream INGEST", "the worker creates it when it starts")
}

func TestPortInUse(t *testing.T) {
	s := serve(t)
	addr := strings.TrimPrefix(s.URL(), "nats://")
	call(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_HTTP_ADDR=" + addr}).
		want(t, exitFailed, addr, "in use", "MILLRACE_HTTP_ADDR")
}

func TestConfigPrintsWrongVariablesToo(t *testing.T) {
	call(t, []string{"MILLRACE_LANES=7"}, "config").want(t, exitDone, "MILLRACE_LANES", "7", "MILLRACE_BATCH_BYTES", "4MiB")
	call(t, []string{"MILLRACE_LANES=0"}, "config").want(t, exitUsage, "MILLRACE_LANES", "MILLRACE_BATCH_BYTES")
}

func TestVersion(t *testing.T) {
	call(t, nil, "version").want(t, exitDone, "millrace", "commit", "go1.", "kernel library")
}

// serve starts an embedded server for the test.
func serve(t *testing.T) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func client(t *testing.T, s *embedded.Server) jetstream.JetStream {
	t.Helper()
	return clientOf(t, s.URL())
}

func clientOf(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func streamMessages(t *testing.T, js jetstream.JetStream, name string) uint64 {
	t.Helper()
	s, err := js.Stream(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}
