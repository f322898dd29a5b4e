package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// oneBatch is the maximum size of a batch of clientWorker, in bytes. A larger payload becomes a dead letter.
const oneBatch = 4 << 10

// clientWorker starts a worker with the given delivery mode for the programs of docs/protocol.md, and returns the
// server's address.
func clientWorker(t *testing.T, delivery string, env ...string) (url string) {
	t.Helper()
	s := serve(t)
	start(t, append([]string{
		"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c", fmt.Sprint("MILLRACE_BATCH_BYTES=", oneBatch),
		"MILLRACE_DELIVERY=" + delivery,
	}, env...), "run").await("working")
	return s.URL()
}

// wantOutcomes checks a program's output for the payloads "first" and "second" and for a payload that is too large.
func wantOutcomes(t *testing.T, out []byte) {
	t.Helper()
	want := `input 1 of INGEST: result {"bytes":5,"crc32c":"8a3ea150"}
input 2 of INGEST: result {"bytes":6,"crc32c":"7afd9428"}
input 3 of INGEST: dead letter, too_large: `
	if rest, ok := strings.CutPrefix(string(out), want); !ok || strings.Count(rest, "\n") != 1 {
		t.Errorf("the program printed %q, want %q and an error", out, want)
	}
}

// TestTheGoClient runs the program in Go. The program must report no errors, even with commit markers in the streams.
func TestTheGoClient(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{"shared", "exclusive"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			var complaints strings.Builder
			cmd := exec.CommandContext(t.Context(), "go", "run", "millrace/docs/examples/client", clientWorker(t, delivery), "first", "second", strings.Repeat("x", oneBatch+1))
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil || strings.Contains(complaints.String(), "client:") {
				t.Fatalf("%v: %.1000s", err, complaints.String())
			}
			wantOutcomes(t, out)
		})
	}
}

