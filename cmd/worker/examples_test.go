package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
	"millrace/internal/record"
	"millrace/internal/table"
)

// examples is the folder of the programs of docs/frames.md and docs/protocol.md.
const examples = "../../docs/examples"

// framingWorker starts a worker that accepts any framing, and returns the server's address.
func framingWorker(t *testing.T, format string) (url string) {
	t.Helper()
	s := serve(t)
	start(t, []string{
		"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c", "MILLRACE_FRAMING=auto", "MILLRACE_RESULT_FORMAT=" + format,
	}, "run").await("working")
	return s.URL()
}

func TestTheGoExampleOfFrames(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "run", "millrace/docs/examples/frames", framingWorker(t, "json")).CombinedOutput()
	want := "3 records are stored in message 1 of INGEST\n"
	for i, r := range []string{"first", "second", "third"} {
		want += fmt.Sprintf("record %d: %d bytes, crc32c %q\n", i, len(r), fmt.Sprintf("%08x", crc32.Checksum([]byte(r), crc32.MakeTable(crc32.Castagnoli))))
	}
	if err != nil || string(out) != want {
		t.Errorf("the program printed %q (%v), want %q", out, err, want)
	}
}

// python runs an example with the given standard input. The test skips without Python.
func python(t *testing.T, stdin []byte, args ...string) (stdout []byte) {
	t.Helper()
	programs(t)
	program, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: no python3, so the Python examples of docs/frames.md are not tested")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Stdin = examples, bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if stdout, err = cmd.Output(); err != nil {
		t.Fatalf("python3 %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout
}

func TestPythonExamplesCompile(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(examples, "*.py"))
	if err != nil || len(files) != 5 {
		t.Fatalf("the examples are %q (%v), want 5", files, err)
	}
	for i, f := range files {
		files[i] = filepath.Base(f)
	}
	python(t, nil, append([]string{"-c", "import sys\nfor f in sys.argv[1:]: compile(open(f).read(), f, 'exec')"}, files...)...)
}

func TestPythonFramesAreSplitIntoTheirRecords(t *testing.T) {
	t.Parallel()
	records := []string{"first", "", strings.Repeat("long ", 100), "last"}
	for _, framing := range []frame.Framing{frame.NewlineDelimited, frame.LengthDelimited, frame.VarintLengthDelimited} {
		body := python(t, []byte(strings.Join(records, "\n")+"\n"), "frames.py", framing.String())
		var f frame.Frame
		if err := (&frame.Splitter{Framing: framing}).Open(&f, "", body); err != nil {
			t.Errorf("%v: %v", framing, err)
			continue
		}
		var got []string
		for i := range f.Records() {
			got = append(got, string(f.Record(i)))
		}
		if !slices.Equal(got, records) {
			t.Errorf("%v: the records are %q, want %q", framing, got, records)
		}
	}
}

// resultBodies maps bodies of results to the output of results.py and results.js. It includes the examples of docs/results.md.
func resultBodies(t *testing.T) map[string][]byte {
	t.Helper()
	ops, err := operator.ParseList("crc32c,minhash?k=4&hashes=2&seed=42")
	if err != nil {
		t.Fatal(err)
	}
	payload := []byte("123456789")
	var records [][]byte
	for _, op := range ops {
		records = append(records, op.AppendReference(nil, payload))
	}
	frame := table.Reference(ops, [][]byte{payload, {}, nil}, []record.Status{record.OK, record.OK, record.TooLarge})
	return map[string][]byte{
		`[[0],[0],{"crc32c":[[3808858755]],"minhash?k=4&hashes=2&seed=42":[[529274414,833389941]]}]`:                             operator.Binary.Append(nil, ops, len(payload), records),
		`[[0,1,2],[0,0,2],{"crc32c":[[3808858755],[0],[0]],"minhash?k=4&hashes=2&seed=42":[[529274414,833389941],[0,0],[0,0]]}]`: frame.Append(nil, operator.Binary, 0, 3),
		"[[],[],{}]": nil,
		`[[0,2],[0,2],{"crc32c":[[3808858755],[0]],"minhash?k=4&hashes=2&seed=42":[[529274414,833389941],[0,0]]}]`: frame.Select([]uint32{0, 2}).Append(nil, operator.Binary, 0, 2),
		`[[0,{"bytes":9,"crc32c":"e3069283"}],[1,{"bytes":0,"crc32c":"00000000"}]]`:                                []byte(`{"bytes":9,"crc32c":"e3069283"}` + "\n" + `{"bytes":0,"crc32c":"00000000"}` + "\n"),
		`[[7,{"record":7,"bytes":9,"crc32c":"e3069283"}]]`:                                                         []byte(`{"record":7,"bytes":9,"crc32c":"e3069283"}`),
	}
}

