package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/cliclient"
	"millrace/internal/config"
	"millrace/internal/ingest/natstest"
)

// printed decodes the output of `worker results`.
func printed(t *testing.T, out string) (all []cliclient.Line) {
	t.Helper()
	for text := range strings.Lines(out) {
		var l cliclient.Line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		all = append(all, l)
	}
	return all
}

// TestTheCommandsThatAWorkerPrints runs the commands from a worker's log in a shell. The worker has an embedded server.
func TestTheCommandsThatAWorkerPrints(t *testing.T) {
	server := asWorker + "=" + freeAddr()
	p := start(t, []string{server, "MILLRACE_LOG_FORMAT=json", "MILLRACE_OPERATORS=crc32c", "MILLRACE_SUBJECTS=a.*.>,b"})
	p.await(`"msg":"print the results"`)
	commands := map[string]string{}
	for line := range strings.Lines(p.text()) {
		var l struct{ Msg, Command string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		commands[l.Msg] = l.Command
	}
	send := exec.Command("sh", "-c", commands["send a payload from another terminal"])
	send.Env, send.Dir = environment(server), t.TempDir()
	out, err := send.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "stored 1 payload, 10 B") || !strings.Contains(string(out), "subject a.send.send, stream INGEST, sequence 1") {
		t.Errorf("%s: %v\n%s", send, err, out)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	results := exec.CommandContext(ctx, "sh", "-c", "exec "+strings.Replace(commands["print the results"], "MILLRACE_", "env MILLRACE_", 1))
	results.Env, results.Dir = environment(server), t.TempDir()
	results.Cancel = func() error { return results.Process.Signal(os.Interrupt) }
	r, err := results.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := results.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := r.Read(line)
	if want := `{"stream":"INGEST","sequence":1,"subject":"a.send.send","result":{"bytes":10,"crc32c":"0e48cab8"}}` + "\n"; string(line[:n]) != want {
		t.Errorf("the command prints %q (%v), want %q", line[:n], err, want)
	}
	interrupt()
	if err := results.Wait(); results.ProcessState.ExitCode() != exitDone {
		t.Errorf("an interrupt ends %s with %v", results, err)
	}
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
}

func TestCommandsAreQuoted(t *testing.T) {
	t.Setenv("MILLRACE_STREAM", "IN")
	t.Setenv("MILLRACE_SUBJECTS", "it's.>")
	cfg, _ := config.Load(nil)
	send, results := exchangeCommands(cfg, "nats://127.0.0.1:4222", "/a b/worker")
	if want := `echo 'some text' | MILLRACE_STREAM=IN MILLRACE_SUBJECTS='it'\''s.>' '/a b/worker' send`; send != want {
		t.Errorf("got %s, want %s", send, want)
	}
	if want := `MILLRACE_SUBJECTS='it'\''s.>' '/a b/worker' results --follow`; results != want {
		t.Errorf("got %s, want %s", results, want)
	}
}

// TestCommandsAfterGoRun checks that advice names `go run ./cmd/worker` instead of a path in Go's build cache. Earlier Go versions use a
// temporary folder.
func TestCommandsAfterGoRun(t *testing.T) {
	for path, want := range map[string]string{
		"./worker": "./worker", "/opt/go-builder's/worker": `'/opt/go-builder'\''s/worker'`,
		"/root/.cache/go-build/6c/6c9513-d/worker": "go run ./cmd/worker", "/tmp/go-build123456/b001/exe/worker": "go run ./cmd/worker",
	} {
		if got := calledAs(path); got != want {
			t.Errorf("%s is called as %s, want %s", path, got, want)
		}
	}
}

func TestNoWorkerToExchangeWith(t *testing.T) {
	if got, want := noServer(false), "no NATS server listens on 127.0.0.1:4222: name a server in MILLRACE_NATS_URL"; got != want {
		t.Errorf("without an embedded server: %s, want %s", got, want)
	}
	for _, command := range []string{"send", "results"} {
		addr := freeAddr()
		call(t, []string{asWorker + "=" + addr}, command).want(t, exitFailed, "no NATS server listens on "+addr+": start a worker in another terminal")
		call(t, []string{"MILLRACE_NATS_URL=nats://user:secret@" + addr}, command).want(t, exitFailed, "cannot connect to NATS at nats://"+addr, "is a server running there")
	}
}

// TestPayloadsComeBack sends payloads with `worker send` and reads the results with `worker results`, in every format.
func TestPayloadsComeBack(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	frame, poor := filepath.Join(folder, "frame"), filepath.Join(folder, "poor")
	if err := os.WriteFile(frame, []byte("first\n\nthird record\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(poor, []byte("not compressed"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"json", "binary", "arrow"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			env := []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c,minhash?hashes=2&k=3", "MILLRACE_FRAMING=auto",
				"MILLRACE_RESULT_FORMAT=" + format, "MILLRACE_RESULT_ENCODING=zstd", "MILLRACE_DECOMPRESS=auto"}
			start(t, env).await("working")
			js := client(t, s)
			call(t, env, "send", "--header", "Content-Type: application/x-ndjson", "--subject", "ingest.frame", frame).
				want(t, exitDone, "stored 1 payload, 20 B", "subject ingest.frame, stream INGEST, sequence 1")
			call(t, env, "send", "--lines", frame, poor).want(t, exitDone, "stored 4 payloads, 31 B", "sequences 2 to 5")
			call(t, env, "send", "--header=Content-Encoding: zstd", poor).want(t, exitDone, "sequence 6")
			call(t, env, "send", "--framing=length_delimited", "--records=2", "--compress=zstd", "--rate=1000", frame).want(t, exitDone, "stored 2 payloads with 3 records", "sequences 7 to 8")
			awaitResults(t, js, 7)
			natstest.Until(t, "a dead letter is stored", func() bool { return streamMessages(t, js, "RESULTS_DEADLETTER") == 1 })

			r := call(t, env, "results")
			r.want(t, exitDone)
			got := map[string]string{}
			for _, l := range printed(t, r.out) {
				key := fmt.Sprint(l.Sequence)
				if l.Record != nil {
					key += fmt.Sprint("#", *l.Record)
				}
				got[key] = string(l.Result)
				if l.DeadLetter != nil {
					got[key] = l.DeadLetter.Reason
				}
			}
			for key, want := range map[string]string{
				"1#0": `"crc32c":"8a3ea150"`, "1#1": `"crc32c":"00000000","minhash":{"k":3,"seed":42,"signature":[0,0]}`, "1#2": `"minhash":{"k":3`,
				"2": `{"bytes":5,"crc32c":"8a3ea150","minhash":{"k":3,"seed":42,"signature":[`, "3": `{"bytes":0,"crc32c":"00000000"`, "4": `{"bytes":12,`,
				"5": `{"bytes":14,`, "6": "invalid_encoding", "7#0": `"crc32c":"8a3ea150"`, "7#1": `"crc32c":"00000000"`, "8#0": `"minhash":{"k":3`,
			} {
				if !strings.Contains(got[key], want) {
					t.Errorf("the result of %s is %s, want %s", key, got[key], want)
				}
			}
			if len(got) != 11 {
				t.Errorf("%d lines, want 11:\n%s", len(got), r.out)
			}
		})
	}
}