// TestAnotherModuleCanImportTheClient builds a module with the program and the two lines of docs/protocol.md. The build
// downloads nothing, because this repository uses the same modules.
func TestAnotherModuleCanImportTheClient(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```go.mod\n(.*?)```\n.*?```\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no lines for go.mod, or no commands behind them")
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	module := filepath.Join(folder, "mine")
	if err := errors.Join(os.Symlink(repository, filepath.Join(folder, "millrace")), os.CopyFS(module, os.DirFS(filepath.Join(examples, "client"))),
		os.WriteFile(filepath.Join(module, "go.mod"), slices.Concat([]byte("module example.com/mine\n\ngo 1.26.0\n\n"), block[1]), 0o600)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(block[2])) {
		args := strings.Fields(strings.TrimPrefix(line, "$ "))
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env = module, append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(module, "mine")); err != nil {
		t.Error(err)
	}
}

// javascript is the folder of the JavaScript program and its packages.
const javascript = examples + "/javascript"

// needNode returns the path of Node.js. If Node.js or a package is missing, the test skips, or fails with
// MILLRACE_REQUIRE_NODE=1.
func needNode(t *testing.T) string {
	t.Helper()
	programs(t)
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(javascript, "node_modules"))
	}
	if err == nil {
		return node
	}
	const missing = "NO NODE.JS, OR NOT THE PACKAGES OF THE JAVASCRIPT CLIENT, SO IT IS NOT TESTED: install Node.js and npm (Debian: apt-get install nodejs npm), " +
		"and run: npm ci --ignore-scripts --prefix docs/examples/javascript"
	if os.Getenv("MILLRACE_REQUIRE_NODE") == "1" {
		t.Fatalf("%s (%v)", missing, err)
	}
	t.Skipf("SKIPPED: %s (%v)", missing, err)
	return ""
}

func TestTheJavaScriptClient(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	for _, delivery := range []string{"shared", "exclusive"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), node, javascript+"/client.js", clientWorker(t, delivery), "first", "second", strings.Repeat("x", oneBatch+1))
			var complaints strings.Builder
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil || complaints.Len() > 0 {
				t.Fatalf("%v: %.1000s", err, complaints.String())
			}
			wantOutcomes(t, out)
		})
	}
}

// filteringWorker starts a worker whose results are the documents with a long text, and returns the server's address.
func filteringWorker(t *testing.T) (url string) {
	t.Helper()
	return clientWorker(t, "shared", "MILLRACE_FIELD=text", "MILLRACE_RESULT_FORMAT=annotated", "MILLRACE_FILTER=record.bytes > 5")
}

// longAndShort holds two documents. filteringWorker keeps only the first document.
var longAndShort = []string{`{"text":"123456789"}`, `{"text":"short"}`}

// wantDocuments checks a program's output for longAndShort.
func wantDocuments(t *testing.T, out []byte) {
	t.Helper()
	const want = `input 1 of INGEST: documents with {"record":0,"bytes":9,"crc32c":"e3069283"}
input 2 of INGEST: nothing is left; filtered records: 1
`
	if string(out) != want {
		t.Errorf("the program printed %q, want %q", out, want)
	}
}

func TestTheJavaScriptClientReadsDocuments(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	out, err := exec.CommandContext(t.Context(), node, append([]string{javascript + "/client.js", filteringWorker(t)}, longAndShort...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantDocuments(t, out)
}

// TestClientsNameResultsWithoutText publishes results in Arrow, which the programs can't print.
func TestClientsNameResultsWithoutText(t *testing.T) {
	t.Parallel()
	want := regexp.MustCompile(`^input 1 of INGEST: result of \d+ bytes, application/vnd\.apache\.arrow\.stream\n$`)
	check := func(t *testing.T, out []byte) {
		t.Helper()
		if !want.Match(out) {
			t.Errorf("the program printed %q, want %v", out, want)
		}
	}
	run := func(t *testing.T, program ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program[0], append(program[1:], clientWorker(t, "shared", "MILLRACE_RESULT_FORMAT=arrow"), "first")...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		check(t, out)
	}
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		run(t, "go", "run", "millrace/docs/examples/client")
	})
	t.Run("JavaScript", func(t *testing.T) {
		t.Parallel()
		run(t, needNode(t), javascript+"/client.js")
	})
	t.Run("Python", func(t *testing.T) {
		t.Parallel()
		needNATSForPython(t)
		check(t, python(t, nil, "client.py", "--url", clientWorker(t, "shared", "MILLRACE_RESULT_FORMAT=arrow"), "first"))
	})
}

// TestPackagesOfTheJavaScriptClient checks that the lock file pins the content of each package and names no registry. The project must
// accept the licence of each package.
func TestPackagesOfTheJavaScriptClient(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(javascript + "/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Version, Resolved, Integrity, License string }
	}
	if err := json.Unmarshal(text, &lock); err != nil || len(lock.Packages) < 3 {
		t.Fatalf("%v: %d packages", err, len(lock.Packages))
	}
	for name, p := range lock.Packages {
		if !slices.Contains([]string{"Apache-2.0", "Unlicense"}, p.License) || p.Resolved != "" {
			t.Errorf("%q has the licence %q and comes from %q", name, p.License, p.Resolved)
		}
		if name != "" && (p.Version == "" || p.Integrity == "") {
			t.Errorf("%q isn't pinned", name)
		}
	}
}

// needNATSForPython skips the test if Python or its NATS client is missing.
func needNATSForPython(t *testing.T) {
	t.Helper()
	programs(t)
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import nats").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: NO PYTHON3 WITH NATS-PY, SO docs/examples/client.py IS ONLY COMPILED: pip install nats-py: %s", out)
	}
}

func TestThePythonClientReadsDocuments(t *testing.T) {
	t.Parallel()
	needNATSForPython(t)
	wantDocuments(t, python(t, nil, append([]string{"client.py", "--url", filteringWorker(t)}, longAndShort...)...))
}

func TestThePythonClient(t *testing.T) {
	t.Parallel()
	needNATSForPython(t)
	for _, delivery := range []string{"shared", "exclusive"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			wantOutcomes(t, python(t, nil, "client.py", "--url", clientWorker(t, delivery), "first", "second", strings.Repeat("x", oneBatch+1)))
		})
	}
}

// consumers matches code in documents that creates a consumer.
var consumers = regexp.MustCompile(`(?s)ConsumerConfig\{.*?\}\)|subscribe\([^)]*\)|consumers\.add\([^)]*\)|nats consumer (?:add|create) [^\n]*`)

// filtered matches a consumer configuration with a filter.
var filtered = regexp.MustCompile(`FilterSubject|filter_subject: |subscribe\((?:filter|subject),|--filter `)

// TestEveryConsumerInADocumentHasAFilter: without a filter, a consumer receives the commit markers of exclusive delivery.
func TestEveryConsumerInADocumentHasAFilter(t *testing.T) {
	t.Parallel()
	found := map[string]int{}
	for _, folder := range []string{"../../README.md", "../../docs", "../../helm"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "node_modules" {
				return fs.SkipDir
			}
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".md", ".go", ".py", ".js", ".txt", ".yaml", ".tpl"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			for _, consumer := range consumers.FindAllString(string(text), -1) {
				found[filepath.Base(path)]++
				if !filtered.MatchString(consumer) {
					t.Errorf("%s: a consumer without a filter: %s", path, consumer)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]int{"client.js": 1, "client.py": 1, "main.go": 2, "consume.py": 1, "streams.md": 1} {
		if found[file] != want {
			t.Errorf("files called %s have %d consumers, want %d", file, found[file], want)
		}
	}
}

// TestCodeOnThePageOfTheProtocol checks that docs/protocol.md shows the JavaScript program's code, which another test runs.
func TestCodeOnThePageOfTheProtocol(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(javascript + "/client.js")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```javascript\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Error("the page has no code in JavaScript")
	}
	for _, block := range blocks {
		if !bytes.Contains(program, block[1]) {
			t.Errorf("the program doesn't have this code of the page:\n%s", block[1])
		}
	}
}