// verdictBodies maps bodies of results of neardup to the output of results.py and results.js.
func verdictBodies(t *testing.T) map[string][]byte {
	t.Helper()
	ops, err := operator.ParseList("neardup,crc32c")
	if err != nil {
		t.Fatal(err)
	}
	const spec = `"neardup?bands=20&rows=13&k=24&seed=42"`
	verdict := func(v neardup.Verdict) []byte { return v.AppendValue(nil) }
	near := verdict(neardup.Verdict{DuplicateOf: neardup.Position{Sequence: 17, Record: 3}, Bands: 12})
	joins := verdict(neardup.Verdict{DuplicateOf: neardup.Position{Sequence: 1<<40 + 17, Record: 1 << 33}, Bands: 5,
		Also: []neardup.Position{{Sequence: 1<<40 + 18}, {Sequence: 1<<40 + 18, Record: 7}}})
	const (
		nearJSON  = `{"duplicate_of":{"sequence":17,"record":3},"bands":12,"also":[]}`
		joinsJSON = `{"duplicate_of":{"sequence":1099511627793,"record":8589934592},"bands":5,"also":[{"sequence":1099511627794,"record":0},{"sequence":1099511627794,"record":7}]}`
	)
	frame := new(table.Table)
	frame.Reset(ops, 4)
	frame.SetStatus(1, record.DeviceFault)
	frame.PutValue(0, 2, joins)
	frame.PutValue(0, 3, near)
	single := func(value []byte) []byte {
		one := new(table.Table)
		one.Reset(ops, 1)
		one.PutValue(0, 0, value)
		return one.AppendSingle(nil, operator.Binary)
	}
	crcs := func(n int) string { return `"crc32c":[` + strings.Repeat("[0],", n-1) + "[0]]" }
	return map[string][]byte{
		`[[0,1,2,3],[0,4,0,0],{` + spec + `:[{"duplicate_of":null},null,` + joinsJSON + `,` + nearJSON + `],` + crcs(4) + `}]`: frame.Append(nil, operator.Binary, 0, 4),
		`[[2],[0],{` + spec + `:[` + joinsJSON + `],` + crcs(1) + `}]`:                                                         frame.Append(nil, operator.Binary, 2, 3),
		`[[1,3],[4,0],{` + spec + `:[null,` + nearJSON + `],` + crcs(2) + `}]`:                                                 frame.Select([]uint32{1, 3}).Append(nil, operator.Binary, 0, 2),
		`[[0],[0],{` + spec + `:[` + joinsJSON + `],` + crcs(1) + `}]`:                                                         single(joins),
		`[[0],[0],{` + spec + `:[{"duplicate_of":null}],` + crcs(1) + `}]`:                                                     single(verdict(neardup.Verdict{})),
		`[[0,{"bytes":9,"neardup":` + nearJSON + `}]]`:                                                                         []byte(`{"bytes":9,"neardup":` + nearJSON + `}` + "\n"),
	}
}

// wantPrinted checks what a program prints for each body.
func wantPrinted(t *testing.T, run func(body []byte) []byte) {
	t.Helper()
	for _, bodies := range []map[string][]byte{resultBodies(t), verdictBodies(t)} {
		for want, body := range bodies {
			if got := strings.TrimSpace(string(run(body))); got != want {
				t.Errorf("the program printed %s, want %s", got, want)
			}
		}
	}
}

// TestPythonReadsResults checks that results.py decodes results and annotated documents.
func TestPythonReadsResults(t *testing.T) {
	t.Parallel()
	wantPrinted(t, func(body []byte) []byte { return python(t, body, "results.py") })
	document := []byte(`{"id":1,"millrace":{"record":7,"bytes":9,"crc32c":"e3069283"}}` + "\n")
	want := `[[{"id":1},{"record":7,"bytes":9,"crc32c":"e3069283"}]]`
	if got := strings.TrimSpace(string(python(t, document, "results.py", "millrace"))); got != want {
		t.Errorf("for a document, the program printed %s, want %s", got, want)
	}
}

func TestJavaScriptReadsResults(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	wantPrinted(t, func(body []byte) []byte {
		cmd := exec.CommandContext(t.Context(), node, javascript+"/results.js")
		cmd.Stdin = bytes.NewReader(body)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return out
	})
}

// TestPythonContentTypesSelectTheirFramings checks that a worker recognizes the content types of frames.py.
func TestPythonContentTypesSelectTheirFramings(t *testing.T) {
	t.Parallel()
	out := python(t, nil, "-c", "import frames\nfor framing, name in frames.CONTENT_TYPES.items(): print(framing, name)")
	rows := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(rows) != 4 {
		t.Errorf("%d content types, want the types of 4 framings: %q", len(rows), out)
	}
	for _, row := range rows {
		if framing, name, _ := strings.Cut(row, " "); frame.FramingOf(name).String() != framing {
			t.Errorf("%s selects %v, want %s", name, frame.FramingOf(name), framing)
		}
	}
}

func TestPythonExamplesWithAWorker(t *testing.T) {
	t.Parallel()
	programs(t)
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import nats, pyarrow").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no python3 with nats-py and pyarrow, so docs/examples/produce.py and consume.py are only compiled: %s", out)
	}
	url := framingWorker(t, "arrow")
	lines := []byte(strings.Repeat("a line\n", 1000))
	for _, framing := range [][]string{nil, {"--arrow"}} {
		if out := python(t, lines, append([]string{"produce.py", "--url", url, "ingest.web"}, framing...)...); string(out) != "1000 records in 1 messages\n" {
			t.Errorf("produce.py %q printed %q", framing, out)
		}
	}
	for _, tool := range []string{"pyarrow", "polars", "duckdb"} {
		if exec.CommandContext(t.Context(), "python3", "-c", "import "+tool).Run() != nil {
			t.Logf("SKIPPED: no %s for consume.py", tool)
			continue
		}
		out := python(t, nil, "consume.py", "--url", url, "--with", tool, "--records", "2000", "results.web")
		if want := "ok: 2000 records of 12000 bytes\n"; string(out) != want {
			t.Errorf("with %s, consume.py printed %q, want %q", tool, out, want)
		}
	}
}
