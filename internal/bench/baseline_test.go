package bench

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"millrace/internal/bench/report"
)

// fakeProgram is an environment variable that makes this test binary a baseline program. Its value selects the
// behaviour.
const fakeProgram = "MILLRACE_TEST_YARDSTICK"

func TestMain(m *testing.M) {
	if how := os.Getenv(fakeProgram); how != "" {
		os.Exit(playProgram(how))
	}
	os.Exit(m.Run())
}

// playProgram answers every request with the figures for all kinds of requests.
func playProgram(how string) int {
	requests, count := bufio.NewScanner(os.Stdin), 0
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
		case how == "counts":
			count++
			fmt.Printf("{\"seconds\": %d}\n", count)
		default:
			fmt.Println(fakeAnswer)
		}
	}
	return 0
}

const fakeAnswer = `{"in": 5e9, "out": 5e9, "both_in": 5e9, "both_out": 5e9, "seconds": 0.5, "median": 0.5, "calls": {"total_seconds": {"median": 0.5}}}`

// playing sets the behaviour of baseline programs that this process starts. It returns the program's path.
func playing(t *testing.T, how string) string {
	t.Helper()
	t.Setenv(fakeProgram, how)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// comparableRows are the rows that the report compares with the baseline program.
var comparableRows = []string{
	"pinned-in", "pinned-out", "pinned-both", "serial", "double", "triple", "lanes",
	"preallocated", "synchronous", "async-0", "async-kept", "latency/streams",
}

func TestRowsAreComparedWithTheBaselineProgram(t *testing.T) {
	o := tiny(openHost(t))
	o.Yardstick = playing(t, "well")
	o.Rows = append(slices.Clone(comparableRows), "polling", "blocking-event", "host-function")
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		want := overBaseline.name
		if row.Group == "completion" {
			want = baselineTime.name
		}
		if f, ok := row.Figure(want); !ok || f.N != o.Rounds || f.Median <= 0 {
			t.Errorf("%s/%s has %q %+v", row.Group, row.Name, want, f)
		}
	}
	if len(r.Rows) < len(o.Rows) {
		t.Errorf("%d rows of %d", len(r.Rows), len(o.Rows))
	}
}

// TestABaselineProgramThatFailsIsReported checks that rows keep their own figures, and that the table gives the reason for the missing
// comparison.
func TestABaselineProgramThatFailsIsReported(t *testing.T) {
	for how, want := range map[string]string{
		"refuses": "refused \"serial", "stutters": "did not answer \"serial", "lacks": "no positive time",
		"ends": "EOF",
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
			if !strings.Contains(table.String(), want) || !strings.Contains(table.String(), "not compared with the baseline program") {
				t.Errorf("the table does not say %q:\n%s", want, table.String())
			}
			for _, row := range r.Rows {
				if _, ok := row.Figure(overBaseline.name); ok || row.Batch == nil {
					t.Errorf("%s has the ratio %v and takes %v", row.Name, ok, row.Batch)
				}
			}
		})
	}
}

func TestABaselineProgramThatIsMissing(t *testing.T) {
	o := tiny(openHost(t))
	o.Yardstick = "/nonexistent/yardstick"
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "make -C kernels yardstick") {
		t.Errorf("the error is %v", err)
	}
}

// TestAskOnceARound checks that cases with equal requests share one answer per round.
func TestAskOnceARound(t *testing.T) {
	s := idleSession(2)
	var err error
	if s.program, err = startProgram(t.Context(), playing(t, "counts")); err != nil {
		t.Fatal(err)
	}
	newCase := func() *Case {
		return &Case{
			Row: report.Row{Name: "triple"}, Measure: func(context.Context, *Case, uint64) error { return nil },
			baseline: secondsOf(func() string { return "copy bytes=1" }),
		}
	}
	in, out := newCase(), newCase()
	if err := s.Measure(t.Context(), in, out); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*baseline{in.baseline, out.baseline} {
		if !slices.Equal(b.seconds, []float64{1, 2}) || b.err != nil {
			t.Errorf("the figures come from answers %v, error %v, want 1 and 2", b.seconds, b.err)
		}
	}
	if err := s.program.close(); err != nil {
		t.Error(err)
	}
}

// TestSpeedupsAgreeWithTheTimes checks that every ratio in a row is the quotient of the times in the table.
func TestSpeedupsAgreeWithTheTimes(t *testing.T) {
	const serialInCUDA = 0.5 // seconds per batch, for every schedule of the fake program
	o := tiny(openHost(t))
	o.Yardstick, o.Rounds = playing(t, "well"), 3
	o.Rows = []string{"serial", "double", "triple", "events", "host-sync", "lanes", "preallocated", "async-kept"}
	var table strings.Builder
	o.Out = &table
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	reference := map[string]float64{}
	for _, row := range r.Rows {
		reference[row.Name] = row.Batch.Median
	}
	for _, row := range r.Rows {
		want := map[string]float64{}
		switch row.Group {
		case "schedules":
			want[overSerial.name] = reference["serial"] / row.Batch.Median
			want[overCUDASerial.name] = serialInCUDA / row.Batch.Median
		case "streams":
			want[overCUDASerial.name] = serialInCUDA / row.Batch.Median
		case "alloc":
			want[overPreallocated.name] = row.Batch.Median / reference["preallocated"]
		}
		if of, compared := row.Figure(baselineTime.name); compared {
			want[overBaseline.name] = of.Median / row.Batch.Median
		}
		for name, ratio := range want {
			if f, ok := row.Figure(name); !ok || math.Abs(f.Median-ratio) > 1e-9*ratio || f.N != o.Rounds {
				t.Errorf("%s/%s has %q %+v, and the times give %v", row.Group, row.Name, name, f, ratio)
			}
		}
	}
	if !strings.Contains(table.String(), "x CUDA serial") || strings.Contains(table.String(), noBaseline) {
		t.Errorf("the tables do not compare with plain CUDA:\n%s", table.String())
	}
}

// TestHeaderSaysWhatSpeedupsAreOver checks that the header refers to Millrace's serial schedule if there is no baseline
// program.
func TestHeaderSaysWhatSpeedupsAreOver(t *testing.T) {
	o := tiny(openHost(t))
	o.Rows = []string{"schedules/triple", "lanes"}
	var table strings.Builder
	o.Out = &table
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if text := table.String(); strings.Count(text, "  x own serial") < 2 || strings.Contains(text, "x CUDA serial") || strings.Count(text, noBaseline) != 1 {
		t.Errorf("the tables do not say what speedups are over:\n%s", text)
	}
}
