package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// fakeYardstick, set in the environment, makes this test binary a yardstick that behaves as its value says.
const fakeYardstick = "MILLRACE_TEST_YARDSTICK"

func TestMain(m *testing.M) {
	if how := os.Getenv(fakeYardstick); how != "" {
		os.Exit(playYardstick(how))
	}
	os.Exit(m.Run())
}

// playYardstick answers requests: every one with all the figures that any request is asked for.
func playYardstick(how string) int {
	requests := bufio.NewScanner(os.Stdin)
	for requests.Scan() {
		name, rest, _ := strings.Cut(requests.Text(), " ")
		known := []string{"copy", "serial", "balanced", "balanced-three", "alloc", "completion", "launch"}
		switch {
		case !slices.Contains(known, name) || !strings.HasSuffix(rest, " device=0") || strings.Contains(rest, "batches=0"):
			fmt.Printf("{\"error\": \"cannot do %s %s\"}\n", name, rest)
		case how == "refuses":
			fmt.Println(`{"error": "no GPU"}`)
		case how == "stutters":
			fmt.Println("seconds: 1")
		case how == "lacks":
			fmt.Println(`{"checked": true}`)
		case how == "ends":
			return 1
		case how == "floods":
			fmt.Println(strings.Repeat("x", maxAnswer+1))
		default:
			fmt.Println(fakeAnswer())
		}
	}
	return 0
}

func fakeAnswer() string {
	var fields []string
	for _, key := range []string{yardCopyIn, yardCopyOut, yardBothIn, yardBothOut, yardPageableIn} {
		fields = append(fields, fmt.Sprintf("%q: 5e9", key))
	}
	for _, key := range []string{yardSeconds, yardMedian} {
		fields = append(fields, fmt.Sprintf("%q: 0.5", key))
	}
	fields = append(fields, `"calls": {"total_seconds": {"median": 0.5}}`)
	return "{" + strings.Join(fields, ", ") + "}"
}

// playing makes the process's yardsticks behave so, and returns the program.
func playing(t *testing.T, how string) string {
	t.Helper()
	t.Setenv(fakeYardstick, how)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// comparable are the rows that the yardstick can be asked about.
var comparableRows = []string{
	"pinned-in", "pinned-out", "pinned-both", "pageable-in", "serial", "double", "triple", "lanes",
	"preallocated", "synchronous", "async-0", "async-kept", "latency/streams",
}

func TestRowsAreComparedWithTheYardstick(t *testing.T) {
	o := tiny(openHost(t))
	o.Yardstick = playing(t, "well")
	o.Rows = append(slices.Clone(comparableRows), "polling", "blocking-event", "host-function")
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		want := figureYardstick
		if row.Group == "completion" {
			want = figureYardSeconds
		}
		if f, ok := row.Figure(want); !ok || f.N != o.Rounds || f.Median <= 0 {
			t.Errorf("%s/%s has %q %+v", row.Group, row.Name, want, f)
		}
	}
	if len(r.Rows) < len(o.Rows) {
		t.Errorf("%d rows of %d", len(r.Rows), len(o.Rows))
	}
}

// TestAYardstickThatFailsIsSaid: rows have their own figures all the same, and the table says what became of the
// comparison.
func TestAYardstickThatFailsIsSaid(t *testing.T) {
	for how, want := range map[string]string{
		"refuses": "refused \"serial", "stutters": "which is no JSON object", "lacks": "no positive number",
		"ends": "it has ended", "floods": "token too long",
	} {
		t.Run(how, func(t *testing.T) {
			o := tiny(openHost(t))
			o.Yardstick = playing(t, how)
			o.Rows = []string{"schedules/serial", "schedules/triple"}
			var table strings.Builder
			o.Out = &table
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(table.String(), want) || !strings.Contains(table.String(), "no comparison with the yardstick") {
				t.Errorf("the table does not say %q:\n%s", want, table.String())
			}
			for _, row := range r.Rows {
				if _, ok := row.Figure(figureYardstick); ok || row.Batch == nil {
					t.Errorf("%s has the ratio %v and takes %v", row.Name, ok, row.Batch)
				}
			}
		})
	}
}

func TestAYardstickThatIsNotThere(t *testing.T) {
	o := tiny(openHost(t))
	o.Yardstick = "/nonexistent/yardstick"
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "make -C kernels yardstick") {
		t.Errorf("the error is %v", err)
	}
}

// TestAskOnceARound: contenders that want the same answer share it.
func TestAskOnceARound(t *testing.T) {
	tg := newTarget(2)
	tg.Yardstick = playing(t, "well")
	if err := tg.startYardstick(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := 0
	q := tg.ask(func() string { asked++; return "copy bytes=1" })
	in, out := q.seconds(yardMedian), q.seconds(yardSeconds)
	for range 2 {
		for _, c := range []*contender{in, out} {
			if err := c.measure(context.Background(), c, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if asked != 2 || len(in.seconds) != 2 || len(out.seconds) != 2 {
		t.Errorf("asked %d times for %d and %d figures", asked, len(in.seconds), len(out.seconds))
	}
	if err := tg.yardstick.close(); err != nil {
		t.Error(err)
	}
}