func TestBadUsageOfSendAndResults(t *testing.T) {
	t.Parallel()
	s := serve(t)
	env := []string{"MILLRACE_NATS_URL=" + s.URL()}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"send --subject other.web", exitUsage, `--subject is "other.web", which the worker doesn't read: it reads ingest.> (MILLRACE_SUBJECTS)`},
		{"send --subject ingest.>", exitUsage, "give a subject without wildcards"},
		{"send --header Kind", exitUsage, `--header is "Kind": give 'Name: value'`},
		{"send --header Nats-Msg-Id:1", exitUsage, "the server acts on headers that begin with Nats-"},
		{"send --header A: --header :b", exitUsage, `--header is ":b"`},
		{"send", exitFailed, "no stream stores ingest.send: start a worker with MILLRACE_PROVISION=true"},
		{"send /nowhere/file", exitFailed, "not stored: /nowhere/file: open /nowhere/file: no such file or directory"},
		{"results", exitFailed, "stream RESULTS: nats: API error: code=404 err_code=10059 description=stream not found: start a worker with MILLRACE_PROVISION=true"},
		{"send --subject ingest..web", exitUsage, `--subject is "ingest..web": a subject has an empty token: give tokens with dots between them`},
		{"results --subject nosuch.>", exitUsage, `--subject is "nosuch.>", which no input of the worker has: it reads ingest.> (MILLRACE_SUBJECTS): give the subject of inputs, or set MILLRACE_SUBJECTS`},
		{"results --subject results.web", exitUsage, "give the subject of inputs, not that of their results or dead letters"},
		{"results --subject ingest.>.web", exitUsage, `--subject is "ingest.>.web": the wildcard > may be only the last token of a subject: give tokens`},
		{"results --subject *.web", exitFailed, "stream RESULTS: nats: API error: code=404"},
		{"send --records 5", exitUsage, "--records is the number of records of a frame: give --framing too"},
		{"send --framing auto", exitUsage, "--framing: auto is for workers"},
		{"send --framing lines", exitUsage, `--framing: unknown framing "lines"`},
		{"send --framing arrow --records 0", exitUsage, "--records is 0: give 1 to"},
		{"send --compress gzip", exitUsage, `--compress: unknown encoding "gzip"`},
		{"send --rate -1", exitUsage, "--rate is -1: give a number of messages a second"},
		{"send - -", exitUsage, "standard input (-) is named twice"},
		{"send --lines=x", exitUsage, `send: --lines is "x": give true or false: see worker send -h`},
		{"results --last x", exitUsage, `results: --last is "x": give a whole number: see worker results -h`},
		{"results --last 99999999999999999999", exitUsage, `--last is "99999999999999999999": the number is out of range`},
		{"audit --from -1", exitUsage, `audit: --from is "-1": give a whole number from 0 on`},
		{"bench --seconds x", exitUsage, `bench: --seconds is "x": give a number`},
		{"results --last 0", exitUsage, "--last is 0: give 1 or more, or --all"},
		{"results --all --last 3", exitUsage, "--all and --last exclude each other"},
		{"results now", exitUsage, "takes flags only"},
		{"results --payload-bytes 3", exitUsage, "--payload-bytes is the most bytes of a payload: give --payload too"},
		{"results --payload --payload-bytes -1", exitUsage, "--payload-bytes is -1: give 1 or more, or 0 for whole payloads"},
		{"audit", exitFailed, "audit: stream INGEST: nats: API error: code=404 err_code=10059 description=stream not found"},
		{"audit --from 5 --to 3", exitUsage, "--from is 5, and --to is 3: give a range"},
		{"audit --since yesterday", exitUsage, `--since is "yesterday": give a time such as`},
		{"audit --since 1h --until 2h", exitUsage, "--since is 1h, and --until is 2h: give a range"},
	} {
		r := call(t, env, strings.Fields(c.args)...)
		if r.want(t, c.code, c.want); r.out != "" {
			t.Errorf("worker %s also prints %q", c.args, r.out)
		}
	}
	for command, flag := range map[string]string{"send": "subject", "results": "subject", "audit": "since"} {
		call(t, env, command, "--"+flag, "").want(t, exitUsage, command+": --"+flag+" is empty: give a ")
	}
	call(t, append(env, "MILLRACE_LANES=0"), "send").want(t, exitUsage, "MILLRACE_LANES")
	call(t, append(env, "MILLRACE_OPERATORS=mine"), "send").want(t, exitFailed, "no stream stores ingest.send") // a user's operator
}

func TestSequencesOfWhatWasSent(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]cliclient.Report{
		"":                                    {},
		", sequence 7":                        {Stored: 1, First: 7, Last: 7},
		", sequences 7 to 9":                  {Stored: 3, First: 7, Last: 9},
		", 1,500 of the sequences 7 to 30000": {Stored: 1500, First: 7, Last: 30000}, // other clients sent inputs, too
	} {
		if got := sequences(&r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSendReadsStandardInput(t *testing.T) {
	t.Parallel()
	programs(t)
	s := serve(t)
	js := client(t, s)
	provision(t, js, false)
	send := exec.Command(binary, "send", "--lines", "-")
	send.Env, send.Dir, send.Stdin = environment("MILLRACE_NATS_URL="+s.URL()), t.TempDir(), bytes.NewReader(bytes.Repeat([]byte("a line\n"), 3000))
	out, err := send.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "stored 3,000 payloads, 17.6 KiB") || !strings.Contains(string(out), "sequences 1 to 3000") {
		t.Errorf("%v\n%s", err, out)
	}
	if n := streamMessages(t, js, "INGEST"); n != 3000 {
		t.Errorf("%d messages are stored", n)
	}
}

// TestSendAndResultsNeedOnlyTheDocumentedPermissions runs both commands as the users of docs/security.md.
func TestSendAndResultsNeedOnlyTheDocumentedPermissions(t *testing.T) {
	t.Parallel()
	s, as := documentedServer(t)
	_, js := as("admin")
	provision(t, js, false)
	url := func(user string) string {
		return "MILLRACE_NATS_URL=nats://" + user + ":" + user + "-password@" + s.Addr().String()
	}
	start(t, []string{url("worker"), "MILLRACE_OPERATORS=crc32c", "MILLRACE_BATCH_BYTES=4KiB"}, "run").await("working")
	folder := t.TempDir()
	small, large := filepath.Join(folder, "small"), filepath.Join(folder, "large")
	for path, data := range map[string][]byte{small: []byte("123456789"), large: make([]byte, 5000)} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	call(t, []string{url("publisher")}, "send", small, large).want(t, exitDone, "stored 2 payloads")
	awaitResults(t, js, 1)
	natstest.Until(t, "a dead letter is stored", func() bool { return streamMessages(t, js, "DEAD") == 1 })
	call(t, []string{url("reader")}, "results").want(t, exitDone, `"result":{"bytes":9,"crc32c":"e3069283"}`, `"dead_letter":{"reason":"too_large"`)
	for flags, want := range map[string]int{"--payload": defaultPayloadBytes, "--payload --payload-bytes=0": 5000, "--payload --payload-bytes=7": 7} {
		printed := call(t, []string{url("reader")}, append([]string{"results"}, strings.Fields(flags)...)...)
		if printed.want(t, exitDone, `"payload":"\u0000`); strings.Count(printed.out, `\u0000`) != want {
			t.Errorf("results %s prints %d bytes, want %d", flags, strings.Count(printed.out, `\u0000`), want)
		}
	}
	call(t, []string{url("reader")}, "send", small).want(t, exitFailed, "not stored: "+small)
	call(t, []string{url("publisher")}, "results").want(t, exitFailed, "ermission")
}
